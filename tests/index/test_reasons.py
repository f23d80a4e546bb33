"""The reasons of hits, whose rows add up to the score: what is marked, encoders without a pass, and a second stage."""

import json
import re
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from families import WORDS as WORDS_OF_FAMILIES
from families import key_token_model, static_lexicon_model
from pellucid.core.query import EMPTY_TERMS, Marks
from pellucid.errors import InputError
from pellucid.explain.rows import CONTEXT, EMBEDDING, SHARED, WORD_PAIR
from pellucid.index.reasons import Reasons
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.sentences import sentence_spans
from pellucid.text.words import Vocabulary
from tiny_models import backbone_of, saved_backbone


def test_long_documents_are_cut_and_the_best_passage_is_shown(index_of):
    sentences = [f"Sentence {n} speaks of nothing much at all." for n in range(100)]
    sentences[70] = "Here the aardvark appears."
    text = " ".join(sentences)
    index = index_of(
        [text, "no animal, 2 plants."], ids=["long", "short"], titles=["Aardvarks", "In spring"], passage_characters=500
    )
    assert sentence_spans(index["short"].passages()[0]) == [(0, 9), (11, 31)]  # no sentence is of title and text
    assert index.info()["passages"] > 8
    hits = index.search("aardvark")
    assert [hit.id for hit in hits] == ["long"] and "aardvark" in hits[0].text and len(hits[0].text) <= 500
    assert text[hits[0].start :].startswith(hits[0].text) and hits[0].passage > 0
    assert hits[0].reasons.text == "Aardvarks\n\n" + hits[0].text
    marks = hits[0].marks
    assert (
        [hits[0].title[s:e] for s, e, _ in marks.title],
        [hits[0].text[s:e] for s, e, _ in marks.text],
        hits[0].snippet,
    ) == (["Aardvarks"], ["aardvark"], "Here the aardvark appears.")
    assert index["long"].text == text


@pytest.mark.parametrize(("n_copies", "marked"), [(9, {"rare", "often"}), (20, {"rare"})])
def test_what_adds_less_than_15_percent_of_the_strongest_is_no_mark(index_of, n_copies, marked):
    hit = index_of(["rare" + " often" * n_copies]).search("rare often")[0]
    assert {hit.text[start:end] for start, end, _ in hit.marks.text} == marked


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(-2, 4))), min_size=1, max_size=3))
def test_marks_of_a_text_are_in_its_order_each_place_once(parts):
    terms = {}
    for number, of_part in enumerate(parts):
        spans = np.array([(start, start + length) for start, length, _ in of_part], np.int64).reshape(-1, 2)
        marks = Marks(np.array([value for *_, value in of_part], np.float64), spans)
        terms[str(number)] = EMPTY_TERMS._replace(marks=marks)
    values, spans = Reasons("q", "t", terms, 0.0, named=True).marks()
    sums = Counter[tuple[int, int]]()
    for start, length, value in chain(*parts):
        sums[start, start + length] += value
    assert dict(zip(map(tuple, spans.tolist()), values.tolist())) == sums
    assert spans.tolist() == sorted(spans.tolist())


# --- Encoders ---


FAMILY_WORDS = [word for word in WORDS_OF_FAMILIES if word not in ("the", "on", "a")]
WORDS = [start + end for start in ("ba", "ce", "di", "fo", "gu") for end in ("ll", "ne", "rk", "st", "wn", "sh")]
QUERY = f"{WORDS[0]} {WORDS[7]}"


def table() -> StaticEmbedder:
    return StaticEmbedder(Vocabulary(WORDS), np.random.default_rng(3).normal(size=(len(WORDS), 8)).astype(np.float32))


def texts(count: int = 260) -> list[str]:
    chance = np.random.default_rng(1)
    return [" ".join(chance.choice(WORDS, chance.integers(3, 9))) for _ in range(count)]


class Encoder:
    """A function whose vectors depend on the words and a little on their order; it counts its calls."""

    def __init__(self) -> None:
        chance = np.random.default_rng(7)
        self.matrix, self.common, self.calls = chance.normal(size=(8, 12)), chance.normal(size=12), 0
        self.order = 0.2 * chance.normal(size=12)

    def __call__(self, given: list[str]) -> np.ndarray:
        self.calls += 1
        return table().encode(given) @ self.matrix + self.common + np.outer([len(t) % 5 for t in given], self.order)


