"""The anchor family: cosines by hand, explanations that add up, folders that open, and what is refused."""

import numpy as np
import pytest

import pellucid
from families import count_animals, hashed, reopened
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.arrays import l2_normalize
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.errors import ModelFolderError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from refusals import refused
from tiny_models import tiny_transformer


@pytest.fixture
def animals():
    return AnchorEmbedder(count_animals, ["a cat", "a cat, a dog", "the cow"])


def anchors_of(count):
    return AnchorEmbedder(hashed, [f"anchor {n}" for n in range(count)])


def test_a_coordinate_is_a_cosine(animals):
    half = 0.5**0.5
    np.testing.assert_allclose(
        animals.encode(["cat", "dog dog", "cow and cat", "car", ""]),
        [[1, half, 0], [0, half, 0], [half, 0.5, half], [0, 0, 0], [0, 0, 0]],
        atol=1e-7,
    )  # fmt: skip
    assert animals.encode("cat").shape == (3,) and animals.encode("cat").dtype == np.float32
    assert (animals.encode([]).shape, animals.get_embedding_dimension(), animals.dimensions.names) == (
        (0, 3),
        3,
        ["a cat", "a cat, a dog", "the cow"],
    )


def test_an_explanation_by_hand(animals):
    """Coordinates (1, √½, 0) and (√½, ½, √½): lengths √1.5 and √1.25."""
    why = animals.explain("cat", "cow and cat")
    lengths = (1.5 * 1.25) ** 0.5
    assert {row.name: row.contribution * lengths for row in why.rows} == pytest.approx(
        {"a cat": 0.5**0.5, "a cat, a dog": 0.5**0.5 / 2}
    )
    assert why.score == pytest.approx(1.5 * 0.5**0.5 / lengths) and why.family == "anchors" and why.exact
    alone = animals.explain("cat")
    assert {row.kind for each in (why, alone) for row in each.rows} == {"dimension"}
    assert ({row.name: row.contribution for row in alone.rows}, alone.score) == (
        pytest.approx({"a cat": 2 / 3, "a cat, a dog": 1 / 3}),
        pytest.approx(1),
    )


def test_describe_names_the_closest_anchors(animals):
    assert animals.describe("cat") == "mostly about: a cat (1.00), a cat, a dog (0.71)"
    assert animals.describe("cow and cat", top_k=1) in ("mostly about: a cat (0.71)", "mostly about: the cow (0.71)")
    model = AnchorEmbedder(lambda texts: [[-1.0 if text == "no" else 1.0] for text in texts], "yes")
    assert model.dimensions.names == ["yes"] and model.encode("no").tolist() == [-1]
    assert model.describe("no") == "nothing this model knows"


WRONG_ENCODERS = [
    (lambda texts: count_animals(texts)[:, ::-1],
     r"by its vector for the first anchor, is another model .* \(cosine 0.000\)"),
    (lambda texts: np.ones((len(texts), 3)), "is another model"),
    (lambda texts: count_animals(texts) * np.nan, "model: the encoder .* gave NaN"),
    (lambda texts: count_animals(texts)[:, :2], "model: the encoder .* gives 2 dimensions"),
    (StaticEmbedder(Vocabulary(["a"]), np.ones((1, 3), np.float32)), "is another model"),
    ("static-en", "model: the encoder .* gives 256 dimensions"),
    (5, "an encoder is"),
]  # fmt: skip


def of_other_encoder(animals):
    animals.encoder = pellucid.load(lambda texts: count_animals(texts)[:, :2])
    animals.encode("cat")


def saved(model, folder, **options):
    model.save_pretrained(folder, **options)
    return folder


