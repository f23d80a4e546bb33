"""Libraries that take sentence-transformers models, given the bundled static model; each test needs its library."""

import inspect

import numpy as np
import pytest

import pellucid
from pellucid.evaluation import MtebEncoder, evaluate
from pellucid.evaluation.tasks import find_tasks, quiet
from pellucid.persistence.folder import locate
from tasks import write_sts

ANIMALS = [f"The {animal} sleeps and eats in the {place}" for animal in ("cat", "dog", "horse") for place in (
    "garden", "stable", "house", "field",
)]  # fmt: skip
MONEY = [f"The bank raised the {rate} on {loan}" for rate in ("interest", "fees", "price", "rate") for loan in (
    "mortgages", "house loans", "savings",
)]  # fmt: skip


@pytest.mark.full
def test_mteb_evaluates_the_model_as_it_is(static, tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    pairs = [(a, b, 5.0 - 4 * (a in MONEY) * (b in ANIMALS)) for a in MONEY[:6] for b in (*MONEY[6:9], *ANIMALS[:3])]
    write_sts(tmp_path / "data", rows=pairs)
    (task,) = find_tasks(tmp_path / "data")
    with quiet():
        done = mteb.evaluate(MtebEncoder(static), task.make(), cache=None, co2_tracker=False, show_progress_bar=False)
    score = done.task_results[0].get_score()
    assert score > 0.5
    (row,) = evaluate(static, data=tmp_path / "data", cache_dir=tmp_path / "cache", show_progress_bar=False).rows
    assert row.score == pytest.approx(100 * score, abs=1e-6)
    assert done.model_name == "pellucid/static-en"


@pytest.mark.needs("mteb")
@pytest.mark.full
@pytest.mark.parametrize("name", ["static-en", "lexicon-en", "anchors-en-200"])
def test_a_model_keeps_mtebs_protocol(name):
    from mteb.models import EncoderProtocol
    from mteb.types import EncodeKwargs

    opened = MtebEncoder(pellucid.load(name))
    assert isinstance(opened, EncoderProtocol)
    asked, taken = inspect.signature(EncoderProtocol.encode).parameters, inspect.signature(opened.encode).parameters
    known = {key for key, value in asked.items() if value.kind is value.KEYWORD_ONLY}
    assert known | set(EncodeKwargs.__annotations__) <= set(taken)
    first, second = opened.model.encode(ANIMALS), opened.model.encode(MONEY)
    assert (
        opened.similarity(first, second).shape,
        opened.similarity_pairwise(first, second).shape,
        opened.mteb_model_meta.name,
    ) == ((len(ANIMALS), len(MONEY)), (len(ANIMALS),), f"pellucid/{name}")


@pytest.mark.needs("mteb")
def test_mteb_tells_models_of_other_weights_apart(static):
    def revision(model):
        return MtebEncoder(model).mteb_model_meta.revision

    assert revision(static) == revision(pellucid.load("static-en"))
    assert revision(static.keep([0, 1, 2])) == revision(static.keep([0, 1, 2])) != revision(static)
    counted = pellucid.load(lambda texts: [[len(text)] for text in texts])
    assert revision(counted) != revision(counted)  # nothing tells what a function does


# sentence-transformers' evaluators and miners

PAIRS = [(a, b) for a in ANIMALS + MONEY for b in ANIMALS + MONEY if a < b][::5]
FIRSTS, SECONDS, SAME = [a for a, _ in PAIRS], [b for _, b in PAIRS], [(a in MONEY) == (b in MONEY) for a, b in PAIRS]
QUERIES = {"q1": "a cow eats grass in a field", "q2": "the interest on a mortgage"}
CORPUS = {str(n): text for n, text in enumerate(ANIMALS + MONEY)}
RELEVANT = {"q1": {str(n) for n in range(len(ANIMALS))}, "q2": {str(n) for n in range(len(ANIMALS), len(CORPUS))}}
RANKED = [
    {"query": QUERIES["q1"], "positive": ANIMALS[:3], "negative": MONEY[:3]},
    {"query": QUERIES["q2"], "positive": MONEY[3:6], "negative": ANIMALS[3:6]},
]
TRIPLETS = {"anchors": ANIMALS[:3], "positives": ANIMALS[3:6], "negatives": MONEY[:3]}
EVALUATORS = {
    "EmbeddingSimilarityEvaluator": ((FIRSTS, SECONDS, [float(same) for same in SAME]), {}),
    "BinaryClassificationEvaluator": ((FIRSTS, SECONDS, [int(same) for same in SAME]), {}),
    "TripletEvaluator": (tuple(TRIPLETS.values()), {}),
    "InformationRetrievalEvaluator": ((QUERIES, CORPUS, RELEVANT), {"corpus_chunk_size": 7}),
    "RerankingEvaluator": ((RANKED,), {}),
    "TranslationEvaluator": ((FIRSTS, FIRSTS), {}),
    "MSEEvaluator": ((FIRSTS, SECONDS), {"teacher_model": None}),
}
FIELDS = {"p1": ANIMALS[0], "p2": ANIMALS[0] + "s", "p3": MONEY[0], "p4": MONEY[0] + "."}
PARAPHRASES = {"ParaphraseMiningEvaluator": ((FIELDS, [("p1", "p2"), ("p3", "p4")]), {})}


@pytest.fixture(scope="module")
def stock():
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    return library.SentenceTransformer(str(locate("static-en")))


@pytest.mark.full
@pytest.mark.parametrize("name", [*EVALUATORS, *PARAPHRASES])
def test_sentence_transformers_evaluators_say_of_a_model_what_they_say_of_its_folder(static, stock, name, tmp_path):
    from sentence_transformers.sentence_transformer import evaluation

    given, options = (EVALUATORS | PARAPHRASES)[name]
    found = []
    for judged in (static, stock):
        made = getattr(evaluation, name)(*given, **options | {key: judged for key in options if key == "teacher_model"})
        found.append(made(judged, output_path=str(tmp_path)))
    assert set(found[0]) == set(found[1])
    for key, value in found[1].items():
        assert found[0][key] == pytest.approx(value, abs=0.02), key


@pytest.mark.needs("sentence_transformers")
@pytest.mark.full
@pytest.mark.parametrize("most", [None, 20])
@pytest.mark.parametrize("name", EVALUATORS)
def test_the_evaluators_of_sparse_encoders_take_a_sparse_model(name, most, tmp_path):
    from sentence_transformers.sparse_encoder import evaluation

    sparse = pellucid.load("lexicon-en")
    given, options = EVALUATORS[name]
    taught = {key: sparse for key in options if key == "teacher_model"}
    found = getattr(evaluation, f"Sparse{name}")(*given, **options | taught, max_active_dims=most)(
        sparse, str(tmp_path)
    )
    active = [value for key, value in found.items() if key.endswith("active_dims")]
    assert active and all(0 < value <= (most or sparse.get_embedding_dimension()) for value in active)
    ratios = [value for key, value in found.items() if key.endswith("sparsity_ratio")]
    assert len(ratios) == len(active) and all(0.9 < value < 1 for value in ratios)
    assert all(np.isfinite([*found.values()]))
