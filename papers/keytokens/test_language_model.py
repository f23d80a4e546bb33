"""The benchmark of key tokens on a language model, in small: it runs, goes on, and its verdicts follow from figures."""

from __future__ import annotations

import json
import lzma
import random
from types import SimpleNamespace

import pytest


@pytest.fixture
def page(opened):
    return opened("papers.keytokens.language_page")


@pytest.fixture
def script(opened, monkeypatch):
    for name in ("torch", "peft", "simplemma", "pytrec_eval", "bm25s"):
        pytest.importorskip(name)
    found = opened("papers.keytokens.language_model")
    monkeypatch.setattr(found, "KS", (20, 40))
    monkeypatch.setattr(found, "MS", (0, 5))
    monkeypatch.setattr(found, "FIXED", (40, 5))
    monkeypatch.setattr(found, "LENGTH", 400)  # its tokens are letters
    return found


@pytest.fixture
def folders(tmp_path):
    """A language model with a tied head as transformers saves it, and the data the benchmark reads."""
    from tiny_models import WORDS, byte_level, tiny_model

    tokenizer = byte_level()
    model = tiny_model("llama", len(tokenizer), tie_word_embeddings=True, max_position_embeddings=512)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    drawn = random.Random(0)
    texts = [" ".join(drawn.sample(WORDS, 6)) for _ in range(60)]
    data = tmp_path / "data"
    (data / "raw_english").mkdir(parents=True)
    with lzma.open(data / "raw_english/open_licence.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\n".join(texts))
    there = data / "retrieval/little"
    (there / "qrels").mkdir(parents=True)
    for name, few in (("corpus", texts[:30]), ("queries", texts[30:34])):
        records = [json.dumps({"_id": str(n), "title": "", "text": text}) for n, text in enumerate(few)]
        (there / f"{name}.jsonl").write_text("\n".join(records))
    (there / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n0\t1\t1\n1\t2\t1\n2\t3\t1\n3\t4\t1\n")
    return tmp_path, texts


@pytest.mark.slow
def test_a_language_model_is_measured_and_a_second_run_asks_it_nothing(script, folders, monkeypatch):
    from papers.keytokens.tuning import tune

    place, texts = folders
    tune(place / "model", list(zip(texts, texts)), place / "tuned", 1, 2)
    few = {"texts": 30, "prompted": 10, "swept": 8, "skip": 20, "words": 50, "sets": ["little"]}
    folders = {"model": place / "model", "tuned": place / "tuned", "data": place / "data", "work_dir": place / "work"}
    options = SimpleNamespace(**few, **folders)
    figures = dict(script.measure(options))
    assert {"as it is, PromptEOL, centred", "tuned, mean"} <= {row[0] for row in figures["rates"].rows}
    assert "little, as it is, random rows" in {row[0] for row in figures["retrieval"].rows}
    assert len(figures["claims"].rows) == 23
    assert "tuned: 2 steps of 32 pairs, adapters of the last 1 layers" in figures["tuning"]
    monkeypatch.setattr(script, "pooled_states", None)
    assert dict(script.measure(options)) == figures


@pytest.mark.slow
def test_several_poolings_of_one_pass_are_those_of_each_alone(script, folders):
    place, texts = folders
    encoders = script.Encoders(place / "model", place / "work")
    for name in script.POOLINGS:
        assert encoders.rows(name, texts) == pytest.approx(encoders.models[name].embed(texts), abs=0.05)


def rates(lar, error, gar, hit=0.95):
    parts = {"lar": lar, "lar_error": error, "gar": gar, "hit": hit, "texts": 100}
    return {**parts, "weighted_lar": lar, "literal": 0.1, "stem": 0.0, "distinct": 9}


@pytest.mark.parametrize(
    ("other", "words"),
    [(0.1, ["holds", "holds"]), (0.29, ["undecided", "does not hold"])],
)
@pytest.mark.parametrize("tuned", [0.1, 0.29])
def test_a_difference_within_the_interval_is_undecided_and_one_tuning_and_rates_without_it_decide_nothing(
    page, other, words, tuned
):
    given = {"plain": rates(0.3, 0.01, 0.1), "centred": rates(0.2, 0.01, 0.3)}
    given |= {f"{name}, of another text": rates(other, 0.01, 0.1, hit=0.5) for name in ("plain", "centred")}
    after = {"plain": rates(tuned, 0.01, 0.2)}
    rows = [
        {"name": name, "pooling": pooling, "rates": found}
        for name, found in (("as it is", given), ("tuned", after))
        for pooling in ("mean", "weighted_mean", "last", "prompt_eol")
    ]
    verdicts = [claim.verdict.value for claim in page.alignment_claims({"rates": rows})]
    assert verdicts == [*words, *4 * ["no interval", "undecided"], "no interval"]


def test_a_share_lies_in_its_interval_and_random_rows_are_held_against_it(page):
    dense, half = [40.0, 60.0, 80.0] * 20, [20.0, 30.0, 40.0] * 20
    assert page.share(half, dense)[:3] == pytest.approx((50, 50, 50))
    grid = [{"k": 2000, "m": m, "each": half, "ndcg": 30.0} for m in (0, 100)]
    found = {"dense": dense, "plain": half, "grid": grid, "task": "cisi"}
    rows = [{"model": model, "head": head, **found} for model in ("as it is", "tuned") for head in ("own", "random")]
    kept, gain, literal, *_ = page.retrieval_claims({"table 3": rows}, (2000, 100))
    verdicts = [claim.verdict.value for claim in (kept, gain, literal)]
    assert verdicts == ["does not hold", "unchanged", "unchanged"] and "50% [50, 50]" in kept.measured