test_what_makes_no_anchor_model_is_refused = refused(
    *((lambda anchors=anchors: AnchorEmbedder(count_animals, anchors), message) for anchors, message in [
        ([], "at least one anchor text"),
        (["cat", "dog", "cat"], "dimensions 0 and 2 have the same name 'cat'"),
        (["a  cat", "dog", "a cat\n"], "dimensions 0 and 2 have the same name"),
        (["cat", "car"], r"maps anchor 1 \('car'\) to zero; leave it out"),
        (["cat", "car", "dog", "van"], r"maps anchor 1 \('car'\) to zero, and 1 more; leave it out"),
        (["cat", None], "text 1 is NoneType"),
        (5, "texts must be"),
    ]),
    (lambda: AnchorEmbedder(lambda texts: np.ones((len(texts), 2)), ["cat", " \n"]), "dimension 1 has an empty name"),
    *((lambda dimensions=dimensions, value=value: AnchorEmbedder.from_parts(
        count_animals, np.full((2, 2), value, np.float32), Dimensions(dimensions)), message)
      for dimensions, value, message in [
          ([Dimension("a", ("a",))], 1, "1 dimensions need as many vectors"),
          ([Dimension("a", ("a",)), Dimension("b")], 1, "needs its anchor text"),
          *(([Dimension(name, (name,)) for name in "ab"], value, "beyond 1e")
            for value in (np.nan, np.inf, -np.inf, 1e16)),
      ]),
    (of_other_encoder, "gives 2 dimensions, before it gave 3"),
    (lambda animals: animals.describe("cat", top_k=0), "top_k is 0"),
    *((lambda animals, strength=strength: animals.decorrelate(strength), "strength is") for strength in (
        -0.1, 1.1, float("nan"))),
    *((lambda animals, tmp_path, wrong=wrong: AnchorEmbedder.from_pretrained(
        saved(animals, tmp_path / "model"), encoder=wrong), message, ModelFolderError)
      for wrong, message in WRONG_ENCODERS),
    (lambda animals, tmp_path: pellucid.load(saved(animals, tmp_path / "model")),
     r"made with a function .*from_pretrained\(folder, encoder=function\)", ModelFolderError),
    (lambda fruit, tmp_path: pellucid.load(
        saved(AnchorEmbedder(fruit, "apple"), tmp_path / "model", encoder_name="no such model")),
     r"'no such model', which is not in the folder.* encoder=", ModelFolderError),
)  # fmt: skip


# --- decorrelation


def test_strength_0_changes_nothing_and_1_with_enough_anchors_gives_the_encoders_scores():
    model, queries = anchors_of(12), [f"text {n}" for n in range(20)]
    np.testing.assert_allclose(model.decorrelate(0).vectors, model.vectors, atol=1e-6)
    units = l2_normalize(hashed(queries))
    whole, plain = (each.similarity(*[each.encode(queries)] * 2) for each in (model.decorrelate(1), model))
    np.testing.assert_allclose(whole, units @ units.T, atol=1e-5)
    assert np.abs(plain - units @ units.T).max() > 0.1  # not by itself


def test_strengths_are_powers_of_the_overlap_of_few_anchors():
    """(A A')^(-1/4) A at half strength, computed another way: by the eigenvectors of A A'; at 1 no overlap is left."""
    model = anchors_of(5)
    sizes, vectors = np.linalg.eigh(model.vectors.astype(np.float64) @ model.vectors.T)
    expected = vectors * sizes**-0.25 @ vectors.T @ model.vectors
    expected /= np.linalg.norm(expected, axis=1).mean()
    np.testing.assert_allclose(model.decorrelate(0.5).vectors, expected, atol=1e-5)
    whole = model.decorrelate(1).vectors
    np.testing.assert_allclose(whole @ whole.T, np.eye(5), atol=1e-5)


def test_faithfulness_by_hand(animals):
    """Anchors (1, 0, 0), (√½, √½, 0), (0, 0, 1): what is left of the overlap of the first two is symmetric."""
    faithful = animals.decorrelate(1).faithfulness()
    np.testing.assert_allclose(faithful, [np.cos(np.pi / 8), np.cos(np.pi / 8), 1], atol=1e-6)
    np.testing.assert_allclose(animals.scale({"a cat": 0.5}).faithfulness(), 1, atol=1e-6)
    np.testing.assert_allclose(animals.merge("a cat", "the cow").faithfulness(), 1, atol=1e-6)


