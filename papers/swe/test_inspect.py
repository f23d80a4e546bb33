"""What is inside a static model: lengths and languages; against sklearn, scipy and by hand."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from papers.swe.norms import brown_class, norms_by_rank, norms_by_tag, read_tagged
from papers.swe.separation import silhouette
from pellucid.errors import CorpusError, InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary


def model_of(words, vectors):
    return StaticEmbedder(Vocabulary(list(words)), np.array(vectors, np.float32))


def test_lengths_by_part_of_speech_by_hand():
    words = ["the", "a", "cat", "dog", "Paris", "run", "notice"]
    model = model_of(words, [[1, 0], [0, 3], [3, 4], [0, 7], [6, 8], [4, 0], [0, 5]])
    text = "The/AT the/AT a/AT cat/NN dog/NN-HL Paris/NP paris/NP notice/NN notice/VB notice/NN run/VB ./. zebra/NN"
    tagged = [tuple(piece.split("/")) for piece in text.split()]
    found = norms_by_tag(model, tagged, brown=True, least=1)
    assert found == pytest.approx(
        {"Proper Noun": 10, "Noun": 17 / 3, "Verb": 4, "Article": 2}
    )  # cat 5, dog 7, notice 5
    assert "NN-HL" in norms_by_tag(model, tagged, least=1)
    most = norms_by_tag(model, tagged, brown=True, words=2, least=1)
    assert most == {"Noun": 5, "Article": 1}  # notice three times, the twice
    assert set(norms_by_tag(model, tagged, brown=True, least=2)) == {"Noun", "Article"}


def test_lengths_by_rank_are_scipys_correlation():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(2)
    model = model_of([f"w{n}" for n in range(200)], rng.normal(size=(200, 3)) * np.linspace(1, 4, 200)[:, None])
    norms = np.linalg.norm(model.vectors, axis=1)
    assert (
        norms_by_rank(model) == pytest.approx(spearmanr(norms, np.arange(200)).statistic) and norms_by_rank(model) > 0.5
    )
    assert norms_by_rank(model, words=50) == pytest.approx(spearmanr(norms[:50], np.arange(50)).statistic)
    # by counts in texts: w5 three times, w9 and w7 twice (equal ranks), w8 once
    wanted = spearmanr(norms[[5, 7, 9, 8]], [1, 2.5, 2.5, 4]).statistic
    assert norms_by_rank(model, ["w5 w5 w9 w7", "w9 w7 w5 w8 unknown"]) == pytest.approx(wanted)


def test_the_bundled_model_weighs_frequent_words_less():
    model = pellucid.load("static-en")
    assert norms_by_rank(model) > 0.4
    article, noun = "the a an".split(), "mortgage cat physics museum winter guitar".split()
    found = norms_by_tag(model, [*((word, "AT") for word in article), *((word, "NN") for word in noun)], least=3)
    assert found["NN"] > found["AT"]


def test_languages_apart_have_sklearns_silhouette():
    from sklearn.metrics import silhouette_score

    rng, apart = np.random.default_rng(0), np.array([0, 0, 0, 6, 0, 0, 0, 0])
    lists = {name: [f"{name}{n}" for n in range(30)] for name in ("en", "de")}
    meanings = rng.normal(size=(30, 8))
    model = model_of([*lists["en"], *lists["de"]], np.vstack([meanings + apart, meanings - apart]))
    found = silhouette(model, {**lists, "de": [*lists["de"], "en3", "xyzzy"]})  # "en3" is in both lists
    kept = [n for n in range(60) if n != 3]
    expected = silhouette_score(model.vectors[kept], [n >= 30 for n in kept], metric="cosine")
    assert found == pytest.approx(expected, abs=1e-5) and found > 0.5
    assert silhouette(model, lists, sample=10) == silhouette(model, lists, sample=10) != found
    with pytest.raises(InputError, match=r"'fr' has 0 items .* of 2"):
        silhouette(model, {**lists, "fr": ["chat", "chien"]})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\n\n\tThe/at dog/nn-tl\n", [("The", "at"), ("dog", "nn-tl")]),  # as NLTK's data have the Brown corpus
        ("The/at dog/nn-tl\n\n1/2/cd ,/,\n", [("The", "at"), ("dog", "nn-tl"), ("1/2", "cd"), (",", ",")]),
        (
            "# text = it's/its\n1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_\n",
            [("It", "PRON")],
        ),
    ],
)
def test_tagged_files_in_each_form(tmp_path, text, wanted):
    (tmp_path / "ca01").write_text(text)
    (tmp_path / "ca02.gz").write_bytes(gzip.compress(text.encode()))
    assert list(read_tagged(tmp_path / "ca02.gz", tmp_path / "ca01")) == wanted * 2


@given(st.lists(st.tuples(st.text("abc/-'é", min_size=1), st.sampled_from(["at", "nn-tl", "``", "PP$"])), min_size=1))
def test_what_is_written_with_slashes_is_read_back(tmp_path_factory, wanted):
    path = tmp_path_factory.mktemp("tagged") / "brown"
    path.write_text(" ".join(f"{word}/{tag}" for word, tag in wanted), encoding="utf-8")
    assert list(read_tagged(path)) == wanted


@pytest.mark.parametrize(("text", "line"), [("a/b c/d\nthe/at dog\n", 2), ("the DT\n", 1), ("the/ dog/nn\n", 1)])
def test_a_word_without_a_tag_is_named_by_its_line(tmp_path, text, line):
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(CorpusError, match=rf"t.txt, line {line}: .*without a tag"):
        list(read_tagged(tmp_path / "t.txt"))


def test_tags_are_brought_to_the_papers_classes():
    tags = "NP$ nps nn nr at in od ppss dt wrb wdt bedz".split()
    wanted = ["Proper Noun"] * 2 + ["Noun"] * 2 + ["Article", "Preposition", "Numeral", "Pronoun", "Determiner"]
    assert [brown_class(tag) for tag in tags] == [*wanted, "Adverb", "Determiner", "Verb"]
    assert [brown_class(tag) for tag in ("``", "--", "nil", "")] == [""] * 4
