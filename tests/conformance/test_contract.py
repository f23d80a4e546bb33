"""A family added in one short class works with everything written against `Embedder`: the views, the command line."""

import inspect
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pellucid
from commands import run_command
from families import FAMILIES, STATIC, VARIANTS, dense_rows
from letters import LetterEmbedder, SparseLetterEmbedder
from pellucid import loading
from pellucid.cli import app as cli
from pellucid.core.embedder import Embedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import InputError, ModelFolderError
from refusals import refused
from tiny_models import WORDS, tiny_teacher

LETTERS = [LetterEmbedder(), SparseLetterEmbedder()]


@pytest.mark.parametrize("model", [*LETTERS, EnsembleEmbedder(LETTERS, [0.25, 0.75])], ids=lambda model: model.family)
def test_similarity_is_the_cosine_of_letter_counts(model):
    scores = model.similarity(model.encode(["aab", ""]), model.encode(["ab", "zz"]))
    assert (scores.dtype, scores) == (np.float32, pytest.approx(np.array([[3 / np.sqrt(10), 0], [0, 0]]), abs=1e-6))


def test_load_opens_the_family_by_its_one_line_in_families(tmp_path, monkeypatch):
    LetterEmbedder().save_pretrained(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="letters"):
        pellucid.load(tmp_path / "model")
    monkeypatch.setitem(loading.FAMILIES, "letters", "letters.LetterEmbedder")
    monkeypatch.setitem(sys.modules, "pellucid.letters", sys.modules[__name__])
    assert isinstance(pellucid.load(str(tmp_path / "model")), LetterEmbedder)