def fitted(encoder):
    """The function as a model with word reasons, fitted on the texts."""
    model = pellucid.load(encoder)
    model.fit_reasons(texts(), table=table(), show_progress_bar=False)
    return model


@pytest.fixture
def made(index_of):
    """Make an index of the texts with models by name."""
    return partial(index_of, texts(), ids=[f"d{n}" for n in range(260)])


def rows_of(hit) -> dict:
    return {row.key: row.contribution for row in hit.explain().rows}


def test_hits_have_word_pairs_and_are_measured_on_request(made):
    encoder = Encoder()
    index = made(models={"dense": fitted(encoder)})
    hits = index.search(QUERY, 3)
    encoder.calls = 0
    for hit in hits:
        why = hit.explain()
        kinds = {row.kind for row in why.rows}
        assert {WORD_PAIR, SHARED, CONTEXT} <= kinds and EMBEDDING not in kinds and why.exact
        assert sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
        dense = sum(row.contribution for row in why.rows if row.key[0] == "dense")
        assert dense == pytest.approx(hit.parts["dense"], abs=1e-6)
        assert hit.marks.text and hit.to_dict()["marks"]["text"] and why.measurement is None
        assert len(hit.to_dict()["reasons"]) == 5
    assert hits.why(1, 2).text3 == hits[1].text
    assert encoder.calls == 0  # it reads nothing for them
    for hit in hits:
        why = hit.measured()
        assert why.score == hit.score and why.exact
        assert sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
        assert why.measurement.n_texts > 2 and CONTEXT not in {row.kind for row in why.rows}
        exact = {row.key: row.contribution for row in why.rows if row.key[0] == "bm25"}
        assert exact == {key: value for key, value in rows_of(hit).items() if key[0] == "bm25"}
    assert encoder.calls == 4  # the query once, and each hit
    again = hits.measured()
    assert [hit.explain() for hit in again] == [hit.measured() for hit in hits]
    assert [hit.id for hit in again] == [hit.id for hit in hits] and "dense: " in str(again.why(1, 2).rows[0].name)
    assert again.to_dict()["hits"][0]["score"] == hits[0].score
    with pytest.raises(InputError, match="word_weights"):
        index.search(QUERY, 1, word_weights={WORDS[0]: 0.2})[0].measured()
    other = index.search(QUERY, 1, word_weights={WORDS[5]: 0.2})
    assert other[0].measured().score == other[0].score


def test_a_function_without_fitted_reasons_can_be_measured(made):
    (hit,) = made(models={"dense": Encoder()}, bm25=False).search(QUERY, 1)
    kinds = [{row.kind for row in why.rows} for why in (hit.explain(), hit.measured())]
    assert kinds == [{EMBEDDING}, {WORD_PAIR, SHARED}]


def test_word_weights_move_the_query_and_rows_still_add_up(made):
    index = made(models={"dense": fitted(Encoder())}, bm25=False)
    plain, moved = (index.score(QUERY, "d3", word_weights={WORDS[7]: factor}) for factor in (1, 0.25))
    before, after = rows_of(plain), rows_of(moved)
    assert sum(after.values()) == pytest.approx(moved.score, abs=1e-6) and moved.score != plain.score
    for key in [key for key, row in zip(before, plain.explain().rows) if row.kind == WORD_PAIR]:
        assert after[key] == pytest.approx((0.25 if key[0] == WORDS[7] else 1) * before[key], abs=1e-6)
    found = index.search(QUERY, 260, word_weights={WORDS[7]: 0.25})
    assert {hit.id: hit.score for hit in found}["d3"] == pytest.approx(moved.score, abs=1e-6)


def test_given_vectors_have_the_same_reasons_as_computed_ones(made):
    encoder = fitted(Encoder())
    given, own = made(vectors={"dense": Encoder()(texts())}, models={"dense": encoder}), made(models={"dense": encoder})
    assert rows_of(given.score(QUERY, "d3")) == pytest.approx(rows_of(own.score(QUERY, "d3")), abs=1e-5)


STEER = {WORDS[3]: -0.5, f"{WORDS[12]} {WORDS[20]}": 0.3}