def test_decorrelating_keeps_the_mean_weight_and_what_was_scaled_to_zero():
    weighted, silenced = (anchors_of(5).scale(factors) for factors in ({0: 3, 1: 0.5}, {1: 0}))
    means = [weighted.decorrelate(strength).weights.mean() for strength in (0, 0.5, 1)]
    assert means == pytest.approx([6.5 / 5] * 3, rel=1e-5)
    assert silenced.decorrelate(0.5).encode("text")[1] == 0
    assert silenced.faithfulness()[1] == silenced.decorrelate(0.5).faithfulness()[1] == 0
    nothing = silenced.scale(dict.fromkeys(range(5), 0)).decorrelate(1)
    assert not nothing.encode("text").any() and nothing.describe("text") == "nothing this model knows"


# --- folders


def same(first, second, *, atol=1e-6):
    probes = ["cat", "cow and cat", "car", "the apple", "dog dog cat", ""]
    np.testing.assert_allclose(first.encode(probes), second.encode(probes), atol=atol)


CHANGES = {
    "plain": lambda model: model,
    "decorrelated": lambda model: model.decorrelate(0.7),
    "edited": lambda model: model.merge(0, 2).merge(0, 3, name="more").rename({1: "one"}).without(2),
    "weighted": lambda model: model.scale(dict(enumerate(np.linspace(0.5, 3, 6).tolist()))),
    "silenced": lambda model: model.scale({1: 0, 2: 1e-4}),
    "huge": lambda model: model.scale({1: 1e6}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_with_a_function_is_opened_with_the_function(tmp_path, change):
    model = CHANGES[change](anchors_of(6))
    opened = reopened(model, tmp_path / "model")
    np.testing.assert_allclose(opened.vectors, model.vectors, rtol=1e-3, atol=1e-6)  # float16 is allowed
    assert (opened.vectors.any(axis=1) == model.vectors.any(axis=1)).all()
    np.testing.assert_array_equal(reopened(opened, tmp_path / "again").vectors, opened.vectors)


def test_a_bundled_encoder_is_kept_by_name(tmp_path):
    model = AnchorEmbedder(pellucid.load("static-en"), ["the bank lends money", "a boat on the river"])
    model.save_pretrained(tmp_path / "model", encoder_name="static-en")
    assert sum(file.stat().st_size for file in (tmp_path / "model").rglob("*")) < 50_000
    np.testing.assert_allclose(pellucid.load(tmp_path / "model").encode("a loan"), model.encode("a loan"), atol=1e-3)
    model.save_pretrained(tmp_path / "other", encoder_name="no such model")
    assert AnchorEmbedder.from_pretrained(tmp_path / "other", encoder=model.encoder).dimensions.names


def test_a_reference_takes_the_place_of_a_copy(tmp_path, fruit):
    model = AnchorEmbedder(fruit, ["apple", "car"])
    model.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "encoder").is_dir() and (tmp_path / "model" / "modules.json").exists()
    model.encoder_name = "owner/fruit"  # as of a model that is opened by name
    model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model" / "encoder").exists() and not (tmp_path / "model" / "modules.json").exists()
    model.save_pretrained(tmp_path / "model", encoder_name="")
    assert (tmp_path / "model" / "modules.json").exists()


def test_every_file_of_a_folder_comes_from_the_hub(tmp_path, fruit, monkeypatch):
    """A download fetches by pattern; a snapshot in the cache consists of links."""
    from huggingface_hub.utils import filter_repo_objects

    model = AnchorEmbedder(fruit, ["apple pear", "the car"])
    cache = tmp_path / "models--owner--anchors"
    blobs, snapshot = cache / "blobs", cache / "snapshots" / "0"
    model.save_pretrained(blobs)

    def snapshot_download(repo_id, *, allow_patterns, local_files_only):
        assert repo_id == "owner/anchors"
        names = [str(file.relative_to(blobs)) for file in blobs.rglob("*") if file.is_file()]
        for name in filter_repo_objects(names, allow_patterns=allow_patterns):
            (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / name).symlink_to(blobs / name)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, file, **_: str(blobs / file))
    monkeypatch.chdir(tmp_path)
    same(pellucid.load("owner/anchors"), model)