def test_sparse_embeddings_are_written_as_dimensions_and_values(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(cli, "open_model", lambda name: SparseLetterEmbedder())
    texts = tmp_path / "texts.txt"
    texts.write_text("aab\n\nz\n")
    lines = [json.loads(line) for line in run_command("encode", texts).stdout.splitlines()]
    assert lines[0]["embedding"] == {"dimensions": [0, 1], "values": pytest.approx([2 / 5**0.5, 1 / 5**0.5])}
    assert lines[1] == {"text": "", "embedding": {"dimensions": [], "values": []}}
    assert "sparse" in run_command("encode", texts, "-o", tmp_path / "rows.npy", code=1).stderr
    assert list(tmp_path.iterdir()) == [texts]


ANY_TEXT = st.text(max_size=12) | (
    st.lists(
        st.sampled_from(
            ["a", "A", "man", "MAN", "new york", "New York", "zebra", "beach", "!", "\ud800", "\0", "日本"]
        ),
        max_size=6,
    )
).map(" ".join)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
@settings(suppress_health_check=list(HealthCheck))
@given(first=ANY_TEXT, second=ANY_TEXT, third=ANY_TEXT)
def test_rows_add_up_to_the_similarity(model, name, first, second, third):
    why = model.explain(first, second)
    score = float(model.similarity(model.encode([first]), model.encode([second]))[0, 0])
    assert why.score == pytest.approx(score, abs=1e-5)
    assert math.fsum([*(row.contribution for row in why.rows), why.remainder]) == pytest.approx(why.score, abs=1e-6)
    assert model.explain(second, first).score == pytest.approx(why.score, abs=1e-6)
    alone = model.explain(first)
    assert alone.score == pytest.approx(float(dense_rows(model.encode([first])).any()), abs=1e-5) or "ensemble" in name
    assert not why.exact or abs(why.remainder) <= 1e-6
    assert len({row.key for row in why.rows}) == len(why.rows)
    for row in why.rows:
        for text, spans in ((why.text1, row.spans1), (why.text2, row.spans2)):
            assert all(0 <= start < end <= len(text) for start, end in spans)
    other = model.explain(first, third)
    gap, terms = why - other, {row.key: row.contribution for row in why.rows}
    for row in other.rows:
        terms[row.key] = terms.get(row.key, 0.0) - row.contribution
    assert {row.key: row.contribution for row in gap.rows} == pytest.approx(terms)
    assert math.fsum([*terms.values(), gap.remainder]) == pytest.approx(gap.score, abs=1e-6)
    assert gap.score == pytest.approx(why.score - other.score, abs=1e-6)
    assert [known.share for known in gap.coverage] == pytest.approx(model.coverage([first, second, third]).tolist())
    if name.startswith("key tokens"):
        assert not why.exact and {row.kind for row in why.rows} <= {"key token"}
        assert not any(row.name.startswith("…") for row in why.rows)
    if not dense_rows(model.encode([first])).any():
        assert why.score == 0 and alone.rows == ()
        assert model.describe(first) == "nothing this model knows"
    if name.startswith("static lexicon"):
        assert all(row.spans1 and row.spans2 for row in why.rows)


def test_coverage_is_that_of_the_encoder_or_of_the_part_that_knows_least(every_family):
    texts = ["a man zebra quagga", "", "the boy"]
    known = {"lexicon": [1, 1, 1], "key tokens": [1, 1, 1]} | {name: [0.5, 1, 1] for name in STATIC}
    for name, model in every_family.items():  # the pieces of the tiny transformer are few
        assert model.coverage(texts).tolist() == known.get(name, [0.25, 1, 0.5]), name
        assert name not in STATIC or model.describe("a zebra quagga").endswith(" (only 1 of 3 words known)")
    why = every_family["static"].explain(texts[0], texts[2])
    assert why.unknown_words() == ["zebra", "quagga"] and "not in the vocabulary: zebra, quagga" in str(why)
    # a family that says nothing of it
    assert (LetterEmbedder().coverage("any text"), LetterEmbedder().explain("any text").coverage[0].share) == (1, 1)


@pytest.mark.parametrize("name", ["lexicon", "key tokens"])
@pytest.mark.filterwarnings("ignore:.*longer than")
@pytest.mark.filterwarnings("ignore:.*logit above 0")
def test_a_transformer_knows_what_it_reads(model, name):
    text = "a man on the beach " * 40
    (share,) = model.coverage([text])
    why = model.explain(text)
    assert 0 < share < 0.5 and why.coverage[0].share == pytest.approx(share)
    assert why.coverage[0].total == 200 and len(why.unknown1) == 200 - why.coverage[0].known
    assert "of 200 words of the text known" in str(why)


@pytest.fixture(scope="module")
def searching(every_family, tmp_path_factory):
    """A model of every family; those that can be told what a query is, are told it."""
    if "lexicon" not in every_family:
        pytest.skip("needs torch")
    encoder = tiny_teacher(tmp_path_factory.mktemp("encoder"), WORDS, 32)
    encoder.prompts = {"query": "the man on the beach ", "document": "a car "}
    told = {"lexicon": every_family["lexicon"], "keytokens": every_family["key tokens"]}
    told = {name: model.with_instruction("riding a horse") for name, model in told.items()}
    told |= {"static": every_family["static"], "static-lexicon": every_family["static lexicon"]}
    told |= {"letters": LetterEmbedder(), "sparse letters": SparseLetterEmbedder()}
    for name, of in (("anchors", encoder), ("anchors over lexicon", told["lexicon"])):
        told[name] = pellucid.AnchorEmbedder(of, ["a man", "the beach", "= boy"])
    parts = {"words": told["static"], "anchors": told["anchors"], "stock": encoder, "tokens": told["keytokens"]}
    return told | {"ensemble": EnsembleEmbedder(parts, [0.4, 0.3, 0.2, 0.1])}


EVERY_FAMILY = [
    "static", "anchors", "anchors over lexicon", "lexicon", "keytokens", "ensemble", "letters",
    "sparse letters", "static-lexicon",
]  # fmt: skip
QUERY, TEXTS = "a man on the beach", ["the boy on a horse", "a man", "the sick boy on the beach"]


def encoded(model, texts, role):
    return {None: model.encode, "query": model.encode_query, "document": model.encode_document}[role](texts)


@pytest.mark.filterwarnings("ignore:.*logit above 0")
@pytest.mark.parametrize("family", EVERY_FAMILY)
@pytest.mark.parametrize("roles", [("query", "document"), ("document", "document"), (None, None), ("query", None)])
def test_what_search_computes_is_what_is_explained(searching, family, roles):
    model = searching[family]
    found = model.similarity(encoded(model, [QUERY], roles[0]), encoded(model, TEXTS, roles[1]))[0]
    for text, score in zip(TEXTS, found.tolist()):
        why = model.explain(QUERY, text, role1=roles[0], role2=roles[1])
        assert why.score == pytest.approx(score, abs=2e-6)
        assert math.fsum([why.remainder, *(row.contribution for row in why.rows)]) == pytest.approx(score, abs=2e-6)
        shares = [model.coverage(text, role=role) for text, role in zip((QUERY, text), roles)]
        assert [known.share for known in why.coverage] == pytest.approx(shares if why.coverage else [])
    alone = model.explain(QUERY, role1=roles[0])
    row = encoded(model, [QUERY], roles[0])
    assert alone.score == pytest.approx(float(model.similarity(row, row)[0, 0]), abs=2e-6)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_no_texts_give_no_rows_but_all_columns(searching, family):
    model = searching[family]
    for encode in (model.encode, model.encode_query, model.encode_document):
        assert encode([]).shape == (0, model.get_embedding_dimension()) == (0, len(model.dimensions))


@pytest.mark.filterwarnings("ignore:.*logit above 0")
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_lone_surrogates_are_read_as_replacement_characters(searching, family):
    model = searching[family]
    for role in (None, "query", "document"):
        odd, plain = (dense_rows(encoded(model, [text], role)) for text in ("a horse \ud800", "a horse \ufffd"))
        np.testing.assert_allclose(odd, plain, atol=1e-6)
        assert np.isfinite(odd).all()
    why = model.explain("a man \ud800", "\udfff on the beach")
    assert (why.text1, why.text2) == ("a man \ufffd", "\ufffd on the beach")


@pytest.mark.filterwarnings("ignore:.*logit above 0")
@pytest.mark.parametrize("family", ["anchors", "anchors over lexicon", "lexicon", "keytokens", "ensemble"])
def test_a_query_is_scored_otherwise_than_a_plain_text(searching, family):
    """Otherwise the test above would compare a score with itself."""
    model = searching[family]
    scores = [model.explain(QUERY, TEXTS[0], role1=role, role2="document").score for role in ("query", "document")]
    assert abs(scores[0] - scores[1]) > 5e-5  # the tolerance there is 2e-6


@pytest.mark.filterwarnings("ignore:.*logit above 0")
@pytest.mark.parametrize("family", EVERY_FAMILY)
@pytest.mark.parametrize("role", ["query", "document", None])
def test_prompt_names_are_the_role(searching, family, role):
    model = searching[family]
    expected = dense_rows(encoded(model, TEXTS, role))
    assert dense_rows(model.encode(TEXTS, prompt_name=role)) == pytest.approx(expected, abs=1e-5)
    assert dense_rows(encoded(model, TEXTS[0], role)).ravel() == pytest.approx(expected[0], abs=1e-5)


@pytest.mark.filterwarnings("ignore:.*longer than")
@pytest.mark.filterwarnings("ignore:.*logit above 0")
@pytest.mark.parametrize("family", ["lexicon", "keytokens", "anchors"])
def test_coverage_follows_the_role(searching, family):
    """An instruction or a prompt takes room from the text."""
    model, text = searching[family], "a man on the beach " * 40
    query, document = (model.coverage(text, role=role) for role in ("query", "document"))
    assert 0 < query < document < 1
    why = model.explain(text, text, role1="query", role2="document")
    assert [known.share for known in why.coverage] == pytest.approx([query, document])


# What is refused, and what is said

COLUMNS = {"number": [1, 2], "text": ["a man", "the beach"]}
TABLES = {
    "dict": lambda: COLUMNS,
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(COLUMNS),
    "polars": lambda: pytest.importorskip("polars").DataFrame(COLUMNS),
    "arrow": lambda: pytest.importorskip("pyarrow").table(COLUMNS),
    "datasets": lambda: pytest.importorskip("datasets").Dataset.from_dict(COLUMNS),
}
ROLE = "role is 'passage'; it must be 'query', 'document' or None"
ORDERED, SPARSE = ["static", "anchors", "letters"], ["lexicon", "keytokens", "static-lexicon"]


def each_encode(message, *arguments, **options):
    """Return the rows of a table of what is refused: a call of each method that encodes, and the message."""
    names = ("encode", "encode_query", "encode_document")
    return [(lambda m, name=name: getattr(m, name)(*arguments, **options), message) for name in names]


NEVER = [  # calls that every family refuses, and a part of the message
    *((lambda m, missing=missing: m.explain(QUERY, missing), f"explain takes texts, got {type(missing).__name__}")
      for missing in (None, float("nan"), b"text", [QUERY])),
    *(row for bad in (None, 3, b"bytes", ["nested"])
      for row in each_encode(f"text 1 is {type(bad).__name__}", ["fine", bad])),
    *(row for name, value in {
        "prompt_name": "passage", "prompt": 3, "batch_size": 0, "output_value": "token_embeddings",
        "precision": "int8", "device": "cuda:7", "truncate_dim": 0, "pool": {}, "chunk_size": 10, "max_active_dims": 0,
    }.items() for row in each_encode(f"^{name} is ", ["a man"], **{name: value})),
    *((lambda m, ask=ask, table=table: ask(m, TABLES[table]()), r"such as texts\['text'\]")
      for table in TABLES for ask in (
          lambda m, texts: m.encode(texts), lambda m, texts: m.encode_query(texts),
          lambda m, texts: m.encode_document(texts), lambda m, texts: m.coverage(texts),
          lambda m, texts: m.describe(texts), lambda m, texts: m.explain(texts),
          lambda m, texts: m.explain("a man", texts))),
    *((lambda m, texts=texts: m.similarity(texts, m.encode(["tea"])), r"encode texts first: model.similarity\(model")
      for texts in ("tea", ["tea", "milk"], np.array(["tea"]))),
    (lambda m: m.similarity_pairwise(m.encode(["tea"]), ["tea"]), "takes embeddings"),
    (lambda m: m.explain("a", "b", role1="passage"), ROLE), (lambda m: m.explain("a", "b", role2="passage"), ROLE),
    (lambda m: m.coverage("a", role="passage"), ROLE),
    (lambda m: m.explain("a", role2="query"), "role2 is 'query', and there is no second text"),
    *((lambda m, texts=texts: m.encode(texts), said) for texts, said in (
        ({"d1": "a man", "d2": "the beach"}, r"list\(texts\.values\(\)\)"),)),
]  # fmt: skip
OF_SOME = [  # families, what they refuse, and a part of the message
    (["anchors", "letters", *SPARSE, "ensemble"], lambda m: m.encode(["a man"], truncate_dim=2),
     "truncate_dim is 2, .* model.k"),
    (ORDERED, lambda m: m.encode(TEXTS, convert_to_sparse_tensor=True), "^convert_to_sparse_tensor is .* dense; leave"),
    (ORDERED, lambda m: m.encode(TEXTS, max_active_dims=3), "^max_active_dims is .* dense; leave it out"),
    (["lexicon", "keytokens", "anchors over lexicon"], lambda m: m.encode(["boy"], prompt="a man "),
     "prompt is 'a man '; .*with_instruction"),
]  # fmt: skip


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_what_no_family_does_is_refused_and_said(searching, family):
    for call, message in [*NEVER, *((call, message) for names, call, message in OF_SOME if family in names)]:
        with pytest.raises(InputError, match=message):
            call(searching[family])


# sentence-transformers' arguments of `encode`


def test_the_arguments_of_encode_are_those_of_sentence_transformers():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    for name in ("encode", "encode_query", "encode_document"):
        stock = inspect.signature(getattr(sentence_transformers.SentenceTransformer, name)).parameters
        ours = inspect.signature(getattr(Embedder, name)).parameters
        shared = [key for key in stock if key != "kwargs"]
        assert list(ours)[: len(shared)] == shared
        defaults = {key: ours[key].default for key in shared}
        assert defaults.pop("convert_to_tensor") is None  # False; True where convert_to_sparse_tensor is given
        assert defaults == {key: stock[key].default for key in defaults}
        sparse = inspect.signature(getattr(sentence_transformers.SparseEncoder, name)).parameters
        assert set(sparse) - {"kwargs"} <= set(ours)
        assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in ours.values())


