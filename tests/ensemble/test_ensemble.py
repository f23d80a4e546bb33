"""Ensembles: the score is the weighted mean of the parts' cosines, exactly, through every door."""

from collections import Counter

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from families import cell, edit_table
from letters import LetterEmbedder, SparseLetterEmbedder
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import ModelFolderError
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import Row
from refusals import refused

TEXTS = ["the apple and the car", "a pear", "car bicycle", "unknown words", "", "bicycle"]


def lengths(texts):
    """A dense model that is no pellucid model: number of characters, and a constant."""
    return np.array([[len(text), 3.0] for text in texts])


def cosines(model, texts1, texts2):
    return model.similarity(model.encode(texts1), model.encode(texts2))


def cosines_of_lengths(texts1, texts2):
    first, second = (lengths(t) / np.linalg.norm(lengths(t), axis=1, keepdims=True) for t in (texts1, texts2))
    return first @ second.T


@pytest.fixture
def model(fruit):
    return EnsembleEmbedder({"words": fruit, "letters": LetterEmbedder(), "length": lengths}, [2, 1, 1])


def test_a_case_checked_by_hand(fruit):
    """Part 1 alone: cos(apple, pear) = 2 / sqrt(5). Part 2: letters a p p l e and p e a r share a, p, e."""
    model = EnsembleEmbedder([fruit, LetterEmbedder()], [3, 1])
    expected = 0.75 * 2 / 5**0.5 + 0.25 * (1 + 2 + 1) / (7**0.5 * 2)
    assert model.weights == [0.75, 0.25]
    embeddings = model.encode(["apple", "pear"])
    assert type(embeddings) is np.ndarray and embeddings.dtype == np.float32 and embeddings.shape == (2, 29)
    assert embeddings[0, :3] == pytest.approx([0.75**0.5, 0, 0])
    compared = model.similarity(embeddings[:1], embeddings[1:])[0, 0], model.explain("apple", "pear").score
    assert [embeddings[0] @ embeddings[1], *compared] == pytest.approx([expected] * 3, abs=1e-6)


@pytest.mark.parametrize("weights", [None, [1, 1, 1], [0.2, 0.7, 0.1], [0, 1, 2]])
def test_similarity_is_the_weighted_mean_of_cosines_also_where_a_part_knows_nothing(fruit, weights):
    model = EnsembleEmbedder([fruit, SparseLetterEmbedder(), lengths], weights)
    shares = np.array(weights or [1, 1, 1]) / sum(weights or [1, 1, 1])
    parts = [cosines(fruit, TEXTS, TEXTS), cosines(SparseLetterEmbedder(), TEXTS, TEXTS)]
    expected = np.tensordot(shares, [*parts, cosines_of_lengths(TEXTS, TEXTS)], axes=1)
    rows = model.encode(TEXTS)
    assert model.similarity(rows, rows) == pytest.approx(expected, abs=1e-6)
    assert (rows @ rows.T).toarray() == pytest.approx(expected, abs=1e-6)  # the dot product is the same
    assert model.similarity_pairwise(rows, rows[::-1]) == pytest.approx(np.diag(expected[:, ::-1]), abs=1e-6)
    assert model.similarity(rows[3], rows[0]).shape == (1, 1)
    assert expected[3, 3] == pytest.approx(1 - shares[0])  # the first part knows neither word of "unknown words"
    assert (rows.format, rows.dtype) == ("csr", np.float32) and (weights != [0, 1, 2] or not rows[:, :3].nnz)
    # Rows that a search engine brought to length 1 score as before.
    whole = rows / np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
    assert model.similarity(scipy.sparse.csr_matrix(whole), rows) == pytest.approx(expected, abs=1e-6)


@given(text1=st.text(max_size=40), text2=st.text(max_size=40))
def test_explanations_add_up_part_by_part(text1, text2):
    model = EnsembleEmbedder({"letters": LetterEmbedder(), "length": lengths}, [0.3, 0.7])
    why = model.explain(text1, text2)
    assert why.score == pytest.approx(float(cosines(model, [text1], [text2])[0, 0]), abs=1e-6)
    sums = Counter()
    for row in why.rows:
        sums[row.name.partition(": ")[0]] += row.contribution
    letters, length = cosines(LetterEmbedder(), [text1], [text2]), cosines_of_lengths([text1], [text2])
    assert [sums["letters"], sums["length"]] == pytest.approx([0.3 * letters[0, 0], 0.7 * length[0, 0]], abs=1e-6)
    assert why.exact and why.remainder == pytest.approx(0, abs=1e-9)


def test_rows_say_which_part_they_are_of(fruit):
    model = EnsembleEmbedder({"words": fruit, "length": EncoderEmbedder(lengths)})
    why, alone = (each.explain("The apple, unheard", "a pear") for each in (model, fruit))
    rows = {row.name: row for row in why.rows}
    assert {row.kind for row in why.rows} == {"embedding", "word pair"}
    assert set(rows) == {"length", *(f"words: {row.name}" for row in alone.rows)}
    pair = next(row for row in alone.rows if row.name == "apple × pear")
    assert rows["words: apple × pear"].contribution == pytest.approx(pair.contribution / 2)
    assert rows["words: apple × pear"].spans1 == pair.spans1 == ((4, 9),)
    assert why.unknown1 == ()  # the second part reads every text
    assert "length" in str(why) and "1 embedding and 2 word pairs adding up to the score exactly" in str(why)
    assert EnsembleEmbedder([fruit, fruit]).explain("The apple, unheard", "a pear").unknown_words() == ["unheard"]
    # what the parts that know it weigh
    assert (model.explain("apple").score, model.explain("zzz").score) == (pytest.approx(1), pytest.approx(0.5))


