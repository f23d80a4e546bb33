"""Lexicon models: which tokens count, what the embeddings are, where clusters fired, edits, folders."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from families import dense_rows, reopened
from refusals import refused
from tiny_models import backbone_of, byte_level, random_adapter, saved_backbone, sentence_piece, tiny_lexicon

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
load_file = pytest.importorskip("safetensors.torch").load_file

import pellucid  # noqa: E402
from pellucid import LexiconEmbedder, cluster_vocabulary  # noqa: E402
from pellucid.errors import InputError, ModelFolderError  # noqa: E402
from pellucid.lexicon import Clusters, LexiconSettings  # noqa: E402
from pellucid.text.unicode import canonicalize  # noqa: E402
from pellucid.transformer.backbone import prepare  # noqa: E402
from pellucid.transformer.reading import Reader, whole_words  # noqa: E402

TEXTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars quickly, swift cars!"]
INSTRUCTED = "<instruct>{instruction}\n<query>{text}"


@pytest.fixture(scope="module")
def bert():
    return tiny_lexicon()


@pytest.fixture(scope="module")
def mistral():
    backbone = backbone_of("mistral")
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 30))


@pytest.fixture(params=["bert", "mistral"])
def model(request):
    return request.getfixturevalue(request.param)


def changed(model, **settings):
    return model.with_settings(replace(model.settings, **settings))


# Reading: which tokens are the text's own


def own_ids(reading, shift):
    start = reading.first + shift
    return reading.ids[start : start + len(reading.spans)]


@example("\ufa2a", "{text}", False)  # another character in NFC
@given(
    st.text(max_size=25) | st.sampled_from(["<query>a", "a <|endoftext|> b<query>", "<|endoftext|>", " a", "a\n"]),
    st.sampled_from(
        ["{text}", "Query: {text}", "Instruct: {instruction}\nQuery:{text}", INSTRUCTED, "<query>{text} <query>"]
    ),
    st.booleans(),
)
def test_the_pooled_tokens_are_the_text_and_nothing_else(text, template, shift):
    reader = reader_of(instructed_template=template, instruction="find it", shift=shift)
    (reading,) = reader.read([text], instructed=True)
    decoded = _BYTE_LEVEL.backend_tokenizer.decode(own_ids(reading, shift), skip_special_tokens=False)
    # a byte-level tokenizer loses nothing; a token across the border holds a space of the template as well
    assert decoded.removeprefix(" ").rstrip() == canonicalize(text).removeprefix(" ").rstrip()
    assert all(0 <= start <= end <= len(text) for start, end in reading.spans)


_BYTE_LEVEL = byte_level()
_BYTE_LEVEL.add_special_tokens({"additional_special_tokens": ["<instruct>", "<query>"]})


def reader_of(**changes):
    settings = {"instructed_template": INSTRUCTED, "instruction": "find", "shift": True, "max_length": 500} | changes
    return Reader(_BYTE_LEVEL, LexiconSettings(**settings))


def test_an_instruction_may_be_given_with_the_texts():
    reader, own = reader_of(), reader_of(instruction="sort")
    assert reader.read(["a", "car"], instructed=True, instruction="sort") == own.read(["a", "car"], instructed=True)
    assert reader.read(["a"], instructed=True, instruction=None) == reader.read(["a"], instructed=True)
    assert reader.read(["a"], instructed=True, instruction="") == reader.read(["a"], instructed=False)


def test_a_special_tokens_string_in_a_text_is_text():
    special, text = _BYTE_LEVEL.convert_tokens_to_ids(["<query>", "<|endoftext|>"]), "the <query> car <|endoftext|>"
    (reading,) = reader_of().read([text], instructed=True)
    assert not set(own_ids(reading, True)) & set(special) and reading.ids.count(special[0]) == 1
    assert reading.ids[reading.first] == special[0]  # the state at the marker stands for the first token
    assert "".join(text[start:end] for start, end in reading.spans) == text


def test_the_authors_masks_are_reproduced():
    """Slice [position of <query> : -2] of the instructed query, and all but the last two of a document, BOS first."""
    tokenizer = sentence_piece()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<instruct>", "<query>"]})
    settings = LexiconSettings(instructed_template=INSTRUCTED, instruction="a", shift=True, end_token=True)
    reader = Reader(tokenizer, settings)
    (query,) = reader.read(["the horse"], instructed=True)
    joint = [*tokenizer("<instruct>a\n<query>the horse")["input_ids"], tokenizer.eos_token_id]
    assert query.ids == joint
    at = joint.index(tokenizer.convert_tokens_to_ids("<query>"))
    assert range(query.first, query.first + len(query.spans)) == range(at, len(joint) - 2)
    (document,) = reader.read(["the horse"], instructed=False)
    assert (document.first, document.first + len(document.spans)) == (0, len(document.ids) - 2)


def test_a_long_text_loses_its_end_and_never_the_tokens_around_it():
    short, long = reader_of(end_token=True, max_length=20).read(["the car", "the car " * 20], instructed=True)
    assert len(long.ids) == 20 and long.ids[-1] == _BYTE_LEVEL.eos_token_id and short.cut == 0
    assert long.cut == len(_BYTE_LEVEL("the car " * 20)["input_ids"]) - len(long.spans)
    assert long.ids[: long.first + 1] == short.ids[: short.first + 1]


def test_words_are_whole_in_the_users_string():
    text = "Don't panic, medicine!"
    assert [text[s:e] for s, e in whole_words(text, [(0, 2), (4, 5), (5, 8), (11, 12), (13, 15), (17, 22)])] == [
        "Don", "t", "panic", ",", "medicine", "medicine!"]  # fmt: skip
    assert whole_words("a  b ", [(1, 3), (4, 5)]) == [(3, 4), (5, 5)]  # a space goes with the word behind it


# Embeddings


def by_the_formula(model, text, pooling="max"):
    """The embedding of one text by the formula, position after position, without the library's own pooling."""
    (reading,) = model._reader.read([text], instructed=True)
    ids = torch.tensor([reading.ids])
    with torch.inference_mode():
        hidden = model.backbone.states(ids, torch.ones_like(ids))[0].numpy()
    logits = hidden @ model.clusters.centroids.T + (0 if model.bias is None else model.bias)
    weights = np.log1p(np.maximum(logits, 0))
    own = weights[reading.first : reading.first + len(reading.spans)]
    if not len(own):
        return np.zeros(weights.shape[1]), own
    pooled = {"max": own.max(0), "sum": own.sum(0), "last": weights[-1]}[pooling]
    return pooled / np.linalg.norm(pooled), own


