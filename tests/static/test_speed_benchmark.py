"""The race of encoders is fair, and its steps run."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.static_speed import race, race_markdown, shuffled_rounds


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 2**32))
def test_no_encoder_has_a_place_of_its_own_in_the_rounds(count, rounds, seed):
    names = [f"encoder {index}" for index in range(count)]
    orders = shuffled_rounds(names, rounds, seed)
    assert len(orders) == rounds and all(sorted(order) == names for order in orders)
    firsts = Counter(order[0] for order in orders)
    assert max(firsts[name] for name in names) - min(firsts[name] for name in names) <= 1
    assert orders == shuffled_rounds(names, rounds, seed)


def test_a_race_times_every_encoder_in_every_round():
    calls = Counter()
    encoders = {name: lambda texts, name=name: calls.update({name: len(texts)}) for name in ("pellucid", "peer")}
    results = race(encoders, ["text"] * 3000, 4, 0)
    assert calls == dict.fromkeys(encoders, 2000 + 4 * 3000)
    assert all(speed["best_texts_per_cpu_s"] >= speed["texts_per_cpu_s"] > 0 for speed in results.values())
    assert race_markdown(results).count("\n") == 3