def test_columns_of_texts_are_encoded(searching):
    pandas, model = pytest.importorskip("pandas"), searching["static"]
    expected = model.encode(["a man", "the beach"])
    series = pandas.Series(["a man", "the beach"], index=["columns", "column_names"])  # which are attributes of it
    for texts in (TABLES["pandas"]()["text"], TABLES["polars"]()["text"], series):
        assert (model.encode(texts) == expected).all()


def test_a_table_is_refused_without_importing_pandas():
    code = (
        "import sys, pellucid\n"
        "try: pellucid.load('static-en').encode({'text': ['a']})\n"
        "except ValueError: sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("family", "options"), [
    *((family, options) for family in ("static", "anchors", "letters")
      for options in ({"normalize_embeddings": True}, {"precision": None})),
    ("static", {"truncate_dim": 2}), ("static", {"truncate_dim": 3, "normalize_embeddings": True}),
])  # fmt: skip
def test_rows_are_cut_and_normalised_as_by_sentence_transformers(searching, family, options):
    model = searching[family]
    texts = [*TEXTS, QUERY, "the boy"]
    expected = model.encode(texts)[:, : options.get("truncate_dim")]
    if options.get("normalize_embeddings"):
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.encode(texts, **options), expected, atol=1e-6)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_tensors_are_given_as_by_sentence_transformers(searching, family):
    torch = pytest.importorskip("torch")
    model = searching[family]
    rows = model.encode(TEXTS)
    tensor = model.encode(TEXTS, convert_to_tensor=True)
    assert tensor.is_sparse == hasattr(rows, "tocsr") and tensor.dtype == torch.float32
    assert (tensor.layout == torch.sparse_coo) == hasattr(rows, "tocsr")
    assert tensor.to_dense().numpy() == pytest.approx(dense_rows(rows), abs=1e-6)
    listed = model.encode(TEXTS, convert_to_numpy=False)
    assert isinstance(listed, list) and [tuple(row.shape) for row in listed] == [(rows.shape[1],)] * 3
    assert tuple(model.encode(TEXTS[0], convert_to_tensor=True).shape) == (rows.shape[1],)
    expected = model.similarity(rows, rows)
    assert model.similarity(tensor, listed) == pytest.approx(expected, abs=1e-5)
    assert model.similarity(tensor[0], rows) == pytest.approx(expected[:1], abs=1e-5)
    assert model.similarity_pairwise(listed, tensor) == pytest.approx(np.diag(expected), abs=1e-5)
    for first, second in ((tensor, tensor), (tensor, rows), (rows, list(tensor))):
        found = model.similarity(first, second)
        assert (found.dtype, found.device, found.layout) == (torch.float32, tensor.device, torch.strided)
    assert type(expected) is type(model.similarity_pairwise(rows, rows)) is np.ndarray