@pytest.mark.parametrize("pooling", ["max", "sum", "last"])
def test_embeddings_are_the_formula(model, pooling):
    model = changed(model, pooling=pooling)
    found = model.encode(TEXTS)
    assert found.format == "csr" and found.dtype == np.float32 and found.shape == (4, len(model.dimensions))
    expected = np.array([by_the_formula(model, text, pooling)[0] for text in TEXTS])
    np.testing.assert_allclose(dense_rows(found), expected, atol=1e-5)
    assert (found[2].nnz, model.encode(TEXTS[0]).shape, model.encode([]).shape) == (
        0,
        (1, len(model.dimensions)),
        (0, len(model.dimensions)),
    )


def test_a_clusters_bias_is_the_mean_of_its_tokens():
    model = tiny_lexicon()
    with torch.no_grad():
        model.backbone.head_bias.copy_(torch.arange(len(model.backbone.tokenizer)).float())
    for number, bias in enumerate(LexiconEmbedder(model.backbone, model.clusters).bias):
        assert bias == pytest.approx(np.flatnonzero(model.clusters.assignment == number).mean())


def test_the_instruction_is_told_and_never_pooled(mistral):
    model = changed(mistral, instructed_template=INSTRUCTED).with_instruction("Find the horse.")
    plain, told = dense_rows(mistral.encode(TEXTS)), dense_rows(model.encode(TEXTS))
    assert np.abs(plain - told)[[0, 1, 3]].max() > 1e-3
    np.testing.assert_allclose(dense_rows(model.encode_query(TEXTS)), told)
    np.testing.assert_allclose(dense_rows(model.encode_document(TEXTS)), plain, atol=1e-6)
    np.testing.assert_allclose(dense_rows(model.encode_document(TEXTS[0])), plain[:1], atol=1e-6)
    assert told[2].any() == False  # noqa: E712  (nothing of the instruction is left for an empty text)


