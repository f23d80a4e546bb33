"""Near-duplicates: what is found, beside a plain reference; groups, files, other families, bad input."""

import gzip
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from letters import SparseLetterEmbedder as Letters
from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.bulk import duplicates, near_duplicates, write_kept
from pellucid.bulk.signs import find_numbers, find_signed_names
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.errors import CorpusError, InputError, MissingExtraError
from pellucid.explain.explanation import Explanation
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from refusals import refused

WORDS = [start + chr(97 + number) for start in ("word", "term") for number in range(20)] + ["5", "7"]


@pytest.fixture(scope="module")
def model():
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 16)).astype(np.float32)
    vectors[41] = vectors[40] + 0.1  # 5 and 7 are nearly one
    return StaticEmbedder(Vocabulary(WORDS), vectors)


def random_texts(count, seed=1, words=WORDS):
    """Texts of few words, many of them alike, some equal, some unknown."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(words, draw.integers(2, 6))) for _ in range(count)]
    edited = [" ".join([*texts[n].split()[:-1], words[n % len(words)]]) for n in draw.integers(0, count, count)]
    mixed = texts + edited + [text.title() for text in texts[::5]] + texts[::7] + ["?!", "", "?!", "unheard of"]
    return [mixed[n] for n in draw.permutation(len(mixed))]


def plain(model, texts, threshold, same_numbers=False):
    """Return for each text that is not kept the number of the kept one and the score, by comparing in order."""
    rows, kept, found = model.encode(texts), [], {}
    scores = model.similarity(rows, rows).round(6)
    signs = [(find_signed_names(text), find_numbers(text) if same_numbers else ()) for text in texts]
    for number, text in enumerate(texts):
        first = texts.index(text)
        if first < number:
            found[number] = found.get(first, (first, 1.0))
            continue
        best = max([n for n in kept if signs[n] == signs[number]], key=lambda n: scores[n, number], default=None)
        if best is not None and scores[best, number] >= threshold:
            found[number] = (best, scores[best, number])
        else:
            kept.append(number)
    return found


def check(report, expected):
    assert {pair.duplicate for pair in report.pairs} == expected.keys()
    for pair in report.pairs:  # of two kept texts with one score either may be named
        assert pair.score == pytest.approx(expected[pair.duplicate][1], abs=3e-6)


@pytest.mark.parametrize("block", [7, 2048])
@pytest.mark.parametrize("threshold", [0.5, 0.9, 1.0])
def test_the_pairs_are_those_of_a_plain_comparison(model, monkeypatch, block, threshold):
    monkeypatch.setattr(near_duplicates, "_CHUNK_TEXTS", block)
    texts = random_texts(120)
    check(duplicates(texts, model, threshold=threshold), plain(model, texts, threshold))


@pytest.mark.needs("faiss")
@pytest.mark.full
@pytest.mark.parametrize("exact", [20, 60])
def test_cells_find_what_a_plain_comparison_does(model, monkeypatch, exact):
    monkeypatch.setattr(near_duplicates, "_CHUNK_TEXTS", 16)
    monkeypatch.setattr(near_duplicates, "_MAX_EXACT_ROWS", exact)
    monkeypatch.setattr(near_duplicates, "_N_PROBED_CELLS", 1000)
    texts = random_texts(150)
    for threshold, same_numbers in ((0.8, False), (1.0, False), (0.9, True)):
        found = duplicates(texts, model, threshold=threshold, same_numbers=same_numbers)
        check(found, plain(model, texts, threshold, same_numbers))


@pytest.mark.needs("faiss")
@pytest.mark.full
def test_cells_hold_the_rows_they_were_given(monkeypatch):
    monkeypatch.setattr(near_duplicates, "_MAX_EXACT_ROWS", 50)
    rows = np.random.default_rng(0).normal(size=(900, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    held, numbers = near_duplicates.KeptTexts(), np.arange(900)
    for start in range(0, 900, 30):
        held.add(rows[start : start + 30], numbers[start : start + 30] + 5, numbers[start : start + 30] % 3)
    assert held._rebuilt_at > 200  # made anew twice
    found, scores = held.nearest(rows, numbers % 3, 0.9)
    np.testing.assert_array_equal(found, numbers + 5)
    np.testing.assert_allclose(scores, 1, atol=near_duplicates._FLOAT16)


def test_only_rows_of_one_signature_and_above_the_threshold_are_found():
    held, rows = near_duplicates.KeptTexts(), np.eye(3, dtype=np.float32)
    assert held.nearest(rows[:2], np.zeros(2, np.int64), 0.5)[0].tolist() == [-1, -1]
    held.add(rows[:2], np.array([7, 8]), np.array([0, 1]))
    found, scores = held.nearest(rows, np.array([0, 0, 1]), 0.5)
    assert found.tolist() == [7, -1, -1] and scores.tolist() == [1, -np.inf, -np.inf]


def test_a_text_with_other_numbers_is_a_duplicate_unless_that_is_ruled_out(model):
    texts = ["worda wordb wordc 5", "worda wordb wordc 7", "Wordc, wordb: worda 5!"]
    found = duplicates(texts, model)
    assert [(pair.kept, pair.duplicate, pair.numbers_differ) for pair in found.pairs] == [(0, 1, True), (0, 2, False)]
    assert (found.pairs[0].only_kept, found.pairs[0].only_duplicate) == (("5",), ("7",))
    assert "The numbers differ in 1 pair" in found.to_text()
    strict = duplicates(texts, model, same_numbers=True)
    assert [(pair.kept, pair.duplicate) for pair in strict.pairs] == [(0, 2)]
    assert strict.pairs[0].difference == "case, punctuation or order"


OTHER_NUMBERS = [
    ("2024-01-02", "2024-02-01"), ("10.0.0.1", "1.0.0.10"), ("-5", "5"), ("+5", "-5"), ("1e5", "1e-5"),
    ("v1.10.2", "v1.2.10"), ("10 to 20", "20 to 10"), ("10:30", "10:03"), ("5-10", "10-5"), ("3/4", "4/3"),
    ("01.02.2024", "02.01.2024"), ("XJ-900/2", "XJ-900/3"), ("1.5", "15"), ("1.5", "1,5"), (".5", "5"),
    ("1.000", "1,000"), ("1.50", "1.5"), ("50%", "50"), ("$5", "€5"), ("$5", "5"), ("<5", ">5"), ("p < .05", "p > .05"),
    ("±5", "5"), ("18+", "18"), ("5k", "5m"), ("10²", "10³"), ("10⁻⁵", "10⁵"), ("10^5", "10^-5"), ("½", "¼"),
    ("\u22125", "5"), ("(-5)", "(5)"), ("x=-5", "x=5"), ("-$5", "$5"), ("2+3", "2-3"), ("٥", "٦"), ("٣/٤", "٤/٣"),
    ("+49 30 12", "+49 31 02"),
]  # fmt: skip
SAME_NUMBERS = [
    ("1,000", "1000"), ("1,000,000", "1.000.000"), ("1,000.5", "1.000,5"), ("1'000", "1000"), ("1\u202f000", "1000"),
    ("\u22125", "-5"), ("5 - 10", "5\u201310"), ("5!", "5"), ("(5),", "5"), ("5 kg", "5kg"), ("COVID-19", "covid 19"),
    ("50 %", "50%"), ("5 €", "€5"), ("٥", "5"), ("５", "5"), ("½", "1/2"), ("10²", "10^2"), ("p<.05", "P < 0.05"),
    ("1e5", "1E5"), ("#5", "5"), ("3 / 4", "3/4"), ("US$5", "$5"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), OTHER_NUMBERS)
def test_numbers_are_compared_with_their_signs_and_in_their_order(model, first, second):
    assert find_numbers(first) != find_numbers(second)
    texts = [f"worda wordb {first} wordc", f"worda wordb {second} wordc"]
    assert duplicates(texts, model, same_numbers=True, threshold=0.01).representative_indices == [0, 1]
    loose = duplicates(texts, model, threshold=0.01).pairs
    assert all(pair.numbers_differ and "punctuation" not in pair.difference for pair in loose)


@pytest.mark.parametrize(("first", "second"), SAME_NUMBERS)
def test_a_number_may_be_written_in_several_ways(first, second):
    assert find_numbers(f"of {first}") == find_numbers(f"Of {second}") != ()


@given(st.lists(st.integers(-(10**6), 10**6) | st.decimals(-1000, 1000, places=2), min_size=1, max_size=4), st.data())
def test_other_numbers_or_another_order_are_told(numbers, data):
    others = data.draw(st.permutations(numbers) | st.lists(st.integers(-99, 99), min_size=1, max_size=4))
    same = list(map(str, numbers)) == list(map(str, others))
    first, second = ("from " + " to ".join(map(str, several)) for several in (numbers, others))
    assert (find_numbers(first) == find_numbers(second)) == same


@pytest.mark.parametrize("digits", ["٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９"])
@given(number=st.decimals(-(10**9), 10**9, places=1))
def test_digits_of_every_script_are_the_same(digits, number):
    text = str(number)
    assert find_numbers(text.translate(dict(zip(map(ord, "0123456789"), digits)))) == find_numbers(text)


@pytest.mark.parametrize(
    ("first", "second"),
    [("C++", "C#"), ("C", "C++"), ("F#", "F"), (".NET", "net"), ("A+", "A-"), ("AB-", "AB"), ("O\u2212", "O+"),
     ("CD4+", "CD4-"), ("A*", "A"), ("Na+", "Na"), ("Notepad++", "Notepad")],
)  # fmt: skip
def test_names_in_signs_are_told_apart(first, second):
    every = StaticEmbedder(
        Vocabulary("c f net a ab o cd4 na notepad developer wanted".split()), np.ones((11, 3), np.float32)
    )
    assert duplicates([f"{first} developer wanted", f"{second} developer wanted"], every).representative_indices == [
        0,
        1,
    ]
    same = duplicates([f"{first} developer wanted", f"wanted: ({first}, developer)!"], every)
    assert same.representative_indices == [0] and same.pairs[0].difference == "case, punctuation or order"


@pytest.mark.parametrize(
    "text", ["pre- and post-war", "18+", "price*", "example.net", "1. word- 2", "#python @home", "- a"]
)
def test_other_signs_are_punctuation(text):
    assert find_signed_names(text) == ()


@pytest.mark.parametrize(
    "piece", [" ", "a", "1", "1,", "-", "1 ", "a+", "<", "A1", "1'", "1.000", "^", "1 + ", "²", "\u0661"]
)
def test_long_texts_take_time_in_proportion(piece):
    started = time.process_time()
    for text in (piece * 30_000, "5" + piece * 30_000):
        find_numbers(text)
        find_signed_names(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("seed", [1, 2])
def test_same_numbers_agrees_with_a_plain_comparison(model, seed):
    texts = random_texts(100, seed, words=[*WORDS[:6], "5", "7"])
    check(duplicates(texts, model, threshold=0.8, same_numbers=True), plain(model, texts, 0.8, True))


def test_every_removed_text_is_within_the_threshold_of_a_kept_one_also_in_a_chain():
    turns = np.linspace(0, np.pi / 2, 12)  # neighbours have a cosine of 0.99, the ends 0
    vectors = np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)
    words = [f"w{chr(97 + number)}" for number in range(12)]
    chain = StaticEmbedder(Vocabulary(words), vectors)
    found = duplicates(words, chain, threshold=0.95)
    assert len(found.representative_indices) > 1
    scores = chain.similarity(chain.encode(words), chain.encode([words[n] for n in found.representative_indices]))
    assert (scores.max(axis=1) >= 0.95).all()
    for group in found.groups:
        assert min(scores[list(group.duplicates), found.representative_indices.index(group.kept)]) == pytest.approx(
            group.least, abs=1e-6
        )


@pytest.mark.parametrize(
    ("texts", "threshold", "pairs", "equal_and_unknown"),
    [
        # many texts of one form make a pair each
        ([f"worda wordb wordc {'!' * number}" for number in range(100)], 0.9, [(0, n) for n in range(1, 100)], (0, 0)),
        # of texts without a known word only equal ones
        (["unheard", "never seen", "", "unheard", "..."], 0.01, [(0, 3)], (1, 4)),
        # an equal text of a removed one goes to the kept one
        (["worda wordb", "wordb worda worda wordb", "wordb worda worda wordb"], 0.9, [(0, 1), (0, 2)], (1, 0)),
    ],
)
def test_which_text_is_kept_in_the_place_of_which(model, texts, threshold, pairs, equal_and_unknown):
    found = duplicates(texts, model, threshold=threshold)
    assert [(pair.kept, pair.duplicate) for pair in found.pairs] == pairs
    assert (found.equal, found.unknown) == equal_and_unknown
    assert set(found.representative_indices) == set(range(len(texts))) - {duplicate for _, duplicate in pairs}


def test_a_pair_has_reasons_that_add_up_to_its_score(model):
    found = duplicates(random_texts(60), model)
    for number, pair in enumerate(found.pairs):
        why = found.explain(number)
        assert isinstance(why, Explanation)
        if why.coverage[0].known:
            assert sum(row.contribution for row in why.rows) == pytest.approx(pair.score, abs=2e-6)


def test_twice_is_the_same(model):
    texts = random_texts(100)
    assert duplicates(texts, model).to_json() == duplicates(iter(texts), model).to_json()


def test_other_families(model):
    check(duplicates(["worda"], model), {})
    texts = random_texts(60)
    for other in (AnchorEmbedder(model, WORDS[:5]), EnsembleEmbedder([model, AnchorEmbedder(model, WORDS[:9])])):
        check(duplicates(texts, other, threshold=0.8), plain(other, texts, 0.8))
    letters = random_texts(60, words=[*"abcdefghij"])
    check(duplicates(letters, Letters(), threshold=0.9), plain(Letters(), letters, 0.9))


class Broken(Letters):
    """A model that gives NaN for the last of some texts."""

    def _encode(self, texts, role, **options):
        rows = super()._encode(texts, role, **options)
        rows.data[-1] = np.nan
        return rows


@pytest.fixture
def without_faiss(monkeypatch):
    monkeypatch.setattr(near_duplicates, "_MAX_EXACT_ROWS", 3)
    monkeypatch.setitem(sys.modules, "faiss", None)


test_what_cannot_be_compared_is_refused = refused(
    *((lambda model, threshold=threshold: duplicates(["worda"], model, threshold=threshold), "threshold")
      for threshold in (0, -1, 1.01, math.nan, "0.9", None)),
    (lambda model: duplicates([], model), "no text"),
    (lambda model: duplicates(["worda", None], model), "item 1", CorpusError),
    (lambda model: duplicates(Path("absent.txt"), model), "not found", CorpusError),
    (lambda: duplicates(["worda"], len), r"the encoder \(len\)"),
    (lambda: duplicates(["a", "b", "c"], Broken()), "text 2"),
    (lambda model: duplicates(["worda"] * 2, model).explain(1), "the first is 0"),
    (lambda model, without_faiss: duplicates(WORDS, model), r"pellucid\[scale\]", MissingExtraError),
)  # fmt: skip


CORPUS = ["worda wordb", "Wordb worda!", "wordc", "wordc", "", "wordd worde wordf"]
LEFT = ["worda wordb", "wordc", "", "wordd worde wordf"]


@pytest.mark.parametrize("names", [("a.txt", "b.txt"), ("a.txt.gz", "b.txt"), ("a.txt", "a.txt")])
def test_what_is_left_of_a_text_file(model, tmp_path, names):
    source, target = (tmp_path / name for name in names)
    with (gzip.open if source.suffix == ".gz" else open)(source, "wt", encoding="utf-8") as file:
        file.write("\n".join(CORPUS) + "\n")
    write_kept(source, duplicates(source, model), target)
    with (gzip.open if target.suffix == ".gz" else open)(target, "rt", encoding="utf-8") as file:
        assert file.read() == "\n".join(LEFT) + "\n"


def test_another_corpus_or_format_is_refused_and_nothing_written(model, tmp_path):
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("\n".join(CORPUS) + "\n", encoding="utf-8")
    found = duplicates(source, model)
    with pytest.raises(InputError, match=r"\.txt"):
        write_kept(source, found, tmp_path / "b.jsonl")
    source.write_text("worda\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="has 1 texts, and 6 were expected"):
        write_kept(source, found, target)
    assert not target.exists()


def test_texts_that_differ_by_a_guessed_word_are_no_duplicates():
    texts = ["Latisha signed the contract", "Lakisha signed the contract", "latisha signed the contract!"]
    result = pellucid.duplicates(texts, threshold=0.95)
    assert [(pair.kept, pair.duplicate) for pair in result.pairs] == [(0, 2)]
    assert result.guessed == ("latisha", "lakisha") and "only guesses: latisha, lakisha." in " ".join(
        str(result).split()
    )