@pytest.mark.parametrize("family", ["lexicon", "keytokens", "sparse letters", "static-lexicon", "ensemble"])
def test_sparse_tensors_are_given_as_by_a_sparse_encoder(searching, family):
    torch = pytest.importorskip("torch")
    from sentence_transformers import SparseEncoder
    from sentence_transformers.util import select_max_active_dims

    model = searching[family]
    rows = dense_rows(model.encode([*TEXTS, ""]))
    for count in (None, 1, 3, 10_000):
        options = {"convert_to_sparse_tensor": True, "save_to_cpu": True, "max_active_dims": count}
        for role, encode in (("query", model.encode_query), ("document", model.encode_document), (None, model.encode)):
            full = dense_rows(encoded(model, [*TEXTS, ""], role))
            kept = np.asarray(select_max_active_dims(full, count))
            tensor = encode([*TEXTS, ""], **options)
            assert (tensor.layout, tensor.dtype) == (torch.sparse_coo, torch.float32)
            found = tensor.to_dense().numpy()
            assert (np.isclose(found, full, atol=1e-6) | (found == 0)).all()
            assert np.sort(np.abs(found)) == pytest.approx(np.sort(np.abs(kept)), abs=1e-6)  # of equal ones any
            assert model.sparsity(tensor) == pytest.approx(SparseEncoder.sparsity(tensor), abs=1e-6)
            assert model.sparsity(found) == model.sparsity(tensor)
        listed = model.encode(TEXTS, convert_to_tensor=False, **options)
        assert isinstance(listed, list) and [row.is_sparse for row in listed] == [True] * 3
    assert model.sparsity(listed) == model.sparsity(model.encode(TEXTS))
    filled = model.encode([*TEXTS, ""], convert_to_sparse_tensor=False)
    assert not filled.is_sparse and filled.numpy() == pytest.approx(rows, abs=1e-6)
    assert model.encode(TEXTS, max_active_dims=2).getnnz(axis=1).max() <= 2
    assert tuple(model.encode(TEXTS[0], convert_to_sparse_tensor=True).shape) == (rows.shape[1],)


