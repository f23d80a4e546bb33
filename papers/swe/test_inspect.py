"""What is inside a static model: components, lengths, languages; against sklearn, scipy and by hand."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import pellucid
from papers.__main__ import app
from papers.swe.components import principal_components
from papers.swe.norms import coarse, norms_by_rank, norms_by_tag, read_tagged
from papers.swe.separation import language_separation
from pellucid.errors import CorpusError, InputError
from pellucid.persistence.folder import bundled_models
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from tables import check_views, random_table


def model_of(words, vectors):
    return StaticEmbedder(Vocabulary(list(words)), np.array(vectors, np.float32))


@pytest.fixture
def cross():
    """Words far out along x, a phrase and a word along y, and one in the middle."""
    words = ["the", "east", "far▁east", "west", "north", "south"]
    return model_of(words, [[1, 1], [5, 1], [9, 1], [-11, 1], [1, 4], [1, -2]])


@pytest.fixture
def languages():
    """Sixty words: those of each language have an offset of their own along one axis; the rest is the same noise."""
    rng = np.random.default_rng(0)
    meanings = rng.normal(size=(30, 8))
    apart = np.zeros(8)
    apart[3] = 6
    words = [f"{name}{n}" for name in ("en", "de") for n in range(30)]
    return model_of(words, np.vstack([meanings + apart, meanings - apart]))


def lists(model):
    return {name: [word for word in model.vocabulary.words if word.startswith(name)] for name in ("en", "de")}


def test_components_of_words_by_hand(cross):
    found = principal_components(cross, components=[1, 2], top_k=2)
    first, second = found.components
    # The mean is (1, 1): x has squares 16 + 64 + 144 = 224 around it, y has 9 + 9 = 18.
    assert first.share == pytest.approx(224 / 242) and first.cumulative == pytest.approx(224 / 242)
    assert second.share == pytest.approx(18 / 242) and second.cumulative == pytest.approx(1)
    assert [w.word for w in first.largest] == ["far east", "east"]  # the mean lies to the east
    assert [w.word for w in first.smallest] == ["west", "the"]
    values = {w.word: w.value for w in (*first.largest, *first.smallest)}
    assert values == pytest.approx({"far east": 8, "east": 4, "west": -12, "the": 0}, abs=1e-5)
    assert {second.largest[0].word, second.smallest[0].word} == {"north", "south"}
    assert found.vectors == found.words == 6 and found.of == "words"
    only = principal_components(cross, components=[1], words=4)
    assert only.vectors == 4 and "south" not in str(only)


def test_components_of_sentences_are_those_of_sklearns_pca_of_their_means():
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(1)
    words = [f"w{n}" for n in range(40)]
    model = model_of(words, rng.normal(size=(40, 5)) * [5, 4, 3, 2, 1])
    rows = rng.integers(0, 40, (70, 4))
    texts = [" ".join(words[n] for n in row) for row in rows] + ["unknown words alone", ""]
    found = principal_components(model, iter(texts), components=[2], top_k=3)
    reference = PCA(5).fit(np.array([model.vectors[row].mean(axis=0) for row in rows], np.float64))
    assert found.shares == pytest.approx(reference.explained_variance_ratio_, abs=1e-5)
    assert found.vectors == 70 and found.blank == 2 and found.of == "sentences"
    values = reference.transform(model.vectors.astype(np.float64))[:, 1]
    order = [words[n] for n in np.argsort(values)]
    ends = [[w.word for w in end] for end in (found.components[0].smallest, found.components[0].largest)]
    assert sorted(ends) == sorted([order[:3], order[::-1][:3]])
    biggest = max(abs(w.value) for w in (*found.components[0].largest, *found.components[0].smallest))
    assert biggest == pytest.approx(np.abs(values).max(), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"components": [3]}, "component 3 does not exist; this model has components 1 to 2"),
     ({"components": [0]}, "component 0"), ({"top_k": 0}, "top_k is 0"), ({"words": 1}, "words 1"),
     ({"texts": ["xyzzy", ""]}, "0 of 2 texts hold a word"), ({"texts": "the east"}, "iterable of texts")],
)  # fmt: skip
def test_components_that_cannot_be(cross, options, said):
    with pytest.raises(InputError, match=said):
        principal_components(cross, **options)


def test_only_static_models_have_words_with_vectors():
    for ask in (
        principal_components,
        norms_by_rank,
        lambda m: norms_by_tag(m, []),
        lambda m: language_separation(m, {}),
    ):
        with pytest.raises(InputError, match=r"needs a static model.*TableEmbedder"):
            ask(random_table())


def test_lengths_by_part_of_speech_by_hand():
    words = ["the", "a", "cat", "dog", "Paris", "run", "notice"]
    model = model_of(words, [[1, 0], [0, 3], [3, 4], [0, 7], [6, 8], [4, 0], [0, 5]])
    text = "The/AT the/AT a/AT cat/NN dog/NN-HL Paris/NP paris/NP notice/NN notice/VB notice/NN run/VB ./. zebra/NN"
    tagged = [tuple(piece.split("/")) for piece in text.split()]
    found = norms_by_tag(model, tagged, tagset="brown", least=1)
    means = {tag.tag: (tag.words, tag.mean, tag.relative) for tag in found.tags}
    assert means == {
        "Proper Noun": (1, 10.0, 1.0),
        "Noun": (3, pytest.approx(17 / 3), pytest.approx(17 / 30)),  # cat 5, dog 7, notice 5
        "Verb": (1, 4.0, 0.4),
        "Article": (2, 2.0, 0.2),
    }
    assert [tag.tag for tag in found.tags] == ["Proper Noun", "Noun", "Verb", "Article"]
    noun = found.tags[1]
    assert noun.deviation == pytest.approx(np.std([5, 7, 5])) and noun.examples == ("notice", "cat", "dog")
    assert found.tokens == 12 and found.unknown == pytest.approx(2 / 12)  # "paris" and "zebra"
    as_is = norms_by_tag(model, tagged, least=1)
    assert "NN-HL" in {tag.tag for tag in as_is.tags}
    most = norms_by_tag(model, tagged, tagset="brown", words=2, least=1)
    assert most.words == 2 and {t.tag for t in most.tags} == {"Noun", "Article"}  # notice three times, the twice
    rare = norms_by_tag(model, tagged, tagset="brown", least=2)
    assert {t.tag for t in rare.tags} == {"Noun", "Article"} and rare.left_out == 2


def test_lengths_that_cannot_be_compared():
    model = model_of(["cat"], [[1, 0]])
    with pytest.raises(InputError, match="none of 1 tagged words is in the vocabulary"):
        norms_by_tag(model, [("chat", "NC")])
    with pytest.raises(InputError, match="no part of speech has 5 known words, the largest 1"):
        norms_by_tag(model, [("cat", "NN")])
    with pytest.raises(InputError, match="tag set 'claws' is unknown"):
        norms_by_tag(model, [("cat", "NN")], tagset="claws")
    with pytest.raises(InputError, match="1 words are left to compare"):
        norms_by_rank(model)
    with pytest.raises(InputError, match="0 words are left"):
        norms_by_rank(model, ["dog"])


def test_lengths_by_rank_are_scipys_correlation():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(2)
    model = model_of([f"w{n}" for n in range(200)], rng.normal(size=(200, 3)) * np.linspace(1, 4, 200)[:, None])
    norms = np.linalg.norm(model.vectors, axis=1)
    found = norms_by_rank(model)
    assert found.correlation == pytest.approx(spearmanr(norms, np.arange(200)).statistic) and found.correlation > 0.5
    assert [(b.first, b.last) for b in found.bands] == [(1, 10), (11, 100), (101, 200)]
    assert [b.mean for b in found.bands] == pytest.approx([norms[:10].mean(), norms[10:100].mean(), norms[100:].mean()])
    assert found.bands[-1].relative == 1 and found.bands[1].examples[0] == "w10"
    assert norms_by_rank(model, words=50).words == 50
    # by counts in texts: w5 three times, w9 and w7 twice (equal ranks), w8 once
    texts = ["w5 w5 w9 w7", "w9 w7 w5 w8 unknown"]
    counted = norms_by_rank(model, texts)
    wanted = spearmanr(norms[[5, 7, 9, 8]], [1, 2.5, 2.5, 4]).statistic
    assert counted.words == 4 and counted.ranked_by == "texts" and counted.correlation == pytest.approx(wanted)
    assert norms_by_rank(model_of("abc", np.eye(3))).correlation is None


def test_the_bundled_model_weighs_frequent_words_less():
    if "static-en" not in bundled_models():
        pytest.skip("src/pellucid/bundled/static-en is not in this checkout; its recipe makes it")
    model = pellucid.load("static-en")
    found = norms_by_rank(model)
    assert found.correlation > 0.4 and [b.relative for b in found.bands] == sorted(b.relative for b in found.bands)
    article, noun = "the a an".split(), "mortgage cat physics museum winter guitar".split()
    tagged = [(word, "AT") for word in article] + [(word, "NN") for word in noun]
    assert [tag.tag for tag in norms_by_tag(model, tagged, least=3).tags] == ["NN", "AT"]


def test_the_first_component_tells_the_language_and_leaving_it_out_mixes_them(languages):
    from sklearn.metrics import silhouette_score

    words = lists(languages)
    found = language_separation(languages, {**words, "de": [*words["de"], "en3", "xyzzy"]}, drop=2, metric="euclidean")
    assert found.shared == 1 and found.blank == 1 and found.counts == (29, 30)  # "en3" is in both lists
    whole, first, second = found.components
    assert first.between > 0.95 and second.between < 0.05 and 0.7 < first.share < 1
    kept = [n for n in range(60) if n != 3]
    labels = [n >= 30 for n in kept]
    assert whole.silhouette == pytest.approx(silhouette_score(languages.vectors[kept], labels), abs=1e-5)
    assert whole.silhouette > 0.5 and first.silhouette < 0.05
    centred = languages.vectors[kept].astype(np.float64) - languages.vectors[kept].mean(axis=0)
    means = [centred[np.array(labels) == side].mean(axis=0) for side in (False, True)]
    between = 29 * (means[0] @ means[0]) + 30 * (means[1] @ means[1])
    assert whole.between == pytest.approx(between / np.square(centred).sum(), rel=1e-4)


def test_a_sample_is_drawn_by_the_seed_and_sentences_do_too(languages):
    few = language_separation(languages, lists(languages), drop=1, sample=10)
    assert few.counts == (10, 10)
    assert few == language_separation(languages, lists(languages), drop=1, sample=10)
    assert few != language_separation(languages, lists(languages), drop=1, sample=10, seed=1)
    texts = {name: [" ".join(words[n : n + 3]) for n in range(20)] for name, words in lists(languages).items()}
    assert language_separation(languages, texts, drop=1).components[1].between > 0.95


def test_languages_that_cannot_be_compared(languages):
    words = lists(languages)
    for options, said in (
        ({"languages": {"en": words["en"]}}, "1 language given"),
        ({"drop": 7}, "drop is 7; this model allows 1 to 6"),
        ({"metric": "l1"}, "metric 'l1'"),
        ({"languages": {"en": words["en"], "de": words["en"]}}, "'en' has 0 items of its own"),
        ({"languages": {"en": words["en"], "fr": ["chat", "chien", "loup"]}}, "'fr' has 0 items .* of 3"),
    ):
        with pytest.raises(InputError, match=said):
            language_separation(languages, **{"languages": words, "drop": 2, **options})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\n\n\tThe/at dog/nn-tl\n", [("The", "at"), ("dog", "nn-tl")]),  # as NLTK's data have the Brown corpus
        ("The/at dog/nn-tl\n\n1/2/cd ,/,\n", [("The", "at"), ("dog", "nn-tl"), ("1/2", "cd"), (",", ",")]),
        ("the DT\n1/2 CD\n\ncat NN\n", [("the", "DT"), ("1/2", "CD"), ("cat", "NN")]),
        ("new york\tNNP\tB-LOC\ncat\tNN\n", [("new york", "NNP"), ("cat", "NN")]),
        (
            "# text = it's/its\n1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_\n",
            [("It", "PRON")],
        ),
    ],
)
def test_tagged_files_in_each_form(tmp_path, text, wanted):
    (tmp_path / "ca01").write_text(text)
    assert list(read_tagged(tmp_path / "ca01")) == wanted
    (tmp_path / "ca02.gz").write_bytes(gzip.compress(text.encode()))
    assert list(read_tagged(tmp_path / "ca02.gz", tmp_path / "ca01")) == wanted * 2


_PIECES = st.text("abc/-'é", min_size=1), st.sampled_from(["at", "nn-tl", "``", "PP$"])


@given(st.lists(st.lists(st.tuples(*_PIECES), min_size=1)))
def test_what_is_written_with_slashes_or_tabs_is_read_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("tagged") / "brown"
    wanted = [pair for line in lines for pair in line]
    path.write_text("\n".join(" ".join(f"{word}/{tag}" for word, tag in line) for line in lines), encoding="utf-8")
    assert list(read_tagged(path)) == wanted
    path.write_text("".join(f"{word}\t{tag}\n" for word, tag in wanted), encoding="utf-8")
    assert list(read_tagged(path)) == wanted


@pytest.mark.parametrize(
    ("text", "line"),
    [("a/b c/d\nthe/at dog\n", 2), ("the DT\ncat\n", 2), ("cat\t\n", 1), ("a plain line\n", 1), ("the/ dog/nn\n", 1)],
)
def test_a_word_without_a_tag_is_named_by_its_line(tmp_path, text, line):
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(CorpusError, match=rf"t.txt, line {line}: .*without a tag"):
        list(read_tagged(tmp_path / "t.txt"))


def test_tag_sets_bring_tags_to_the_papers_classes():
    brown = coarse("brown")
    tags = "NP$ nps nn nr at in od ppss dt wrb wdt bedz".split()
    wanted = ["Proper Noun"] * 2 + ["Noun"] * 2 + ["Article", "Preposition", "Numeral", "Pronoun", "Determiner"]
    assert [brown(tag) for tag in tags] == [*wanted, "Adverb", "Determiner", "Verb"]
    assert [brown(tag) for tag in ("``", "--", "nil", "")] == [""] * 4
    penn = coarse("penn")
    assert [penn(t) for t in ("NNPS", "NNS", "PRP$", "PDT", "CD", "-LRB-")] == [
        "Proper Noun", "Noun", "Pronoun", "Determiner", "Numeral", ""]  # fmt: skip


def reports(cross, languages):
    tags = norms_by_tag(cross, [("east", "N"), ("west", "N"), ("the", "<b>$x$")], least=1)
    return [
        principal_components(cross, components=[1, 2]),
        norms_by_rank(cross),
        tags,
        language_separation(languages, lists(languages), drop=2),
    ]


@pytest.mark.full
def test_views(cross, languages):
    said = ["far east", "the", "<b>$x$", "silhouette"]
    for report, word in zip(reports(cross, languages), said, strict=True):
        assert word in check_views(report)
        assert len(report.to_frame()) == len(report._records()) > 0


def test_the_command(cross, languages, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cross.save_pretrained("cross")
    languages.save_pretrained("two")
    for name, words in lists(languages).items():
        (tmp_path / f"{name}.txt").write_text("\n".join(words))
    (tmp_path / "ca01").write_text("the/at east/nn\n")
    (tmp_path / "texts.txt").write_text("the east\nthe west\nnorth\n")

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return result

    assert "far east" in run("components", "cross", "--component", "1").stdout
    found = json.loads(run("components", "cross", "texts.txt", "--component", "2", "--top-k", "1", "--json").stdout)
    assert found["of"] == "sentences" and [c["number"] for c in found["components"]] == [2]
    assert json.loads(run("ranks", "cross", "texts.txt", "--json").stdout)["words"] == 4
    assert "5 known words" in run("tags", "cross", "ca01", "--tagset", "brown", code=1).stderr
    apart = ("languages", "two", "en=en.txt", "de=de.txt", "--drop", "2")
    assert json.loads(run(*apart, "--json").stdout)["drop"] == 2
    assert "NAME=FILE" in run("languages", "two", "en.txt", code=1).stderr
    assert "given twice" in run("languages", "two", "en=en.txt", "en=de.txt", code=1).stderr
    for wrong in (["norms", "cross"], ["tags", "cross"], ["ranks", "cross", "texts.txt", "texts.txt"]):
        run(*wrong, code=2)
