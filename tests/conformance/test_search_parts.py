"""What holds for each way to search: scores are sums of their rows, and the same after every change of an index."""

import numpy as np
import pytest

pytest.importorskip("Stemmer")
pytest.importorskip("sentence_transformers")

import pellucid
from families import ANCHORS, WORDS, first_letters, static_lexicon_model, static_model
from pellucid import AnchorEmbedder, EnsembleEmbedder, Index
from pellucid.errors import InputError
from tiny_models import tiny_lexicon, tiny_sparse_encoder, tiny_transformer

TEXTS = [" ".join(np.random.default_rng(n).choice(WORDS, 6)) for n in range(30)] + ["a loan", "the doctor"]
IDS = [f"d{n}" for n in range(len(TEXTS))]
QUERIES = ["the cat on a mat", "loan", "river bank"]
MODELS = {
    "static": lambda folder: static_model(),
    "function": lambda folder: first_letters,
    "anchors": lambda folder: AnchorEmbedder(static_model(), ANCHORS),
    "ensemble": lambda folder: EnsembleEmbedder([MODELS["dense"](folder), static_model()]),
    "sparse": lambda folder: static_lexicon_model(),
    "dense": lambda folder: pellucid.load(tiny_transformer(folder, normalize=True)).with_reasons(None),
    "lexicon": lambda folder: tiny_lexicon(),
    "sparse encoder": lambda folder: pellucid.load(tiny_sparse_encoder(folder)),
    "late interaction": lambda folder: pellucid.load(tiny_sparse_encoder(folder, "MultiVectorEncoder")),
}


@pytest.fixture(scope="module", params=[None, *MODELS])
def part(request, tmp_path_factory):
    """The name of a part, and an index that has it beside BM25, with several segments and deleted documents."""
    folder = tmp_path_factory.mktemp("part")
    models = {} if request.param is None else {request.param: MODELS[request.param](folder / "model")}
    with Index.create(folder / "index", models) as index:
        for start in range(0, len(TEXTS), 8):
            index.add(TEXTS[start : start + 8], ids=IDS[start : start + 8])
        index.delete(["d3", "d17"])
        yield request.param or "bm25", index


def results(index, name, query):
    """What a search by one part finds: of each document its score, and its rows by name."""
    hits = index.search(query, 100, weights={name: 1})
    rows = {(hit.id, row.name): row.contribution for hit in hits for row in hit.explain().rows}
    return pytest.approx(rows | {hit.id: hit.score for hit in hits}, abs=1e-6)


@pytest.mark.parametrize("query", QUERIES)
def test_scores_are_sums_of_rows_and_those_of_the_texts(part, query):
    name, index = part
    hits = index.search(query, 100, weights={name: 1})
    for hit in hits:
        why = hit.explain()
        assert hit.score == pytest.approx(sum(row.contribution for row in why.rows), abs=1e-6)
        assert why.pair.scores([(query, hit.text)]) == pytest.approx([hit.score], abs=1e-5)
        assert index.score(query, hit.id, weights={name: 1}).score == hit.score == hit.parts[name]
        assert sum(hit.reasons.terms[name].values) == pytest.approx(hit.score, abs=1e-6)
        sizes = sorted((abs(row.contribution) for row in hit.reasons.top(10**6)), reverse=True)
        assert [abs(row.contribution) for row in hit.reasons.top(3)] == sizes[:3] and len(sizes) == len(hit.reasons)
        assert len({row.key for row in why.rows}) == len(why.rows)
        assert all(hit.reasons.text[start:end] for row in why.rows for start, end in row.spans2)
    if name != "bm25":
        model = index.snapshot().models[name].encoder
        queries, documents = model.encode_query([query]), model.encode_document([hit.text for hit in hits])
        own = 1.0 if model.similarity_fn_name == "cosine" else model.similarity(queries, queries).item()
        scores = np.array([hit.score for hit in hits])
        assert scores * own == pytest.approx(model.similarity(queries, documents)[0], abs=1e-4)


def test_scores_are_the_same_after_a_rebuild_and_when_opened_again(part):
    name, index = part
    before = {query: results(index, name, query) for query in QUERIES}
    assert index.verify() == []
    index.rebuild()
    is_given = name in ("dense", "ensemble", "function")  # the first two have no reasons to fit
    models = {name: index.snapshot().models[name].encoder} if is_given else {}
    with Index.open(index.folder, models) as opened:
        for query in QUERIES:
            assert results(index, name, query).expected == before[query] == results(opened, name, query).expected


def test_a_sparse_encoder_names_tokens_and_takes_vectors_as_they_are(tmp_path):
    model = pellucid.load(tiny_sparse_encoder(tmp_path / "model"))
    rows = model.encode_document(TEXTS)
    why = model.explain(QUERIES[0], TEXTS[0], role1="query", role2="document")
    assert why.exact and {row.name for row in why.rows} <= set(model.tokenizer.get_vocab())
    assert why.score == pytest.approx(model.similarity(model.encode_query(QUERIES[:1]), rows[:1]).item(), rel=1e-5)
    with Index.create(tmp_path / "index", {"tokens": model}, bm25=False) as index:
        index.add(TEXTS, ids=IDS, vectors={"tokens": rows})
        hit = index.search(QUERIES[0])[0]
        assert abs(hit.vectors["tokens"] - rows[int(hit.id[1:])]).max() < 1e-6
    assert pellucid.load(tmp_path / "index" / "models-1" / "tokens").family == "sparse-encoder"
    with pytest.raises(InputError, match="a mean of cosines"):
        EnsembleEmbedder([model, static_model()])


def test_late_interaction_splits_over_the_words_of_the_query(tmp_path):
    library_model = tiny_sparse_encoder(tmp_path / "model", "MultiVectorEncoder")
    model, query, text = pellucid.load(library_model), "A man riding, medicine!", "the doctor gave medicine to a boy"
    why = model.explain(query, text, role1="query", role2="document")
    encoded = library_model.encode_query([query]), library_model.encode_document([text])
    assert why.exact and why.score == pytest.approx(library_model.similarity(*encoded).item(), abs=1e-5)
    word = next(row for row in why.rows if row.parts == ("medicine",))
    assert [query[slice(*span)] for span in word.spans1] == ["medicine"] and word.name.startswith("medicine")
    with Index.create(tmp_path / "index", {"late": model}, bm25=False) as index:
        index.add([*TEXTS, text], ids=[*IDS, "own"], metadata=[{"n": n} for n in range(len(TEXTS) + 1)])
        index.add(["a man"], ids=["own"])
        index.delete(IDS[:20])  # more than half: the segment is written anew
        assert index.verify() == [] and len(index) == len(TEXTS) - 19
        assert index.search("a man", 1)[0].id == "own" and index.search("a man", 1)[0].score > 0.6
        assert {hit.id for hit in index.search(query, where={"n": {"lt": 22}})} == {"d20", "d21"}
        with pytest.raises(InputError, match="reasons are read from the texts"):
            index.add(["x"], vectors={"late": [[1.0]]})
    assert pellucid.load(tmp_path / "index" / "models-1" / "late").family == "multi-vector"