@pytest.mark.parametrize("family", ["lexicon", "keytokens", "anchors"])
def test_rows_do_not_depend_on_the_batch_size(searching, family, monkeypatch):
    from pellucid.transformer import backbone

    expected = dense_rows(searching[family].encode(TEXTS))
    sizes = []
    padded = backbone.Backbone.padded
    monkeypatch.setattr(backbone.Backbone, "padded", lambda b, read: sizes.append(len(read)) or padded(b, read))
    assert dense_rows(searching[family].encode(TEXTS, batch_size=2)) == pytest.approx(expected, abs=1e-5)
    assert sizes == ([] if family == "anchors" else [2, 1])


def test_a_prompt_stands_before_every_text(searching):
    static, anchors = searching["static"], searching["anchors"]
    assert (static.encode(["boy"], prompt="a man ") == static.encode(["a man boy"])).all()
    assert (static.encode_query("boy", "document", "a man ") == static.encode("a man boy")).all()
    assert (anchors.encode_query(["boy"], prompt="a man ") == anchors.encode(["a man boy"])).all()
    for name in ("lexicon", "keytokens", "anchors over lexicon"):
        told_nothing = dense_rows(searching[name].encode_query(["a boy"], prompt=""))
        assert told_nothing == pytest.approx(dense_rows(searching[name].encode_document(["a boy"])), abs=1e-6)


