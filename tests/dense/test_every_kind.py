"""What holds for reasons of every kind: rows and lines add up, spans lie in the texts, data forms, views, summaries."""

import json
import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pellucid
from pellucid.dense.embedder import REASON_KINDS
from test_form import LongShadow
from test_words import Shadow, sentences, table

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema.json").read_text("utf-8"))
QUERY = "ba be, the bo"
PASSAGE = " ".join(f"{text}." for text in sentences(12, seed=3))
TEXTS = [
    "ba be bi",
    "",
    " \n\t",
    "bo",
    "Unbekannt xyz",
    "ba ba be ba",
    "1,000 ba-be \U0001f389 <b>bo</b> [red]be",
    "| ba | be |\n|---|---|\n| bi | bo |",
    "ba 日本。 da يد; de not di",
    PASSAGE,
]


@pytest.fixture(scope="module")
def model(request):
    """An encoder of a few words with reasons of one kind; of words also one whose vectors say how long a text is."""
    encoder = pellucid.load((LongShadow if request.param == "form" else Shadow)(noise=0.05))
    encoder.fit_reasons(sentences(300), table=table(), show_progress_bar=False)
    return encoder if request.param == "form" else encoder.with_reasons(request.param)


every_kind = pytest.mark.parametrize("model", [*REASON_KINDS, "form", None], indirect=True, ids=str)


def explanations(model):
    for text in TEXTS:
        yield model.explain(QUERY, text)
        yield model.explain(text, "ba be")
    yield model.explain(TEXTS[0])
    first, second = model.explain(QUERY, TEXTS[0]), model.explain(QUERY, PASSAGE)
    yield first - second
    gap = second - first
    measured = [why.measurement.n_texts for why in (gap, first, second) if why.measurement is not None]
    assert not measured or measured[0] == measured[1] + measured[2]
    yield gap


def check_lines(why):
    """The lines are a partition of the score, of pieces of the texts that do not begin or end inside a word."""
    for k in (1, 3, None):
        lines = why.groups(k)
        assert math.fsum(line.contribution for line in lines) == pytest.approx(why.score, abs=2e-6)
        if abs(why.score) > 1e-3:
            assert math.fsum(line.share for line in lines) == pytest.approx(1, abs=2e-3)
        assert len({(line.name, line.kind, *line[4:7]) for line in lines}) == len(lines)
        for line in lines:
            assert line.name.strip()
            for text, spans in zip((*why.texts, "", ""), line[4:7]):
                for start, end in spans:
                    assert 0 <= start < end <= len(text) and text[start:end].strip()
                    assert not re.search(r"[a-z]\x00[a-z]", f"{text[:start]}\x00{text[start:end]}\x00{text[end:]}")


def check_summary(why):
    """It has no empty place, says the score, and no number that is not in the lines."""
    summary = re.sub(r'"[^"]*"', "Q", why.summary())
    lines = why.groups()
    assert summary.endswith(".") and "  " not in summary and "\n" not in summary and "nan" not in summary
    assert set(re.findall(r"\d+%(?! of unrelated)", summary)) <= {f"{abs(line.share):.0%}" for line in lines} | {"10%"}
    by = {float(size) for size in re.findall(r"(?:lowers?|raises?) it by (\d\.\d+)", summary)}
    assert all(any(abs(abs(line.contribution) - size) < 0.0051 for line in lines) for size in by)


@every_kind
def test_reasons_of_every_kind_add_up_and_can_be_read(model):
    validator = pytest.importorskip("jsonschema").validators.validator_for(SCHEMA)(SCHEMA)
    for why in explanations(model):
        assert math.fsum(row.contribution for row in why.rows) + why.remainder == pytest.approx(why.score, abs=1e-9)
        assert abs(why.remainder) < 1e-6 or not why.exact
        check_lines(why)
        check_summary(why)
        record = json.loads(why.to_json())
        assert len(why.rows) > 60 or not list(validator.iter_errors(record))
        assert record == why.to_dict() and record["summary"] == why.summary()
        assert pickle.loads(pickle.dumps(why)).groups() == why.groups()  # checked, as they were read
        assert "<b>bo" not in why.to_html(fragment=True) and "\x1b" not in why.to_text(width=40, rows=True)


@every_kind
def test_the_same_texts_have_the_same_reasons_in_copies_and_threads(model):
    why = model.explain(QUERY, TEXTS[6])
    with ThreadPoolExecutor(4) as pool:
        for other in pool.map(lambda _: model.with_reasons(model._reasons).explain(QUERY, TEXTS[6]), range(4)):
            assert other.to_dict() == why.to_dict()
    assert model.explain(QUERY, TEXTS[6]).to_dict() == why.to_dict()


@every_kind
def test_hits_have_the_score_and_reasons_of_every_kind(model, tmp_path):
    with pellucid.Index.create(tmp_path / "index", {"dense": model}) as index:
        texts = [text for text in TEXTS if text.strip()]
        index.add(texts, ids=[str(n) for n in range(len(texts))])
        hits = index.search("ba be bo", top_k=3)
        for why in (*(hit.explain() for hit in hits), hits[0].measured(), hits.why(1), hits.why(1, 3)):
            check_lines(why)
            check_summary(why)
            assert json.loads(why.to_json()) == why.to_dict()
        assert hits[0].measured().score == pytest.approx(hits[0].score, abs=1e-5)
