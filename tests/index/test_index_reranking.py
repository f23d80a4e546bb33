"""A second stage: the first hits scored anew, in the place of the score or beside it, and reasons that still add up."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pellucid import Index
from pellucid.errors import InputError

TEXTS = {f"d{n}": f"an apple {'and a pear ' * n} of kind {n}" for n in range(12)}


def by_number(query, texts):
    """A score that the first stage has nothing to do with: the number in the text."""
    return [float(re.search(r"kind (\d+)", text)[1]) for text in texts]


class Pairs:
    """As a CrossEncoder is: called it is a module, and `predict` takes pairs."""

    def __call__(self, *things):
        raise AssertionError("predict is what scores pairs")

    def predict(self, pairs):
        return np.float32([by_number(query, [text])[0] / 10 for query, text in pairs])


@pytest.fixture
def index(tmp_path, fruit):
    with Index.create(tmp_path / "index", {"fruit": fruit}) as made:
        made.add(TEXTS.values(), ids=TEXTS, titles=[f"Title {own}" for own in TEXTS])
        yield made


def check_sums(hits):
    """What ranks is the score, the score is its parts, and they are the sums of the rows that an explanation has."""
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert sum(hits.weights.values()) == pytest.approx(1)
    for hit in hits:
        assert sum(hit.parts.values()) == pytest.approx(hit.score, abs=1e-9)
        why = hit.explain()
        assert why.score == hit.score and sum(row.contribution for row in why.rows) == pytest.approx(
            hit.score, abs=1e-6
        )
        sums = {part: terms.values.sum() for part, terms in hit.reasons.terms.items()}
        assert sums == pytest.approx({p: v for p, v in hit.parts.items() if p in sums})
        assert set(hit.parts) <= set(hits.weights)
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "search-schema.json").read_text("utf-8"))
    jsonschema.validate(json.loads(hits.to_json()), schema)


@pytest.mark.parametrize(("rerank", "unit", "name"), [(by_number, 1, "by_number"), (Pairs(), 10, "Pairs")])
def test_it_replaces_score_and_order_and_both_are_said(index, rerank, unit, name):
    plain = index.search("apple pear", 12)
    hits = index.search("apple pear", 3, rerank=rerank)
    check_sums(hits)
    assert [hit.id for hit in hits] == ["d11", "d10", "d9"] and hits.weights == {"rerank": 1.0}
    assert hits[0].score == pytest.approx(11 / unit) and hits[0].parts == {"rerank": hits[0].score}
    assert [row.name for row in hits[0].explain().rows] == [f"rerank: the score of {name}, not taken apart"]
    before = {hit.id: hit for hit in plain}
    for hit in hits:
        assert hit.before == before[hit.id] and hit.before.before is None
        assert (hit.before.explain().score, hit.to_dict()["before"]["parts"]) == (
            before[hit.id].score,
            before[hit.id].parts,
        )
    assert hits.reranked == 12 and "the first 12 reranked" in str(hits)
    gap = hits.why(1, 3)
    assert gap.score == pytest.approx(2 / unit) and len(gap.rows) == 1


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
def test_with_a_weight_it_is_a_part_like_the_others(index, share):
    weights = {name: (1 - share) * value for name, value in index.weights.items()}
    hits = index.search("apple pear", 12, rerank=by_number, weights={**weights, "rerank": share})
    check_sums(hits)
    assert hits.weights == pytest.approx({**weights, "rerank": share})
    for hit in hits:
        number = int(hit.id[1:])
        assert (hit.parts["rerank"], hit.score) == (
            pytest.approx(share * number),
            pytest.approx((1 - share) * hit.before.score + share * number),
        )
        rows = {row.name: row.contribution for row in hit.explain().rows}
        for row in hit.before.explain().rows:
            assert rows[row.name] == pytest.approx((1 - share) * row.contribution)
        assert [m[:2] for m in hit.marks.text] == [m[:2] for m in hit.before.marks.text]


def test_only_the_first_are_read_and_as_the_index_reads_them(index):
    seen = []

    def score(query, texts):
        seen.append((query, texts))
        return np.zeros(len(texts))

    plain = index.search("apple pear", 12)
    hits = index.search("apple pear", 2, rerank=score, rerank_top=4)
    assert [hit.id for hit in hits] == [hit.id for hit in plain[:2]]  # equal scores keep the order
    assert seen == [("apple pear", [f"{hit.title}\n\n{hit.text}" for hit in plain[:4]])]
    assert not hits.exact and index.search("apple pear", 2, rerank=score).exact  # all that can be a hit was read
    assert len(index.search("apple pear", 6, rerank=score, rerank_top=4)) == 6 and len(seen[-1][1]) == 6
    assert len(index.search("zzz", rerank=score)) == 0 and len(seen) == 3


def test_a_part_may_have_the_name(index_of, fruit):
    index = index_of(TEXTS.values(), ids=TEXTS, models={"rerank": fruit})
    with pytest.raises(InputError, match="another name"):
        index.search("apple", rerank=by_number)
    assert index.search("apple", weights={"rerank": 1})


@pytest.mark.full
def test_a_cross_encoder_of_sentence_transformers(index):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    from tiny_models import word_piece

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    tokenizer = word_piece()
    config = transformers.BertConfig(vocab_size=len(tokenizer), num_labels=1, **sizes)
    folder = Path(str(index.folder) + "-cross")
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    hits = index.search("apple pear", 12, rerank=model)
    check_sums(hits)
    pairs = [("apple pear", f"{hit.title}\n\n{hit.text}") for hit in hits]
    assert [hit.score for hit in hits] == pytest.approx(model.predict(pairs).tolist(), abs=1e-5)
    assert "CrossEncoder" in hits[0].explain().rows[0].name


def words_and_order(query, texts):
    """A score in which words act on each other: a pear counts twice behind an apple, and nothing else counts."""
    return [2.0 * ("apple and a pear" in text) + 0.5 * ("Title" in text) - 1 for text in texts]


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_score_of_a_reranker_is_measured_over_the_words_of_the_passage(index, share):
    index.delete([name for name in TEXTS if name not in ("d1", "d2")])
    weights = {**{part: (1 - share) * value for part, value in index.weights.items()}, "rerank": share}
    for hit in index.search("apple pear", 2, rerank=words_and_order, weights=weights if share < 1 else None):
        why = hit.measured()
        assert why.score == hit.score
        rows = {row.name: row for row in why.rows if row.name.startswith("rerank: ")}
        assert sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
        assert sum(row.contribution for row in rows.values()) == pytest.approx(hit.parts["rerank"])
        empty = rows.pop("rerank: the score of an empty passage")
        assert empty.contribution == pytest.approx(-share) and not empty.spans2
        assert (rows["rerank: Title"].contribution, rows["rerank: kind"].contribution) == (
            pytest.approx(0.5 * share),
            pytest.approx(0),
        )
        phrase = sum(rows[f"rerank: {word}"].contribution for word in ("apple", "and", "a", "pear"))
        assert phrase == pytest.approx(2 * share)
        assert {why.text2[slice(*row.spans2[0])] for row in rows.values()} >= {"Title", "apple", "pear"}
        assert sum(group.contribution for group in why.groups()) == pytest.approx(hit.score, abs=1e-6)
        assert hit.explain().measurement is None and why.measurement.n_texts > 10
