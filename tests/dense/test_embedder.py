"""Encoders of every kind as models, and the refusal of what they may do wrong; the anchor-file reader."""

import json
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from families import count_animals
from pellucid import load
from pellucid.anchors.embedder import AnchorEmbedder, read_anchors
from pellucid.dense.embedder import FUNCTION, EncoderEmbedder, opened_with
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import CorpusError, InputError, ModelFolderError
from pellucid.persistence.folder import is_stock
from pellucid.static.embedder import StaticEmbedder
from refusals import refused
from tiny_models import tiny_transformer


def encode_with(encoder, texts, **options):
    return unit_vectors(load(encoder), texts, **options)


def test_rows_have_length_1_and_a_text_of_nothing_is_zero():
    rows = encode_with(count_animals, ["cat cat cat dog dog dog dog", "cow", "car"])
    np.testing.assert_allclose(rows, np.float32([[0.6, 0.8, 0], [0, 0, 1], [0, 0, 0]]), atol=1e-7, strict=True)


@given(st.floats(1e-36, 1e36))
def test_the_lengths_an_encoder_gives_do_not_matter(length):
    rows = encode_with(lambda texts: count_animals(texts).astype(np.float32) * np.float32(length), ["cat dog", "cow"])
    np.testing.assert_allclose(rows, [[0.5**0.5, 0.5**0.5, 0], [0, 0, 1]], rtol=1e-5)


def test_what_an_encoder_returns_may_have_any_array_type(fruit):
    expected = encode_with(count_animals, ["cat dog", "cow"])
    for form in (lambda a: a.tolist(), scipy.sparse.csr_matrix, lambda a: a.astype(np.float16), lambda a: list(a)):
        np.testing.assert_allclose(
            encode_with(lambda t, form=form: form(count_animals(t)), ["cat dog", "cow"]), expected
        )
    np.testing.assert_array_equal(encode_with(fruit, ["apple", "car"]), fruit.encode(["apple", "car"]))
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[3.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_allclose(encode_with(lambda texts: tensor, ["a"]), [[0.6, 0.8]], atol=1e-7)


def test_no_texts_give_no_rows_and_do_not_bother_the_encoder():
    assert encode_with(lambda texts: 1 / 0, [], dimension=7).shape == (0, 7)
    assert encode_with(count_animals, []).shape == load(count_animals).encode([]).shape == (0, 3)


def test_an_encoder_never_sees_a_lone_surrogate():
    seen = []
    encode_with(lambda texts: seen.extend(texts) or count_animals(texts), ["cat \ud800", "dog"])
    assert seen == ["cat \ufffd", "dog"]


WRONG = [
    (lambda texts: np.ones((1, 3)), r"shape \(1, 3\) for 2 texts"),
    (lambda texts: np.ones((3, 3)), r"shape \(3, 3\) for 2 texts"),
    (lambda texts: np.ones(3), r"shape \(3,\)"),
    (lambda texts: np.ones((2, 3, 1)), r"shape \(2, 3, 1\)"),
    (lambda texts: None, "gave|shape"),
    (lambda texts: [[1, 2], [3]], "not give an array of numbers"),
    (lambda texts: [["x"], ["y"]], "not give an array of numbers"),
    (lambda texts: [[1, 2], [np.nan, 1]], "NaN or infinity for 1 of 2 texts, the first is 'dog'"),
    (lambda texts: [[np.inf, 2], [-np.inf, 1]], "NaN or infinity for 2 of 2 texts, the first is 'cat'"),
]


def ones(texts):
    return np.ones((len(texts), len(texts)))


test_what_is_no_encoder_or_gives_no_vectors_is_refused = refused(
    *((lambda gives=gives: encode_with(gives, ["cat", "dog"]), message) for gives, message in WRONG),
    (lambda: encode_with(count_animals, ["cat"], dimension=4), "gives 3 dimensions, before it gave 4; give the"),
    (lambda: [*map(load(ones).encode, (["cat"], ["cat", "dog"]))], "gives 2 dimensions, before it gave 1"),
    *((lambda encoder=encoder: load(encoder), r"an encoder is a SentenceTransformer, .* got") for encoder in (
        None, 5, ["cat"], np.eye(3), StaticEmbedder)),
    (lambda tmp_path: load(count_animals).save_pretrained(tmp_path / "model"),
     "count_animals is a function, which no folder can hold"),
    (lambda: load(count_animals).without(0), "cannot be edited"),
    *((lambda name=name, lengths=lengths, way=way: getattr(load(Comparing(name, lengths)), way)(["a", "b"]),
       rf"compares texts by similarity_fn_name '{name}', which is no cosine")
      for name, lengths in [("dot", (1, 6)), ("euclidean", (1, 6)), ("euclidean", (1, 1)), ("manhattan", (1, 1))]
      for way in ("encode", "encode_query", "encode_document")),
)  # fmt: skip


def test_a_function_has_the_methods_of_every_model(tmp_path):
    model = load(count_animals)
    assert isinstance(model, EncoderEmbedder) and model.model is count_animals and opened_with(model) == FUNCTION
    rows = model.encode(["cat cat", "cow"])
    assert rows.dtype == np.float32 and rows.tolist() == [[2, 0, 0], [0, 0, 1]]  # its own
    assert model.encode(["cat cat"], normalize_embeddings=True).tolist() == [[1, 0, 0]]
    assert model.get_embedding_dimension() == 3 and model.dimensions.names[2] == "dimension 2"
    plain = model.with_reasons(None)
    why = plain.explain("cat dog", "dog")
    assert ([(row.kind, row.contribution) for row in why.rows], why.score) == (
        [("embedding", pytest.approx(0.5**0.5))],
        pytest.approx(model.similarity(model.encode("cat dog"), model.encode("dog"))[0, 0]),
    )
    assert plain.explain("car", "cat").rows == () and model.coverage("a car") == 1
    assert repr(model) == "EncoderEmbedder(count_animals)" and model.device == "cpu" and model.max_seq_length is None
    with suppress(InputError):
        model.save_pretrained(tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_a_pellucid_model_is_told_from_a_transformer(fruit, tmp_path, monkeypatch):
    fruit.save_pretrained(tmp_path / "fruit")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    hub = {"me/fruit": tmp_path / "fruit", "me/bert": tmp_path / "bert"}
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, file, **_: str(hub[repo] / file))
    (tmp_path / "words.vec").write_text("one 1 2")
    for name in (tmp_path / "fruit", "me/fruit", "static-en", tmp_path, "nothing-here", tmp_path / "words.vec"):
        assert not is_stock(name)
    assert not is_stock(tmp_path / "bert")
    (tmp_path / "bert" / "modules.json").write_text("[]")
    assert is_stock(tmp_path / "bert") and is_stock("me/bert")


def test_published_anchor_files(tmp_path):
    """The authors' form: an object from numbers in the corpus to texts, whose order is the order of dimensions."""
    texts = ["A man is playing a guitar.", 'She said "no".', "Zürich \u2028 im Regen"]
    (tmp_path / "a.json").write_text(json.dumps(dict(zip(["812", "5", "77"], texts))), encoding="utf-8")
    (tmp_path / "b.JSON").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8-sig")
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*texts, "", "  "]).encode())
    (tmp_path / "d").write_text("\n".join(["", *texts]) + "\n", encoding="utf-8")
    for name in ("a.json", "b.JSON", "c.txt", "d"):
        assert read_anchors(tmp_path / name) == texts, name


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"", "not valid JSON"),
        ("a.json", b'["a", ', "not valid JSON"),
        ("a.json", b"[" * 100_000, "not valid JSON"),
        ("a.json", b'["\xff"]', "not valid JSON"),
        ("a.json", b'["a", 5]', "must hold a list of texts"),
        ("a.json", b'{"0": ["a"]}', "must hold a list of texts"),
        ("a.json", b'"a"', "must hold a list of texts"),
        ("a.json", b"null", "must hold a list of texts"),
        ("a.json", b"{}", "holds no text"),
        ("a.json", b'["", " "]', "holds no text"),
        ("a.txt", b" \n\r\n", "holds no text"),
        ("a.txt", b"gr\xfcn", "not UTF-8"),
        ("none.json", None, "not found"),
        ("none.txt", None, "not found"),
        ("", None, "is a folder"),
    ],
)
def test_broken_anchor_files(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ModelFolderError, CorpusError), match=message) as caught:
        read_anchors(tmp_path / name)
    assert name in str(caught.value)