def test_the_tokenizers_padding_and_truncation_do_not_matter(mistral):
    tokenizer = sentence_piece()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<instruct>", "<query>", "<response>"]})
    tokenizer.pad_token, tokenizer.padding_side = "<unk>", "left"
    tokenizer(["a", "the horse"], padding=True, truncation=True, max_length=4)  # sets both in its backend
    other = LexiconEmbedder(
        prepare(mistral.backbone.model, tokenizer, attention="bidirectional", device="cpu"), mistral.clusters
    )
    np.testing.assert_allclose(dense_rows(other.encode(TEXTS)), dense_rows(mistral.encode(TEXTS)), atol=1e-6)


def test_pruning_keeps_the_largest_and_the_length(model):
    whole = dense_rows(model.encode(TEXTS))
    for row, short in zip(whole, dense_rows(changed(model, max_active_dims=3).encode(TEXTS))):
        kept = np.flatnonzero(short)
        assert len(kept) == min(3, np.count_nonzero(row))
        if len(kept):
            assert row[kept].min() >= np.delete(row, kept).max()
            np.testing.assert_allclose(short[kept], row[kept] / np.linalg.norm(row[kept]), rtol=1e-5)
    assert dense_rows(changed(changed(model, max_active_dims=3), max_active_dims=None).encode(TEXTS)) == (
        pytest.approx(whole)
    )


@pytest.mark.filterwarnings("error")
def test_truncation_is_counted_and_said(bert):
    with pytest.warns(UserWarning, match=r"2 of 3 texts are longer than the 64 tokens .*; 39 tokens .*at most 38"):
        found = bert.encode(["car", "horse " * 100, "man " * 63])
    np.testing.assert_allclose(dense_rows(found)[1], dense_rows(bert.encode("horse " * 62))[0], atol=1e-5)


NO_TOKENS, FIVE_TOKENS = np.zeros(0, np.int64), np.zeros(5, np.int64)


def one_cluster(assignment, width):
    return Clusters(assignment, np.ones((1, width), np.float32), ["one"], [("a",)])


test_parts_and_settings_that_make_no_model_are_refused = pytest.mark.usefixtures("outside_allowed")(refused(
    *((lambda bert, change=change: changed(bert, **change), message) for change, message in [
        ({"pooling": "mean"}, "pooling is 'mean'"),
        ({"template": "Query:"}, r"template is 'Query:'; it must hold \{text\} once"),
        ({"max_active_dims": 0}, "max_active_dims is 0"),
        ({"max_length": 65}, "max_length is 65; the backbone reads 64"),
        ({"shift": "yes"}, "shift is 'yes'"),
    ]),
    (lambda: reader_of(max_length=5).read(["a"], instructed=True), "the prompt fills it"),
    (lambda: Reader(object(), LexiconSettings()), "gives no character offsets"),
    (lambda bert: LexiconEmbedder(bert.backbone, one_cluster(NO_TOKENS, 8)), "centroids have 8 .* backbone 32"),
    (lambda bert: LexiconEmbedder(bert.backbone, one_cluster(FIVE_TOKENS, 32)), "of 5 tokens and the backbone's"),
    (
        lambda bert: LexiconEmbedder(bert.backbone, bert.clusters, bias=np.ones(3, np.float32)),
        "bias must be 20 finite numbers",
    ),
    (
        lambda bert: LexiconEmbedder(
            bert.backbone, replace(bert.clusters, centroids=bert.clusters.centroids * np.float32(np.nan))
        ).encode("horse"),
        "NaN or infinity",
    ),
    (lambda bert, tmp_path: reopened(bert, tmp_path / "m", backbone_name=str(tmp_path / "gone")),
     r"needs the transformer.*gone.*backbone='the/folder'", ModelFolderError),
))  # fmt: skip