def test_a_model_says_what_it_is(searching, tmp_path):
    static, stock = searching["static"], searching["anchors"].encoder
    assert repr(static) == "StaticEmbedder(16 words x 64)"
    static.save_pretrained(tmp_path / "mine")
    assert repr(pellucid.load(tmp_path / "mine")) == "StaticEmbedder(mine: 16 words x 64)"
    assert repr(LetterEmbedder()) == "LetterEmbedder(26 dimensions)"
    assert repr(searching["ensemble"]).startswith("EnsembleEmbedder(words, anchors, stock, tokens; ")
    for model in searching.values():
        assert model.get_sentence_embedding_dimension() == model.get_embedding_dimension()
        assert str(model.device) == "cpu" and (model.encode(["a"], device="cpu") != model.encode(["a"])).sum() == 0
    assert static.max_seq_length == math.inf and searching["anchors"].max_seq_length == stock.max_seq_length == 12
    assert searching["lexicon"].max_seq_length == searching["lexicon"].settings.max_length
    assert LetterEmbedder().similarity_fn_name == stock.similarity_fn_name == "cosine"
    rows = searching["ensemble"].encode(TEXTS)
    assert (rows @ rows.T).toarray() == pytest.approx(searching["ensemble"].similarity(rows, rows), abs=1e-6)
    assert searching["ensemble"].similarity_fn_name == "dot"


def test_habits_of_sentence_transformers_work(searching):
    for model in searching.values():
        assert model.to("cpu") is model
        with pytest.raises((InputError, RuntimeError, AssertionError)):  # the last are torch's
            model.to("cuda:7")
    static, anchors = searching["static"], searching["anchors"]
    assert anchors.prompts == anchors.encoder.prompts == {"query": "the man on the beach ", "document": "a car "}
    assert anchors.tokenizer is anchors.encoder.model.tokenizer and static.prompts == {}
    assert searching["lexicon"].tokenizer is searching["lexicon"].backbone.tokenizer
    assert not hasattr(static, "tokenizer")
    with pytest.raises(AttributeError, match=r"static model has no tokenizer of transformers; explain\(text\)"):
        static.tokenizer  # noqa: B018


def test_roles_are_given_on_the_command_line(monkeypatch, searching, tmp_path):
    model = searching["anchors"]
    monkeypatch.setattr(cli, "open_model", lambda name: model)
    expected = model.explain(QUERY, TEXTS[0], role1="query", role2="document").score
    said = json.loads(run_command("explain", QUERY, TEXTS[0], "--roles", "query,document", "--json").stdout)
    assert said["score"] == pytest.approx(expected, abs=1e-6)
    assert json.loads(run_command("explain", QUERY, "--roles", "query", "--json").stdout)["score"] == pytest.approx(
        1, abs=1e-5
    )
    (tmp_path / "texts.txt").write_text(QUERY + "\n")
    for role in ("query", "document"):
        (line,) = run_command("encode", str(tmp_path / "texts.txt"), "--role", role).stdout.splitlines()
        assert json.loads(line)["embedding"] == pytest.approx(encoded(model, QUERY, role).tolist(), abs=1e-6)


test_embeddings_of_two_models_are_not_compared = refused(
    *((lambda fruit, compare=compare, rows=rows: getattr(fruit, compare)(fruit.encode(["apple", "pear"]), rows),
       "have 3 and 4 dimensions")
      for rows in (np.ones((2, 4), np.float32), [np.ones(4), np.ones(4)])
      for compare in ("similarity", "similarity_pairwise")),
    (lambda fruit: fruit.similarity_pairwise(np.ones((3, 3)), np.ones((2, 3))), "equally many rows, got 3 and 2"),
)  # fmt: skip
