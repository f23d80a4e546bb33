"""Sentences of an answer beside the sentences of passages that support them."""

import numpy as np
import pytest

import pellucid
from pellucid.analysis.citing import cite
from refusals import refused
from tables import check_views

PASSAGES = [
    "Aspirin is a drug.\r\nA trial found that aspirin reduces the risk of a heart attack in 2000 men.",
    "It was first approved in Sweden in 1998, after Bayer had asked for it. Cafe\u0301 visits do not matter.",
]


def test_supports_stand_where_they_say_and_are_explained():
    answer = "Aspirin lowers the risk of heart attacks. \r\nIt was approved in 1998. Bananas are yellow fruit."
    found = cite(answer, PASSAGES)
    assert [answer[c.start : c.end] for c in found] == [c.text for c in found] and len(found) == 3
    for support in (support for citation in found for support in citation.supports):
        assert PASSAGES[support.passage][support.start : support.end] == support.text and 0.1 <= support.probability
    assert [[c.supports[0].passage for c in found[:2]], found[2].supports] == [[0, 1], ()]
    assert [c.is_supported for c in found] == [True, True, False]
    (improbable,) = cite("Wine is a drink.", ["The wine of Spain.", "An old car."])
    assert 0.1 <= improbable.supports[0].probability < 0.25 and not improbable.is_supported
    assert str(found[2]) == "Bananas are yellow fruit. -> unsupported"
    first = found[0].supports[0]
    assert f'-> [passage 0, {first.start}:{first.end}] "A trial' in str(found[0])
    assert found[0].explain().score == pytest.approx(first.score, abs=1e-6)
    assert [row["text"] for row in found.to_dict()["citations"]] == [c.text for c in found]
    assert "unsupported" in check_views(found)


@pytest.mark.parametrize(
    ("sentence", "difference"),
    [
        ("It was first approved in Sweden in 1999, after Bayer had asked for it.", "numbers not in the source: 1999"),
        ("It was first approved in Norway in 1998, after Bayer had asked for it.", "names not in the source: Norway"),
        ("It was never approved in Sweden in 1998, after Bayer had asked for it.", 'only the answer says "never"'),
        ("Caf\u00e9 visits do matter.", 'only the source says "not"'),
        ("Hospital visits do not matter.", "names not in the source: Hospital"),
        (
            "It was first approved in Sweden in 1998 " + "and so on " * 60 + "in 1997.",
            "numbers not in the source: 1997",
        ),
    ],
)
def test_what_differs_is_no_support_without_a_word(sentence, difference):
    (citation,) = cite(sentence, PASSAGES)
    assert citation.supports[0].passage == 1 and not citation.is_supported
    assert all(support.differences for support in citation.supports) and difference in str(citation)


test_what_cannot_be_cited_is_refused = refused(
    (lambda: cite(None, []), "the answer is None"),
    (lambda: cite("a", "b"), "one string"),
    (lambda: cite("a", ["b", None]), "text 1 is NoneType"),
    (lambda: cite("a", [3]), "text 0 is int"),
    (lambda: cite("a" * 200_000, ["One. Two."] * 600), "sentences of the passages is"),
    (lambda: cite("Bananas are yellow fruit.", PASSAGES)[0].explain(), "number is 0"),
)


TEXTS = [
    "",
    " ",
    "机器学习很有用。天气很好。",
    "Das Haus ist rot. Es regnet.",
    "\u0915\u0940 \u0928\u0902\u0964 \ud800",
    *PASSAGES,
]


@pytest.mark.parametrize("model", ["static-en", "static-multi", "lexicon-en"])
def test_any_texts_and_models(model):
    model = pellucid.load(model)
    n_sentences = sum(len(cite(text, [])) for text in TEXTS)
    for answer in TEXTS:
        found = cite(answer, TEXTS, model, min_probability=0, top_k=100)
        for citation in found:  # its own sentence is among them, first or beside what it equals
            best = citation.supports[0]
            assert len(citation.supports) == min(100, n_sentences)
            assert np.isfinite([support.score for support in citation.supports]).all()
            assert best.text == citation.text or best.score == pytest.approx(1, abs=1e-5) or not best.score
        found.to_json().encode()
    twice = cite(PASSAGES[0], [PASSAGES[0]] * 2, model)[1].supports
    assert [(s.passage, s.text) for s in twice[:2]] == [(n, PASSAGES[0].split("\r\n")[1]) for n in (0, 1)]
    (russian,) = cite("Он был в городе.", ["Она жила в деревне."], model, min_probability=0)
    assert russian.supports[0].differences == ()  # small letters are no names
    german = cite("Das Haus ist nicht rot.", [TEXTS[3]], model, min_probability=0)[0].supports[0]
    assert german.probability is None and german.differences


def test_hits_are_cited(tmp_path):
    with pellucid.Index.create(tmp_path / "index") as index:
        index.add(PASSAGES)
        hits = index.search("aspirin")
        (citation,) = hits.cite("Aspirin reduces the risk of a heart attack.")
        support = citation.supports[0]
        assert hits[support.passage].text[support.start : support.end] == support.text and citation.is_supported
        assert index.search("zzqx").cite("Aspirin helps.")[0].supports == ()
