"""The race of encoders is fair, and its steps run."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.static_speed import contestants, race, race_markdown, shuffled_rounds
from pellucid.static.embedder import StaticEmbedder


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 2**32))
def test_no_encoder_has_a_place_of_its_own_in_the_rounds(count: int, rounds: int, seed: int) -> None:
    names = [f"encoder {index}" for index in range(count)]
    orders = shuffled_rounds(names, rounds, seed)
    assert len(orders) == rounds and all(sorted(order) == names for order in orders)
    firsts = Counter(order[0] for order in orders)
    assert max(firsts[name] for name in names) - min(firsts[name] for name in names) <= 1
    assert orders == shuffled_rounds(names, rounds, seed)


def test_a_race_times_every_encoder_in_every_round() -> None:
    calls: Counter[str] = Counter()
    encoders = {name: lambda texts, name=name: calls.update({name: len(texts)}) for name in ("pellucid", "peer")}
    results = race(encoders, ["text"] * 3000, 4, 0)
    assert calls == dict.fromkeys(encoders, 2000 + 4 * 3000)
    assert all(speed["best_texts_per_cpu_s"] >= speed["texts_per_cpu_s"] > 0 for speed in results.values())
    assert race_markdown(results).count("\n") == 3


def test_encoders_in_calls_keep_no_result(monkeypatch) -> None:
    """Memory that is kept from call to call has to be cleared by the kernel for each: then that is what is timed."""
    alive: list[int] = []

    class Result:
        def __init__(self) -> None:
            alive.append(1)

        def __del__(self) -> None:
            alive.pop()

    most: list[int] = []

    def encode(texts: list[str]) -> Result:
        most.append(len(alive))
        return Result()

    monkeypatch.setattr("benchmarks.static_speed.peers", lambda model: {"peer": encode})
    monkeypatch.setattr("benchmarks.static_speed.own_forms", lambda model, texts: {})
    model = StaticEmbedder.from_pretrained("static-multi")
    assert contestants(model, [], 2)["peer"](["text"] * 10) is None
    assert max(most) <= 1 and len(most) == 5