def test_a_part_that_cuts_rows_away_leaves_its_share_of_the_remainder(fruit):
    class Cutting(LetterEmbedder):
        def explain_queries(self, first, *second):
            return Explanation.from_terms("", ("a", "b"), 0.8, [Row("a", ("a",), 0.5, 0.0)], exact=False)

    why = EnsembleEmbedder([fruit, Cutting()], [1, 3]).explain("apple", "pear")
    assert not why.exact and why.remainder == pytest.approx(0.75 * 0.3)


def test_queries_and_documents_go_to_each_part_in_its_way():
    class Searching(LetterEmbedder):
        def _encode(self, texts, role, **options):
            return super()._encode([text + (role or "")[:1] for text in texts], role, **options)

    model = EnsembleEmbedder([Searching(), LetterEmbedder()])
    scores = model.similarity(model.encode_query(["a"]), model.encode_document(["a"]))
    assert scores[0, 0] == pytest.approx(0.5 * 0.5 + 0.5 * 1, abs=1e-6) and model.encode_query("a").shape == (52,)


def test_edits_reach_the_parts(fruit, model):
    names, own_names = model.dimensions.names, fruit.dimensions.names
    assert (names[3:5], names[-1]) == (["letters: a", "letters: b"], "length: dimension 1")
    pairs = (["apple car"], ["pear the"])
    edited = model.without(names[1]).rename({0: "words: first"})
    assert (len(edited.dimensions), edited.dimensions.names[0]) == (30, "words: first")
    assert edited.parts[1:] == model.parts[1:]  # untouched
    letters, own = cosines(LetterEmbedder(), *pairs), cosines(fruit.without(1), *pairs)
    expected = 0.5 * own + 0.25 * letters + 0.25 * cosines_of_lengths(*pairs)
    assert cosines(edited, *pairs) == pytest.approx(expected, abs=1e-6)
    factors = {0: 0.0, 2: 3.0}
    assert cosines(model.scale(factors).parts[0].model, *pairs) == pytest.approx(cosines(fruit.scale(factors), *pairs))
    merged, name = model.merge(0, 2), f"{own_names[0]} + {own_names[2]}"
    assert (merged.parts[0].model.dimensions.names[0], merged.dimensions.names[0]) == (name, f"words: {name}")


def test_a_part_without_dimensions_leaves_the_ensemble(fruit, model):
    names = EnsembleEmbedder([fruit, fruit, lengths, LetterEmbedder()]).names  # after what they are
    assert names == ["static", "static 2", "lengths", "letters"]
    left = model.without([name for name in model.dimensions.names if name.startswith("length: ")])
    assert (left.names, left.weights) == (["words", "letters"], pytest.approx([2 / 3, 1 / 3]))
    assert (model.keep(0, 1).names, model.with_weights([0, 0, 5]).weights) == (["words"], [0, 0, 1])


def test_a_name_that_a_person_changed_in_the_table_of_a_part_counts(fruit, tmp_path):
    EnsembleEmbedder({"words": fruit, "anchors": AnchorEmbedder(fruit, ["apple", "car"])}).save_pretrained(
        tmp_path / "m"
    )
    edit_table(tmp_path / "m" / "part_1", cell(0, 1, "fruit"))
    assert "anchors: fruit" in pellucid.load(tmp_path / "m").dimensions.names


def saved(fruit, folder):
    EnsembleEmbedder({"words": fruit, "length": lengths}, [1, 3]).save_pretrained(folder)
    return folder


def with_another_part(fruit, folder):
    fruit.without(0).save_pretrained(saved(fruit, folder) / "part_0")
    return folder


test_what_is_no_ensemble_and_what_it_cannot_do_is_refused = refused(
    *((lambda models=models, weights=weights: EnsembleEmbedder(models, weights), message)
      for models, weights, message in [
          ([], None, "at least one model"),
          ([lengths, lengths], [1], "2 models need as many"),
          ([lengths, lengths], [-1, 2], "none negative"),
          ([lengths], [0], "one above 0"),
          *(([lengths] * 2, [1, weight], "none negative") for weight in (np.nan, np.inf, 1e308, 10**400, "x", None)),
          ({"a: b": lengths}, None, "without ': ' in it"),
          ({"": lengths}, None, "a name is one line"),
          ([5], None, "an encoder is a SentenceTransformer"),
          ("static-en", None, "give \\[model, model\\]"),
          ([lambda texts: [[float("nan")]] * len(texts)], None, "NaN"),
      ]),
    (lambda fruit: EnsembleEmbedder([fruit]).similarity(np.ones((1, 2)), np.ones((1, 3))),
     "the embeddings have 2 dimensions and this ensemble 3"),
    (lambda model: model.encode_document(["a", None]), "text 1 is"),
    (lambda model: model.merge(0, 5), "merged of different parts"),
    (lambda model: model.scale({"length: dimension 0": 0.5}),
     "'length': the dimensions of a encoder model cannot be edited; leave out"),
    (lambda model: model.without("letters: bx"), "did you mean 'letters: x'"),
    (lambda fruit, tmp_path: pellucid.load(saved(fruit, tmp_path / "m")), "'length' was a function", ModelFolderError),
    *((lambda fruit, tmp_path, unchecked, parts=parts, folder=folder: EnsembleEmbedder.from_pretrained(
        folder(fruit, tmp_path / "m"), parts=parts), message, ModelFolderError)
      for folder, parts, message in [
        (saved, {"length": LetterEmbedder()}, "another model than the one that it was made with"),
        (with_another_part, {"length": lengths}, "'words' is another model"),
        (saved, {"x": lengths}, "no part 'x'"),
    ]),
)  # fmt: skip