@pytest.mark.parametrize("bm25", [False, True])
def test_a_steered_query_is_the_sum_of_searches_and_its_reasons_say_so(made, bm25):
    index = made(models={"dense": fitted(Encoder()), "static": table()}, bm25=bm25)
    hits = index.search(QUERY, 260, steer=STEER)
    plain = {hit.id: hit for hit in index.search(QUERY, 260)}
    moves = {text: {hit.id: hit for hit in index.search(text, 260)} for text in STEER}
    for hit in hits[::40]:
        expected = {name: plain[hit.id].parts[name] for name in hit.parts}
        for name in ("dense", "static"):
            expected[name] += sum(weight * moves[text][hit.id].parts[name] for text, weight in STEER.items())
        assert hit.parts == pytest.approx(expected, abs=1e-6)
        why = hit.explain()
        assert why.exact and sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
        named = {row.name for row in why.rows if row.key[1] == "steer"}
        assert named == {
            f"{name}: {verb} of {text!r}" for name in ("dense", "static")
            for verb, text in zip(("less", "more"), STEER)
        }  # fmt: skip
        assert sum(group.contribution for group in why.groups()) == pytest.approx(hit.score, abs=1e-6)
        assert sum(row.contribution for row in hit.measured().rows) == pytest.approx(hit.score, abs=1e-6)
        assert index.score(QUERY, hit.id, steer=STEER).score == pytest.approx(hit.score, abs=1e-6)
    before, after = rows_of(plain[hits[0].id]), rows_of(hits[0])
    assert {key: after[key] for key in before} == pytest.approx(before, abs=1e-6)  # the query's own rows stay
    assert index.search(QUERY, 5, steer={WORDS[3]: 0, WORDS[4]: 0.0}).to_dict() == index.search(QUERY, 5).to_dict()


CHECKED = {
    "bm25": ({}, WORDS, {}),
    "static, weighted": ({"static": table}, WORDS, {"word_weights": {WORDS[7]: 0.3}}),
    "static alone": ({"static": table}, WORDS, {"weights": {"static": 1}}),
    "steered": ({"dense": lambda: fitted(Encoder()), "static": table}, WORDS, {"steer": STEER}),
    "lexicon": ({"lexicon": static_lexicon_model}, FAMILY_WORDS, {}),
    "key tokens": ({"key tokens": key_token_model}, FAMILY_WORDS, {}),
}


@pytest.mark.parametrize(("models", "words", "options"), CHECKED.values(), ids=CHECKED)
def test_a_checked_line_has_the_score_of_the_shortened_document(index_of, models, words, options):
    chance, n_checked = np.random.default_rng(5), 0
    documents = [" ".join(chance.choice(words, chance.integers(3, 9))) for _ in range(40)]
    index = index_of(
        documents, ids=[f"d{n}" for n in range(40)], models={name: model() for name, model in models.items()}
    )
    for number, document in enumerate(documents[:8]):
        id, query, stored = f"d{number}", " ".join([*chance.choice(words, 2), *document.split()[:2]]), set[str]()
        while True:  # the shortened documents are in the index, too, whose statistics count
            hit = index.score(query, id, **options)
            lines = [line for line in hit.check().explain().groups() if line.without is not None]
            shortened = [
                " ".join(word for word in hit.text.split() if word not in left_out)
                for left_out in (" ".join(hit.text[slice(*span)] for span in line.spans2).split() for line in lines)
            ]
            if stored >= {*shortened}:
                break
            stored |= {*shortened}
            index.add([*{*shortened} - {""}], ids=[*{*shortened} - {""}])
        without = [line.without for line in lines]
        assert without == pytest.approx(
            [index.score(query, text, **options).score if text else 0.0 for text in shortened], abs=1e-6
        ) and (without == sorted(without) or hit.score < 0)
        n_checked += len(lines)
    assert n_checked > 5


def test_a_given_vector_is_checked_where_it_is_the_models(made):
    index = made(vectors={"dense": Encoder()([*texts(259), "other"])}, models={"dense": fitted(Encoder())})
    (hit,) = index.search(QUERY, 1)
    assert hit.lines()[0].without is None and "Estimated, not checked." in hit.summary()
    (first, *_), summary = hit.check().lines(), hit.check().summary()
    assert f" {first.without:.2f})" in summary and hit.check().to_dict()["groups"][0]["without"] == first.without
    with pytest.raises(InputError, match="'d259' in the part 'dense' was given"):
        index.score(texts()[259].split()[0], "d259").check().summary()


