"""Ways to train an embedder: a model cut in two has the states of the whole one; claims follow from rows."""

from __future__ import annotations

import json
import lzma
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from papers.keytokens import paradigms, tuning
from papers.keytokens.paradigms import AS_IS, BOTH_SIDES, GRITLM, RELATEDNESS, SCL, SIMILARITY, WAYS
from pellucid.transformer.attention import set_attention
from tiny_models import WORDS, byte_level, tiny_model


@pytest.fixture
def bench(tmp_path, monkeypatch):
    for name, value in {"STEPS": 3, "BATCH": 4, "PREDICTED": 2, "SENTENCES": 12, "LENGTH": 30}.items():
        monkeypatch.setattr(paradigms, name, value)
    monkeypatch.setattr(tuning, "half_dtype", lambda: "float32")
    tokenizer = byte_level()
    model = tiny_model("llama", len(tokenizer), tie_word_embeddings=True, max_position_embeddings=512)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    drawn = random.Random(0)
    texts = [" ".join(drawn.sample(WORDS, 2 + n % 5)) for n in range(24)]
    pairs = [json.dumps({"question": one, "answer": other}) for one, other in zip(texts[:12], texts[12:])]
    for name, lines in (("raw_english/open_licence.txt", texts), ("retrieval_train/medquad/qa.jsonl", pairs)):
        path = tmp_path / "data" / f"{name}.xz"
        path.parent.mkdir(parents=True)
        path.write_bytes(lzma.compress("\n".join(lines).encode()))
    found = paradigms.Bench(tmp_path / "model", tmp_path / "data", 1)
    return found, model.eval(), tmp_path


def whole_states(model, ids, attention):
    set_attention(model, attention)
    with torch.no_grad():
        return model.base_model(torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("causal", [True, False])
def test_a_model_cut_in_two_gives_the_states_of_the_whole_one_in_a_padded_batch(bench, causal):
    bench, model, _ = bench
    rows, read = bench.embed(bench.model, "measured", causal=causal), bench.read("measured", causal=causal)
    assert len({len(ids) for ids in read.ids}) > 1
    for row, ids in zip(rows, read.ids, strict=True):
        states = whole_states(model, ids, "causal" if causal else "bidirectional")
        assert row == pytest.approx(states[1:].mean(dim=0).numpy(), abs=1e-5)


def test_masked_tokens_are_not_seen_and_told_from_the_state_before_them(bench):
    bench, model, _ = bench
    read, mask = bench.read("sentences", causal=False, masked=True), bench.tokenizer.encode("_")[0]
    assert 0 < sum(map(len, read.asked)) < sum(map(len, read.ids)) / 2 and not any(0 in row for row in read.asked)
    losses, batch = [], [n for n, asked in enumerate(read.asked) if asked][:3]
    for n in batch:
        shown = [mask if place in read.asked[n] else token for place, token in enumerate(read.ids[n])]
        logits = whole_states(model, shown, "bidirectional") @ model.get_output_embeddings().weight.T
        chances = logits.detach().log_softmax(dim=1)
        losses += [-float(chances[place - 1, read.ids[n][place]]) for place in read.asked[n]]
    loss = bench.prediction_loss(bench.model, read, batch, causal=False)
    assert float(loss.detach()) == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.slow
def test_every_way_is_measured_and_the_model_stays_as_it_is(bench):
    bench, _, place = bench
    base = bench.base.copy()
    found = {way: paradigms.ways.measure(bench, way=way, seed=1) for way in WAYS}
    assert found[AS_IS]["v1"] == 0 and found[BOTH_SIDES]["v1"] != 0
    assert len({round(row["v1"], 6) for row in found.values()}) == len(WAYS)  # each trains, and otherwise
    bench.__dict__.pop("base")
    assert (bench.base == base).all()
    again = paradigms.Bench(place / "model", place / "data", 1)
    assert paradigms.ways.measure(again, way=GRITLM, seed=1) == pytest.approx(found[GRITLM])
    assert paradigms.ways.measure(again, way=GRITLM, seed=2)["v1"] != found[GRITLM]["v1"]


def test_sentences_that_are_measured_train_nothing(bench):
    texts = bench[0].texts
    assert not set(texts["measured"]) & {*texts["sentences"]} and len(texts["measured"]) == paradigms.SENTENCES


def rows_of(way, seeds, **figures):
    plain = {f"{kind} {rate}": 1.0 for kind in ("plain", "centred") for rate in ("hit", "lar", "gar", "weighted_lar")}
    common = {"another hit": 0.0, "v1": 0.0, "dominance": 5.0, "level": 30.0, "opposite": 80.0, "other": 50.0}
    return [{"way": way, "seed": n, **plain, **common, **figures} for n in range(seeds)]


@pytest.mark.parametrize(("seeds", "words"), [(5, ["**holds**", "**does not hold**"]), (4, ["undecided"] * 2)])
def test_claims_follow_from_pairs_of_seeds_and_fewer_than_five_decide_nothing(seeds, words):
    rows = [*rows_of(AS_IS, 1), *rows_of(SCL, seeds, v1=-3.0), *rows_of(GRITLM, seeds, v1=-2.0)]
    found = dict(paradigms.figures(rows))
    claims = {row[0]: row for row in found["claims"].rows}
    lowered = claims["SCL lowers the first component (Observation 1)"]
    raised = claims["SCL and NTP together raise it (GritLM)"]
    assert [str(lowered[-1]), str(raised[-1])] == words
    assert lowered[1:3] == ["0.0 and -3.0", "+3.0 (+3.0 to +3.0)"]
    assert not any("Table 5" in name or "MNTP" in name for name in claims)  # whose ways were not measured
    assert [row[0] for row in found["ways"].rows] == [AS_IS, SCL, GRITLM]
    assert found["ways"].cell(SCL, "v1") == "-3.0 ± 0.0" and found["ways"].cell(AS_IS, "v1") == "0.0"


def test_like_and_dislike_stand_beside_two_things_liked():
    rows = [*rows_of(RELATEDNESS, 5, opposite=80.0, other=60.0), *rows_of(SIMILARITY, 5, opposite=75.0, other=50.0)]
    plain, beside = dict(paradigms.figures(rows))["opposites"].rows
    assert plain[1:3] == ["80.0 and 75.0", "+5.0 (+5.0 to +5.0)"]
    assert beside[1:3] == ["20.0 and 25.0", "-5.0 (-5.0 to -5.0)"]


def test_ways_of_the_page_are_all_measured():
    seeds = {way: sum(row["way"] == way for row in paradigms.ways.grid) for way in WAYS}
    assert seeds == {way: 5 if WAYS[way].pairs else 1 for way in WAYS}
    assert {side[0] for claim in paradigms.CLAIMS for side in claim[1:3]} == {*WAYS}