# Explanations


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_a_row_stands_where_its_cluster_fired(model, pooling):
    model = changed(model, pooling=pooling)
    text = "The doctor gave medicine to unbelievable cars."
    (reading,) = model._reader.read([text], instructed=True)
    words = whole_words(text, reading.spans)
    _, own = by_the_formula(model, text)
    for row in model.explain(text).rows:
        expected = words[own[:, model.dimensions.number(row.name)].argmax()]
        assert row.spans1 == (expected,) == row.spans2 or row.spans2 == ()
        start, end = row.spans1[0]
        if text[start:end] == ".":
            continue
        assert (start == 0 or not text[start - 1].isalnum()) and (end == len(text) or not text[end].isalnum())


def test_after_last_pooling_nothing_stands_anywhere(mistral):
    explanation = changed(mistral, pooling="last").explain(TEXTS[0], TEXTS[1])
    assert explanation.rows and all(row.spans1 == row.spans2 == () for row in explanation.rows)


# Edits


def test_a_merged_dimension_stands_where_its_strongest_cluster_fired(bert):
    weights = np.zeros((1, len(bert.clusters)), np.float32)
    weights[0, [3, 7]] = 1, 2
    fired = np.full(len(bert.clusters), -1)
    fired[[3, 7]] = 0, 1
    (query,) = bert.merge(3, 7).analyze_texts(["horse car"], [None])
    query._weighed = [(0, 5), (6, 9)], weights, fired
    assert query.span_finder(3) == ((6, 9),)
    assert bert.without(1, 5).keep(9, 3).rename({0: "x"}).mixing is None  # fewer clusters, and nothing is mixed


# Folders


@pytest.mark.usefixtures("outside_allowed")
@pytest.mark.filterwarnings("error::FutureWarning")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 5e-3)])
def test_an_adapter_is_stored_as_asked_beside_the_name_of_its_backbone(mistral, tmp_path, dtype, tolerance):
    name, folder = str(saved_backbone(mistral.backbone, tmp_path / "base")), tmp_path / "model" / "adapter"
    adapter = random_adapter(tmp_path / "adapter", name)
    backbone = pellucid.transformer.backbone.open_backbone(name, adapter=adapter, device="cpu")
    model = LexiconEmbedder(backbone, mistral.clusters)
    assert np.abs(dense_rows(model.encode(TEXTS)) - dense_rows(mistral.encode(TEXTS))).max() > 0.01
    model.save_pretrained(tmp_path / "model", backbone_name=name, dtype=dtype)
    assert {file.name for file in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == name
    stored, again = load_file(folder / "adapter_model.safetensors"), pellucid.load(tmp_path / "model")
    assert {tensor.dtype for tensor in stored.values()} == {getattr(torch, dtype)}
    assert {tensor.dtype for tensor in again.backbone.adapter[1].values()} == {torch.float32}
    assert all(torch.equal(again.backbone.adapter[1][key], stored[key].float()) for key in stored)
    np.testing.assert_allclose(dense_rows(again.encode(TEXTS)), dense_rows(model.encode(TEXTS)), atol=tolerance)
    with pytest.raises(ModelFolderError, match="another model than the one that it was made with"):
        LexiconEmbedder.from_pretrained(tmp_path / "model", backbone=mistral.backbone)
    backbone.adapter[1][min(stored)][0, 0] = 1e6
    if dtype == "float16":
        with pytest.raises(InputError, match="holds numbers that float16 cannot; save it as float32"):
            model.save_pretrained(tmp_path / "large", backbone_name=name, dtype=dtype)
        assert not (tmp_path / "large").exists()