# --- A second stage ---

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
def apples(index_of, fruit):
    return index_of(TEXTS.values(), ids=TEXTS, titles=[f"Title {own}" for own in TEXTS], models={"fruit": fruit})


def check_form(hits):
    """The dict form is plain JSON and what the published schema says."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "search-schema.json").read_text("utf-8"))
    assert json.loads(hits.to_json()) == hits.to_dict()
    jsonschema.validate(hits.to_dict(), schema)


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
    check_form(hits)


def test_the_views_of_a_result(apples):
    hits = apples.search("apples <b>and</b> pears", 4, offset=2)
    check_form(hits)
    assert [int(rank) for rank in re.findall(r"^(\d+) ", str(hits), re.MULTILINE)] == [3, 4, 5, 6]
    assert hits[0].lines()[0].name in hits.to_frame()["reasons"][0]
    assert "apples" in str(hits) and "<b>and" not in hits.to_html() and "\n" not in repr(hits)
    assert dict(zip(hits.to_frame()["rank"], hits.to_frame()["id"])) == dict(enumerate([hit.id for hit in hits], 3))


@pytest.mark.parametrize(("rerank", "unit", "name"), [(by_number, 1, "by_number"), (Pairs(), 10, "Pairs")])
def test_it_replaces_score_and_order_and_both_are_said(apples, rerank, unit, name):
    plain = apples.search("apple pear", 12)
    hits = apples.search("apple pear", 3, rerank=rerank)
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
def test_with_a_weight_it_is_a_part_like_the_others(apples, share):
    weights = {name: (1 - share) * value for name, value in apples.weights.items()}
    hits = apples.search("apple pear", 12, rerank=by_number, weights={**weights, "rerank": share})
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


def test_only_the_first_are_read_and_as_the_index_reads_them(apples):
    score = Mock(spec=[], side_effect=lambda query, texts: np.zeros(len(texts)))
    plain = apples.search("apple pear", 12)
    hits = apples.search("apple pear", 2, rerank=score, rerank_top=4)
    assert [hit.id for hit in hits] == [hit.id for hit in plain[:2]]  # equal scores keep the order
    score.assert_called_once_with("apple pear", [f"{hit.title}\n\n{hit.text}" for hit in plain[:4]])
    assert not hits.exact and apples.search("apple pear", 2, rerank=score).exact  # all that can be a hit was read
    assert len(apples.search("apple pear", 6, rerank=score, rerank_top=4)) == 6 and len(score.call_args[0][1]) == 6
    assert len(apples.search("zzz", rerank=score)) == 0 and score.call_count == 3


def test_a_part_may_have_the_name(index_of, fruit):
    index = index_of(TEXTS.values(), ids=TEXTS, models={"rerank": fruit})
    with pytest.raises(InputError, match="another name"):
        index.search("apple", rerank=by_number)
    assert index.search("apple", weights={"rerank": 1})


@pytest.mark.full
def test_a_cross_encoder_of_sentence_transformers(apples, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = saved_backbone(backbone_of("bert"), tmp_path / "cross")
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu", num_labels=1)
    hits = apples.search("apple pear", 12, rerank=model)
    check_sums(hits)
    pairs = [("apple pear", f"{hit.title}\n\n{hit.text}") for hit in hits]
    assert [hit.score for hit in hits] == pytest.approx(model.predict(pairs).tolist(), abs=1e-5)
    assert "CrossEncoder" in hits[0].explain().rows[0].name


def words_and_order(query, texts):
    """A score in which words act on each other: a pear counts twice behind an apple, and nothing else counts."""
    return [2.0 * ("apple and a pear" in text) + 0.5 * ("Title" in text) - 1 for text in texts]


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_score_of_a_reranker_is_measured_over_the_words_of_the_passage(apples, share):
    apples.delete([name for name in TEXTS if name not in ("d1", "d2")])
    weights = {**{part: (1 - share) * value for part, value in apples.weights.items()}, "rerank": share}
    for hit in apples.search("apple pear", 2, rerank=words_and_order, weights=weights if share < 1 else None):
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