# --- plain sentence-transformers

TEXTS = ["a cat on the mat", "river bank", "", "The CAT sat: loan", "zebra"]


@pytest.fixture(scope="module", params=[True, False], ids=["normalized", "unnormalized"])
def transformer(request, tmp_path_factory):
    return tiny_transformer(tmp_path_factory.mktemp("bert"), normalize=request.param)


@pytest.mark.parametrize("encoder", ["transformer", "static", "anchors"])
def test_plain_sentence_transformers_gives_our_coordinates(transformer, fruit, tmp_path, encoder):
    from sentence_transformers import SentenceTransformer

    inner = AnchorEmbedder(transformer, ["the cat sat", "bank loan", "river: the bank"])
    of = {"transformer": transformer, "static": fruit, "anchors": inner}[encoder]
    model = (
        AnchorEmbedder(of, ["apple: the cat sat", "the bank", "Bicycle car", "a pear on a mat"])
        .decorrelate(0.3)
        .scale({1: 2, 2: 0.5})
    )
    model.save_pretrained(tmp_path / "model")
    plain = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for way in ("encode", "encode_query", "encode_document"):
        for texts in (TEXTS, ["the apple", "Car, BICYCLE!", "pear pear car"]):
            np.testing.assert_allclose(getattr(plain, way)(texts), getattr(model, way)(texts), atol=1e-5)
    assert (np.abs(model.encode_query(TEXTS) - model.encode_document(TEXTS)).max() > 1e-3) == (encoder != "static")
    kinds = [type(module).__name__ for module in plain]
    assert kinds[-2:] == ["Normalize", "Dense"] and kinds.count("Normalize") == 1 + (encoder == "anchors")


def test_the_order_of_vectors_in_memory_changes_no_bit(tmp_path):
    """BLAS rounds otherwise by columns: an edited model, whose rows came so, was not itself when saved and opened."""
    model = pellucid.load("anchors-en-200")
    texts = ["a loan for a house", "the cat sat on the mat, and the dog too", "mortgages"]
    edited = model.without(3).scale({0: 0.5}).merge(1, 2)
    np.testing.assert_array_equal(reopened(edited, tmp_path / "model").encode(texts), edited.encode(texts))
    turned = AnchorEmbedder.from_parts(model.encoder, np.asfortranarray(model.vectors), model.dimensions)
    np.testing.assert_array_equal(turned.encode(texts), model.encode(texts))
    for kind in (np.float64, ">f4"):
        again = AnchorEmbedder.from_parts(model.encoder, model.vectors.astype(kind), model.dimensions)
        np.testing.assert_array_equal(again.encode(texts), model.encode(texts))
    by_columns = pellucid.load(lambda texts: np.asfortranarray(model.encode(texts)))
    np.testing.assert_array_equal(AnchorEmbedder(by_columns, texts).vectors, AnchorEmbedder(model, texts).vectors)
    assert edited.vectors.flags.c_contiguous and by_columns.encode(texts).flags.c_contiguous


def test_an_encoder_without_stock_modules_is_told_when_saved(fruit, tmp_path):
    model = AnchorEmbedder(pellucid.EnsembleEmbedder({"a": fruit, "b": fruit}), ["apple", "the car"])
    with pytest.warns(UserWarning, match=r"plain sentence-transformers will not open .*\(EnsembleEmbedder\)") as told:
        model.save_pretrained(tmp_path / "model")
    assert told[0].filename == __file__ and not (tmp_path / "model" / "modules.json").exists()
    same(pellucid.load(tmp_path / "model"), model, atol=1e-3)  # the rows are float16 where nobody else reads them
