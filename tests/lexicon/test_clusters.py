"""Clusters of a vocabulary: who is with whom, what they are called, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE, WordLevel

from pellucid import cluster_vocabulary
from pellucid.core.dimensions import read_dimensions, write_dimensions
from pellucid.transformer.tokenwords import Rank, readable, vocabulary_of
from refusals import refused

_RNG = np.random.default_rng(0)


def _around(*centres, noise=0.05):
    """One row near each of the given axes of four dimensions."""
    rows = np.eye(4, dtype=np.float32)[list(centres)]
    return rows + _RNG.normal(0, noise, rows.shape).astype(np.float32)


_BERT = ["[PAD]", "[unused1]", "review", "##view", "reviews", "paris", "rome", "##bed", "!", "?", "1995"]
_BERT_ROWS = _around(0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 1)


def _bert(k=4, **options):
    return cluster_vocabulary(_BERT_ROWS, _tokenizer(_BERT, special=["[PAD]"]), k, **options)


def _tokenizer(tokens, special=()):
    tokenizer = Tokenizer(WordLevel({token: number for number, token in enumerate(tokens)}, tokens[0]))
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def test_groups_names_and_words():
    clusters = _bert()
    home = clusters.assignment[_BERT.index("review")]
    assert [token for token, c in zip(_BERT, clusters.assignment) if c == home] == ["review", "##view", "reviews"]
    assert set(clusters.words[home][:2]) == {"review", "reviews"} and clusters.words[home][2] == "…view"
    assert set(clusters.names[home].split(", ")) == {"review", "reviews"}  # never the shard
    places = clusters.assignment[_BERT.index("rome")]
    assert set(clusters.names[places].split(", ")) == {"paris", "rome"}  # words before numbers
    assert clusters.words[places][2] == "1995"
    assert clusters.names[clusters.assignment[_BERT.index("##bed")]] == "…bed"  # where there is nothing else
    assert clusters.assignment[:2].tolist() == [-1, -1]  # [PAD], [unused1]
    assert sorted(np.bincount(clusters.assignment[2:]).tolist()) == [1, 2, 3, 3]
    assert clusters.dimensions.names == clusters.names and clusters.dimensions[home].about == clusters.words[home]


def test_centroids_are_the_means_of_the_rows():
    for unit_rows in (True, False):
        clusters = _bert(unit_rows=unit_rows)
        for number, centroid in enumerate(clusters.centroids):
            np.testing.assert_allclose(centroid, _BERT_ROWS[clusters.assignment == number].mean(axis=0), rtol=1e-5)
    assert clusters.centroids.dtype == np.float32 and clusters.assignment.dtype == np.int64


def test_unit_rows_groups_by_direction():
    rows = np.array([[1, 0.1], [9, 0.0], [0.0, 1], [0.1, 9]], np.float32)
    tokens = ["apple", "pear", "car", "bicycle"]
    by_direction = cluster_vocabulary(rows, tokens, 2).assignment
    assert by_direction[0] == by_direction[1] != by_direction[2] == by_direction[3]
    as_they_are = cluster_vocabulary(rows, tokens, 3, unit_rows=False).assignment
    assert as_they_are[0] == as_they_are[2] != as_they_are[1]  # the two short rows


def test_one_seed_one_result():
    rows = _RNG.normal(size=(300, 8)).astype(np.float32)
    tokens = [f"t{number}" for number in range(300)]
    first, second, third = (cluster_vocabulary(rows, tokens, 40, seed=seed) for seed in (3, 3, 4))
    assert (first.assignment == second.assignment).all() and first.names == second.names
    assert (first.assignment != third.assignment).any()


def test_no_clustering():
    clusters = _bert(None)
    kept = clusters.assignment >= 0
    assert kept.sum() == len(clusters) == 9 and clusters.assignment[kept].tolist() == list(range(9))
    np.testing.assert_array_equal(clusters.centroids, _BERT_ROWS[kept])
    assert clusters.names == ["review", "…view", "reviews", "paris", "rome", "…bed", "!", "?", "1995"]


def test_names_differ_and_the_best_formed_keeps_the_plain_one():
    clusters = cluster_vocabulary(np.eye(4, dtype=np.float32), ["dog", "Ġdog", "Ġcat", "Ġdog"], None)
    assert clusters.names == ["dog (3)", "dog", "cat", "dog (2)"]


# --- Tokens as a reader sees them -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "special", "expected"),
    [
        pytest.param(
            ["Ġdog", "dog", "Dog", "ress", "Ġrecomm", "Ġ12", "Ċ", "ĠĠ", "!", "Ġ!", "é", "Ã©", "Ã", "<|end|>"],
            {13},
            [
                ("dog", Rank.WORD),
                ("dog", Rank.INNER),  # "hotdog"
                ("Dog", Rank.WORDLIKE),  # a text may begin with it
                ("…ress", Rank.SHARD),
                ("recomm", Rank.WORDLIKE),
                ("12", Rank.NUMBER),
                ("\\n", Rank.SIGN),
                ("␣␣", Rank.SIGN),
                ("!", Rank.SIGN),
                ("!", Rank.SIGN),
                ("", Rank.NONE),  # the byte E9, which is no character
                ("…é", Rank.SHARD),
                ("", Rank.NONE),  # the first byte of a character
                ("", Rank.NONE),
            ],
            id="byte-level",
        ),
        pytest.param(
            ["<s>", "▁dog", "dog", "dogs", "<0xE2>", "▁", "▁don't", "▁東京", "…"],
            {0},
            [
                ("", Rank.NONE),
                ("dog", Rank.WORD),
                ("dog", Rank.INNER),
                ("…dogs", Rank.SHARD),
                ("", Rank.NONE),
                ("␣", Rank.SIGN),
                ("don't", Rank.WORDLIKE),
                ("東京", Rank.WORDLIKE),
                ("…", Rank.SIGN),
            ],
            id="sentencepiece",
        ),
        pytest.param(
            ["[CLS]", "dog", "##dog", "##s", "##", "[unused42]", "a", "été", "x2", ""],
            {0},
            [
                ("", Rank.NONE),
                ("dog", Rank.WORD),
                ("…dog", Rank.SHARD),
                ("…s", Rank.SHARD),
                ("##", Rank.SIGN),
                ("", Rank.NONE),
                ("a", Rank.NUMBER),
                ("été", Rank.WORDLIKE),
                ("x2", Rank.NUMBER),
                ("", Rank.NONE),
            ],
            id="wordpiece",
        ),
        pytest.param(["dog", "xqzt"], (), [("dog", Rank.WORD), ("xqzt", Rank.WORDLIKE)], id="no marks"),
    ],
)
def test_how_tokens_read(tokens, special, expected):
    assert [tuple(token) for token in readable(tokens, special)] == expected


@given(st.lists(st.text(max_size=6), max_size=30))
def test_any_tokens_get_different_names_that_survive_a_table(tmp_path_factory, tokens):
    read = readable(tokens)
    assert all((token.rank == Rank.NONE) == (token.text == "") for token in read)
    if not any(token.text for token in read):
        return
    clusters = cluster_vocabulary(np.eye(len(tokens), dtype=np.float32), tokens, None)
    assert len(set(clusters.names)) == len(clusters.names)
    path = tmp_path_factory.mktemp("clusters") / "dimensions.tsv"
    write_dimensions(path, clusters.dimensions)
    assert read_dimensions(path, len(clusters), clusters.words)[0].names == clusters.names


def test_the_vocabulary_of_a_tokenizer():
    tokenizer = Tokenizer(BPE({"a": 0, "b": 1}, []))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.add_tokens([AddedToken("new word")])
    assert vocabulary_of(tokenizer) == (["a", "b", "<s>", "new word"], {2})
    fast = pytest.importorskip("transformers").PreTrainedTokenizerFast
    wrapped = fast(tokenizer_object=_tokenizer(["<unk>", "dog", "</s>"]), eos_token="</s>")
    assert vocabulary_of(wrapped) == (["<unk>", "dog", "</s>"], {2})


# --- What is refused --------------------------------------------------------------------------------------------------

_TWENTY = [f"t{number}" for number in range(20)]


def _ones(rows):
    return np.ones((rows, 2), np.float32)


test_what_makes_no_clusters_is_refused = refused(
    *((lambda k=k: _bert(k), "k is ") for k in (0, -1, 2.5, True, "4")),
    (lambda: _bert(10), "10 clusters cannot be made of 9 different tokens"),
    (lambda: cluster_vocabulary(_ones(5), list("abcde"), 2), "2 clusters cannot be made of 1 different"),
    (lambda: cluster_vocabulary(_ones(19), _TWENTY, 2), r"19 rows and the tokenizer 20 tokens.*resize"),
    (lambda: cluster_vocabulary(_ones(4117), _TWENTY, 2), "4,117 rows and the tokenizer 20 tokens"),
    (lambda: cluster_vocabulary(np.ones(3, np.float32), list("abc"), 1), "shape"),
    (
        lambda: cluster_vocabulary(np.array([[1, 1], [1, np.nan], [1, 1]], np.float32), list("abc"), 1),
        "1 rows hold NaN or infinity, the first is row 1",
    ),
    (lambda: replace(_bert(), names=["a", "b", "c"]), "3 names and 4 lists"),
    (lambda: replace(_bert(), assignment=_bert().assignment + 1), "clusters -1 to 3"),
    (lambda: vocabulary_of(3), "a tokenizer of transformers or tokenizers is needed"),
)  # fmt: skip


def test_spare_rows_have_no_cluster_and_tensors_are_taken():
    torch = pytest.importorskip("torch")
    padded = np.zeros((64, 2), np.float32)
    padded[:20] = _RNG.normal(size=(20, 2))
    rows = torch.nn.Parameter(torch.from_numpy(padded).bfloat16())
    assert cluster_vocabulary(rows, _TWENTY, 2).assignment[20:].tolist() == [-1] * 44


# --- A real vocabulary ------------------------------------------------------------------------------------------------


def test_a_real_vocabulary_has_readable_names(shared):
    """The small GPT-Neo: whole words first, in each of 1,000 clusters that has one."""
    folder = shared / "data" / "lm" / "gpt-neo-3m-stories"
    if not folder.is_dir():
        pytest.skip("the small language model is not there")
    rows = load_file(folder / "model.safetensors")["transformer.wte.weight"].astype(np.float32)
    clusters = cluster_vocabulary(rows, Tokenizer.from_file(str(folder / "tokenizer.json")), 1000, iterations=5)
    sizes = np.bincount(clusters.assignment[clusters.assignment >= 0], minlength=1000)
    assert sizes.all() and sizes.sum() > 13_000
    for name, words in zip(clusters.names, clusters.words):
        assert name.startswith("…") == words[0].startswith("…")
    token = {word: number for number, words in enumerate(clusters.words) for word in words}
    assert token["invited"] == token["invites"] != token["David"]
