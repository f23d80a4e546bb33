"""Strings that are the same text have the same vectors, terms and explanations, in every family and in an index."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pellucid
from families import FAMILIES, dense_rows
from letters import LetterEmbedder
from pellucid.index.index import Index
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.unicode import canonicalize, graphemes, lowercase, normalize
from pellucid.text.words import Vocabulary
from unicode_cases import EQUIVALENT, SAME_WORDS, decomposed, equivalent_texts

OTHER = "the cat sat at the river, für Häuser 서울은"
ODD = settings(suppress_health_check=list(HealthCheck))


@cache
def of_words() -> StaticEmbedder:
    """A static model of the words of all cases, as they are spelled plainly."""
    texts = [*EQUIVALENT.values(), *(plain for _, plain in SAME_WORDS.values()), OTHER]
    words = dict.fromkeys(lowercase(word) for text in texts for word in normalize(text).text.replace("-", " ").split())
    vectors = np.random.default_rng(0).normal(size=(len(words), 16)).astype(np.float32)
    return StaticEmbedder(Vocabulary(list(words)), vectors)


def as_read(explanation: Any) -> Any:
    """Return an explanation with the words at its spans, in canonical form, in the place of the spans."""
    texts = explanation.text1, explanation.text2

    def words(spans: Any, number: int) -> list[str]:
        return [canonicalize(texts[number][start:end]) for start, end in spans]

    rows = [(r.name, r.contribution, words(r.spans1, 0), words(r.spans2, 1)) for r in explanation.rows]
    unknown = words(explanation.unknown1, 0), words(explanation.unknown2, 1)
    return explanation.score, rows, unknown, explanation.coverage


def check_spans(text: str, spans: Any) -> None:
    edges = {place for span in graphemes(text.encode("utf-8", "replace").decode()) for place in span}
    assert {place for span in spans for place in span} <= edges


def check_equivalent(model: Any, first: str, second: str) -> None:
    rows = dense_rows(model.encode([first, second, OTHER]))
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(
        dense_rows(model.encode_query([second]))[0], dense_rows(model.encode_query([first]))[0]
    )
    assert as_read(model.explain(first, OTHER)) == as_read(model.explain(second, OTHER))
    assert as_read(model.explain(OTHER, first)) == as_read(model.explain(OTHER, second))
    assert model.coverage(first) == model.coverage(second) and model.describe(first) == model.describe(second)
    for text in (first, second):
        why = model.explain(text, OTHER)
        check_spans(text, [span for row in why.rows for span in row.spans1] + list(why.unknown1))


@pytest.mark.parametrize("language", EQUIVALENT)
@pytest.mark.parametrize("name", FAMILIES)
def test_composed_and_decomposed_texts_are_one_in_every_family(model, name, language):
    check_equivalent(model, EQUIVALENT[language], decomposed(EQUIVALENT[language]))


@pytest.mark.parametrize("name", FAMILIES)
@ODD
@given(pair=equivalent_texts())
def test_equivalent_texts_are_one_in_every_family(model, name, pair):
    check_equivalent(model, *pair)


@ODD
@given(pair=equivalent_texts())
def test_equivalent_texts_are_one_in_a_static_model_and_in_a_family_of_ones_own(pair):
    check_equivalent(of_words(), *pair)
    check_equivalent(LetterEmbedder(), *pair)


@pytest.mark.needs("sentence_transformers")
@pytest.mark.full
@settings(ODD, max_examples=10)
@given(pair=equivalent_texts(), way=st.sampled_from(["words", "sentences"]))
def test_equivalent_texts_are_one_in_the_reasons_of_an_encoder(every_family, pair, way):
    encoder = every_family["anchors over a transformer"].encoder
    if encoder.is_sentence_transformer:
        check_equivalent(encoder.with_reasons(way), *pair)


@pytest.mark.parametrize("kind", SAME_WORDS)
def test_the_same_words_have_the_same_vector_and_their_places_in_the_text(kind):
    text, plain = SAME_WORDS[kind]
    model = StaticEmbedder(of_words().vocabulary, of_words().vectors)
    rows = model.encode([text, decomposed(text), plain])
    assert rows[2].any()
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[1], rows[2])
    why, other = model.explain(text, OTHER), model.explain(plain, OTHER)
    assert why.score == other.score and [row.contribution for row in why.rows] == [r.contribution for r in other.rows]
    assert [lowercase(row.name) for row in why.rows] == [lowercase(row.name) for row in other.rows]
    assert model.coverage(text) == 1 and not why.unknown1
    for row in why.rows:
        assert {lowercase(normalize(text[start:end]).text) for start, end in row.spans1} & {
            lowercase(row.parts[0]), lowercase(plain)
        }  # fmt: skip
    check_spans(text, [span for row in why.rows for span in row.spans1])


def searched(folder: Any, held: str, asked: str) -> Any:
    """Return the best hit of a text among two, its rows and what they stand for, and the words not found."""
    index = Index.create(folder, of_words(), language="none")
    index.add([held, "unrelated words"], ids=["held", "other"])
    hits = index.search(asked, top_k=1)
    why = hits[0].explain()
    rows = [(row.name, row.contribution) for row in why.rows]
    check_spans(asked, [span for row in why.rows for span in row.spans1])
    assert hits[0].reasons.text == held
    check_spans(held, hits[0].reasons.marks()[1].tolist())
    return (hits[0].id, hits[0].score, hits[0].parts), rows, hits


@pytest.mark.needs("Stemmer")
@pytest.mark.full
@pytest.mark.parametrize("kind", [*SAME_WORDS, *EQUIVALENT])
def test_a_search_finds_the_same_words_and_marks_them(tmp_path, kind):
    text, plain = SAME_WORDS.get(kind) or (decomposed(EQUIVALENT[kind]), EQUIVALENT[kind])
    expected, rows, _ = searched(tmp_path / "0", plain, plain)
    assert expected[2]["bm25"] > 0
    for number, (held, asked) in enumerate([(text, plain), (plain, text), (decomposed(text), text)], 1):
        hit, found, hits = searched(tmp_path / str(number), held, asked)
        assert hit == expected and not hits.unknown
        values = [sorted(value for _, value in several) for several in (found, rows)]
        assert values[0] == pytest.approx(values[1], abs=1e-6)
        if kind != "arabic forms":  # where one character is four words
            assert sorted(lowercase(name) for name, _ in found) == sorted(lowercase(name) for name, _ in rows)


@pytest.mark.parametrize("kind", [*SAME_WORDS, *EQUIVALENT])
def test_the_same_words_are_near_duplicates_that_differ_in_nothing_read(kind):
    text, plain = SAME_WORDS.get(kind) or (decomposed(EQUIVALENT[kind]), EQUIVALENT[kind])
    pairs = pellucid.duplicates([plain, text, "the cat"], of_words()).pairs
    assert [(pair.kept, pair.duplicate, pair.score) for pair in pairs] == [(0, 1, 1.0)]
    assert not pairs[0].only_kept and not pairs[0].only_duplicate and not pairs[0].numbers_differ


def test_equivalent_texts_without_a_known_word_are_equal_ones():
    found = pellucid.duplicates(["Žluťoučký kůň", decomposed("Žluťoučký kůň"), "kůň"], of_words())
    assert [(pair.kept, pair.duplicate) for pair in found.pairs] == [(0, 1)] and found.equal == 1