@pytest.mark.needs("sentence_transformers")
def test_a_stock_model_takes_the_place_of_one_of_ours(fruit, tmp_path):
    """Both folders hold modules.json; of the model before no file may stay, by which another would be opened."""
    encoder = load(tiny_transformer(tmp_path / "bert", normalize=True))
    for number, before in enumerate((fruit, AnchorEmbedder(fruit, ["apple", "car"]), encoder)):
        place = tmp_path / f"model {number}"
        before.save_pretrained(place)
        encoder.save_pretrained(place)
        np.testing.assert_array_equal(load(place).encode(["a cat"]), encoder.encode(["a cat"]))
        assert not {"dimensions.tsv", "words.txt", "anchors"} & {entry.name for entry in place.iterdir()}


class Comparing:
    """An encoder that says how its texts are compared."""

    def __init__(self, name, lengths):
        self.similarity_fn_name, self.lengths = name, lengths

    def __call__(self, texts):
        return np.array([[0.6 * self.lengths[n % 2], 0.8 * self.lengths[n % 2]] for n in range(len(texts))])


@pytest.mark.parametrize(("name", "lengths"), [(None, (1, 6)), ("cosine", (1, 6)), ("dot", (1, 1)), ("dot", (1, 0))])
def test_an_encoder_that_compares_as_a_cosine_does_is_taken(name, lengths):
    assert load(Comparing(name, lengths)).encode(["a", "b"]).shape == (2, 2)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_encoder_in_half_precision_has_reasons(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    model = load(tiny_transformer(tmp_path / "bert", normalize=True).to(getattr(torch, dtype)))
    model.fit_reasons([f"the cat sat on a mat {'river ' * (n % 5)}" for n in range(200)], show_progress_bar=False)
    why = model.explain("the cat sat", "a mat")
    assert sum(row.contribution for row in why.rows) == pytest.approx(why.score, abs=1e-6)
