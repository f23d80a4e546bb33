"""A family added in one short class works with everything written against `Embedder`: the views, the command line."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import pellucid
from pellucid.base import Embedder
from pellucid.cli import app as cli
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError, ModelFolderError
from pellucid.explanation import Explanation, Row
from pellucid.pretrained import check_family, locate, saving
from pellucid.text import Vocabulary


class LetterEmbedder(Embedder):
    """A text is the counts of its letters a to z, at length 1: simple enough to check by eye."""

    family = "letters"

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        counts = np.zeros((len(texts), 26), np.float32)
        for row, text in zip(counts, texts):
            for letter, count in Counter(text.lower()).items():
                if "a" <= letter <= "z":
                    row[ord(letter) - ord("a")] = count
        lengths = np.linalg.norm(counts, axis=1, keepdims=True)
        return np.divide(counts, lengths, out=counts, where=lengths > 0)

    def get_embedding_dimension(self):
        return 26

    def explain(self, text1, text2=None, *, role1=None, role2=None):
        first = self.encode(text1).astype(np.float64)
        second = first if text2 is None else self.encode(text2).astype(np.float64)
        terms = [Row(chr(97 + i), (chr(97 + i),), c, 0.0) for i, c in enumerate((first * second).tolist()) if c]
        return Explanation.from_terms(self.family, (text1, text2), float(first @ second), terms)

    def save_pretrained(self, path):
        with saving(path, self.family, {"dimension": 26}) as folder:
            (folder / "letters.txt").write_text("a to z")

    @classmethod
    def from_pretrained(cls, path_or_id):
        check_family(locate(path_or_id), cls.family)
        assert (locate(path_or_id) / "letters.txt").read_text() == "a to z"
        return cls()


class SparseLetterEmbedder(LetterEmbedder):
    """The same as CSR rows, as the lexicon and key-token families give them."""

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        return scipy.sparse.csr_matrix(
            super()._encode(texts, role, batch_size=batch_size, show_progress_bar=show_progress_bar)
        )

    def explain(self, text1, text2=None, *, role1=None, role2=None):
        return LetterEmbedder().explain(text1, text2)


def letter_ensemble():
    """The ensemble of the two, whose scores are theirs."""
    return EnsembleEmbedder([LetterEmbedder(), SparseLetterEmbedder()], [0.25, 0.75])


FAMILIES = [LetterEmbedder, SparseLetterEmbedder, letter_ensemble]
each_family = pytest.mark.parametrize("family", FAMILIES)


@each_family
def test_similarity_is_the_cosine_of_letter_counts(family):
    model = family()
    scores = model.similarity(model.encode(["aab", ""]), model.encode(["ab", "zz"]))
    assert scores.dtype == np.float32
    assert scores == pytest.approx(np.array([[3 / np.sqrt(10), 0], [0, 0]]), abs=1e-6)


@each_family
def test_pairwise_is_the_diagonal_of_similarity(family):
    model = family()
    first, second = model.encode(["tea", "coffee", ""]), model.encode(["eat", "milk", "x"])
    expected = np.diag(model.similarity(first, second))
    assert model.similarity_pairwise(first, second) == pytest.approx(expected, abs=1e-6)
    assert expected[0] == pytest.approx(1.0)
    with pytest.raises(InputError, match="3 and 2"):
        model.similarity_pairwise(first, second[:2])


@each_family
def test_no_texts_give_no_rows_but_all_columns(family):
    assert family().encode([]).shape == (0, family().get_embedding_dimension())


@each_family
@pytest.mark.parametrize("bad", [None, 3, b"bytes", ["nested"]])
def test_an_item_that_is_no_string_is_named(family, bad):
    with pytest.raises(InputError, match="text 1 is"):
        family().encode(["fine", bad])


def test_queries_and_documents_are_encoded_alike_unless_a_family_says_otherwise():
    model = LetterEmbedder()
    assert (model.encode_query(["tea"]) == model.encode(["tea"])).all()
    assert (model.encode_document("tea") == model.encode("tea")).all()


@each_family
@settings(deadline=None)
@given(text1=st.text(max_size=30), text2=st.text(max_size=30))
def test_rows_add_up_to_the_similarity(family, text1, text2):
    model = family()
    explanation = model.explain(text1, text2)
    expected = model.similarity(model.encode([text1]), model.encode([text2]))[0, 0]
    assert explanation.score == pytest.approx(float(expected), abs=1e-6)
    assert sum(row.contribution for row in explanation.rows) == pytest.approx(explanation.score, abs=1e-6)


def test_describe_names_the_strongest_first():
    assert LetterEmbedder().describe("aaab", top_k=1) == "mostly about: a (90%)"
    assert LetterEmbedder().describe("123") == "nothing this model knows"


def test_every_view_works_without_knowing_the_family(tmp_path):
    explanation = LetterEmbedder().explain("aab", "ab")
    assert Explanation.from_dict(json.loads(explanation.to_json())) == explanation
    assert "a" in str(explanation) and "0.9487" in str(explanation)
    assert explanation.to_frame().contribution.sum() == pytest.approx(explanation.score)
    assert "0.9487" in explanation.to_html()
    explanation.plot().savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


def test_a_difference_of_explanations_is_one():
    model = LetterEmbedder()
    difference = model.explain("ab", "a") - model.explain("ab", "bz")
    assert difference.score == pytest.approx(0.5**0.5 - 0.5)
    assert sum(row.contribution for row in difference.rows) == pytest.approx(difference.score)


def test_load_opens_the_family_by_its_one_line_in_families(tmp_path, monkeypatch):
    LetterEmbedder().save_pretrained(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="letters"):
        pellucid.load(tmp_path / "model")
    monkeypatch.setitem(pellucid.FAMILIES, "letters", "letters.LetterEmbedder")
    monkeypatch.setitem(sys.modules, "pellucid.letters", sys.modules[__name__])
    assert isinstance(pellucid.load(tmp_path / "model"), LetterEmbedder)
    assert isinstance(pellucid.load(str(tmp_path / "model")), LetterEmbedder)


@pytest.fixture
def run(monkeypatch):
    """Run the command line on a model of the new family."""

    def run_on(model: Embedder, *arguments: str) -> str:
        monkeypatch.setattr(cli, "open_model", lambda name: model)
        result = CliRunner().invoke(cli.app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run_on


def test_every_command_works_for_the_family(run):
    assert run(LetterEmbedder(), "similarity", "aab", "ab") == "0.9487\n"
    assert run(LetterEmbedder(), "describe", "aaab", "--top", "1") == "mostly about: a (90%)\n"
    assert json.loads(run(LetterEmbedder(), "explain", "aab", "ab", "--json"))["family"] == "letters"


def test_sparse_embeddings_are_written_as_dimensions_and_values(run, tmp_path: Path):
    texts = tmp_path / "texts.txt"
    texts.write_text("aab\n\nz\n")
    lines = [json.loads(line) for line in run(SparseLetterEmbedder(), "encode", str(texts)).splitlines()]
    assert lines[0]["embedding"]["dimensions"] == [0, 1]
    assert lines[0]["embedding"]["values"] == pytest.approx([2 / 5**0.5, 1 / 5**0.5])
    assert lines[1] == {"text": "", "embedding": {"dimensions": [], "values": []}}
    run(SparseLetterEmbedder(), "encode", str(texts), "-o", str(tmp_path / "rows.parquet"))
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert [row["embedding"]["dimensions"] for row in rows] == [[0, 1], [], [25]]


def test_sparse_embeddings_are_refused_for_npy(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(cli, "open_model", lambda name: SparseLetterEmbedder())
    result = CliRunner().invoke(cli.app, ["encode", "-", "-o", str(tmp_path / "rows.npy")], input="a\n")
    assert result.exit_code == 1
    assert "sparse" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def lexicon():
    pytest.importorskip("transformers")
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder
    from pellucid.transformer.backbone import prepare
    from tiny_models import tiny_model, word_piece

    tokenizer = word_piece()
    backbone = prepare(tiny_model("bert", len(tokenizer)), tokenizer, attention="bidirectional", device="cpu")
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 20))


@pytest.fixture(scope="module")
def key_tokens():
    """A family of the library that needs torch, on a transformer of two layers."""
    pytest.importorskip("transformers")
    from pellucid.keytokens.states import KeyTokenSettings
    from pellucid.transformer.backbone import prepare
    from tiny_models import sentence_piece, tiny_model

    tokenizer = sentence_piece()
    backbone = prepare(tiny_model("llama", len(tokenizer)), tokenizer, attention="causal", device="cpu")
    return pellucid.KeyTokenEmbedder(backbone, KeyTokenSettings(top_k=30))


@pytest.fixture(scope="module")
def families(key_tokens, lexicon):
    """A model of every family, among them an ensemble of the others."""
    from pellucid.research.baselines import DenseEmbedder

    rng = np.random.default_rng(3)
    words = ["a", "man", "Man", "on", "beach", "boy", "the", "new\u2581york"]
    static = pellucid.StaticEmbedder(Vocabulary(words), rng.normal(size=(len(words), 4)).astype(np.float32))
    anchors = pellucid.AnchorEmbedder(static, ["a man", "the beach", "= boy"])
    dense = DenseEmbedder(lexicon.backbone)
    parts = {"static": static, "again": static, "anchors": anchors, "letters": LetterEmbedder()}
    ensemble = EnsembleEmbedder(parts, [0.4, 0.3, 0.2, 0.1])
    mixed = EnsembleEmbedder([ensemble, key_tokens, lambda texts: np.array([[len(text) + 1.0, 1.0] for text in texts])])
    exact = {"static": static, "anchors": anchors, "lexicon": lexicon, "dense": dense, "ensemble": ensemble}
    return exact | {"keytokens": key_tokens, "mixed": mixed}


ANY_TEXT = st.text(max_size=12) | (
    st.lists(
        st.sampled_from(["a", "A", "man", "MAN", "Man", "new york", "New York", "zebra", "beach", "!"]), max_size=6
    )
).map(" ".join)


@pytest.mark.filterwarnings("ignore:.*logit above 0")
@pytest.mark.parametrize("family", ["static", "anchors", "lexicon", "dense", "ensemble", "keytokens", "mixed"])
@settings(max_examples=25, deadline=None)
@given(texts=st.tuples(ANY_TEXT, ANY_TEXT, ANY_TEXT))
def test_rows_and_remainder_are_the_score_for_every_family(families, family, texts):
    model = families[family]
    first, second, third = texts
    why, other = model.explain(first, second), model.explain(first, third)
    assert why.exact == (family not in ("keytokens", "mixed"))
    for each in (model.explain(first), why, other, why - other, other - why):
        size = 1 + math.fsum(abs(row.contribution) for row in each.rows)
        assert math.fsum([*(row.contribution for row in each.rows), each.remainder]) == pytest.approx(
            each.score, abs=1e-15 * size
        )
        assert not each.exact or abs(each.remainder) <= 1e-6 * size
        assert len({row.key for row in each.rows}) == len(each.rows)
        assert Explanation.from_dict(json.loads(each.to_json())) == each
        shares = math.fsum(row.share for row in each.rows)
        assert abs(each.score) <= 1e-6 or shares * each.score == pytest.approx(each.score - each.remainder, abs=1e-12)
    assert [known.share for known in (why - other).coverage] == pytest.approx(model.coverage(list(texts)).tolist())
    terms = {row.key: row.contribution for row in why.rows}
    for row in other.rows:
        terms[row.key] = terms.get(row.key, 0.0) - row.contribution
    assert {row.key: row.contribution for row in (why - other).rows} == pytest.approx(terms)


def test_coverage_is_that_of_the_encoder_or_of_the_part_that_knows_least(families):
    texts = ["a man zebra quagga", "", "the boy"]
    assert families["static"].coverage(texts).tolist() == families["anchors"].coverage(texts).tolist() == [0.5, 1, 1]
    assert families["ensemble"].coverage(texts).tolist() == families["mixed"].coverage(texts).tolist() == [0.5, 1, 1]
    why = families["anchors"].explain(texts[0], texts[2])
    assert why.unknown_words() == ["zebra", "quagga"] and "not in the vocabulary: zebra, quagga" in str(why)
    assert families["lexicon"].coverage(texts).tolist() == [1, 1, 1]
    assert LetterEmbedder().coverage("any text") == 1  # a family that says nothing of it
    assert LetterEmbedder().explain("any text").coverage == ()
    assert families["static"].describe("a zebra quagga").endswith(" (only 1 of 3 words known)")
    assert families["anchors"].describe("a zebra quagga").endswith(" (only 1 of 3 words known)")


@pytest.mark.parametrize("family", ["lexicon", "dense", "keytokens"])
@pytest.mark.filterwarnings("ignore:.*longer than")
@pytest.mark.filterwarnings("ignore:.*logit above 0")
def test_a_transformer_knows_what_it_reads(families, family):
    text = "a man on the beach " * 40
    (share,) = families[family].coverage([text])
    why = families[family].explain(text)
    assert 0 < share < 0.5 and why.coverage[0].share == pytest.approx(share)
    assert why.coverage[0].total == 200 and len(why.unknown1) == 200 - why.coverage[0].known
    assert "of 200 words of the text known" in str(why)


def test_a_sentence_transformer_reads_to_its_maximum_length(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from tiny_models import tiny_model, word_piece

    tokenizer = word_piece()
    tiny_model("bert", len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    modules = sentence_transformers.sentence_transformer.modules
    transformer = modules.Transformer(str(tmp_path), max_seq_length=12)
    pooling = modules.Pooling(32)
    encoder = sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu")
    model = pellucid.AnchorEmbedder(encoder, ["a man", "the beach"])
    assert model.coverage(["a man on the beach", "a man " * 20]).tolist() == pytest.approx([1, 10 / 40])
    assert "Only 10 of 40 words of text 1 known" in str(model.explain("a man " * 20, "a man"))


def test_key_tokens_keep_the_contract(key_tokens, tmp_path):
    texts = ["a man on the beach", "", "the sick boy"]
    rows = key_tokens.encode(texts)
    assert rows.shape == (3, key_tokens.get_embedding_dimension()) == (3, len(key_tokens.dimensions))
    assert key_tokens.similarity(rows, rows).diagonal() == pytest.approx([1, 0, 1], abs=1e-5)
    assert np.abs(key_tokens.encode_query(texts) - rows).max() == 0
    blocks = list(key_tokens.encode_blocks(iter(texts), block_size=2))
    assert [block.shape[0] for block in blocks] == [2, 1]
    with pytest.raises(InputError, match="text 1 is"):
        key_tokens.encode(["fine", 3])
    key_tokens.without(10).save_pretrained(tmp_path / "model")
    assert pellucid.load(tmp_path / "model").get_embedding_dimension() == rows.shape[1] - 1


def test_every_command_works_for_key_tokens(run, key_tokens):
    first, second = "a man on the beach", "the sick boy"
    explanation = json.loads(run(key_tokens, "explain", first, second, "--json"))
    assert float(run(key_tokens, "similarity", first, second)) == pytest.approx(explanation["score"], abs=1e-4)
    total = sum(row["contribution"] for row in explanation["rows"]) + explanation["remainder"]
    assert total == pytest.approx(explanation["score"], abs=1e-6) and explanation["exact"] is False
    assert run(key_tokens, "describe", first).startswith("mostly about: ")
