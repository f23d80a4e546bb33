"""How anchors are chosen: the searches against plain references, the filter rule by rule, runs that are cut off."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from families import letter_pairs as encode
from pellucid.anchors import candidates as candidatestore
from pellucid.anchors import sampling
from pellucid.anchors.candidates import CandidateSettings, Filtered, candidate_texts, is_sentence
from pellucid.anchors.sampling import choose_anchors, farthest_points, kmeans_points, uniform_points
from pellucid.core.arrays import l2_normalize
from pellucid.errors import InputError, PellucidError
from pellucid.native import farthest
from pellucid.text.tables import read_texts
from points import clusters, small_numbers
from refusals import refused
from resuming import assert_damage_is_refused, reversed_lines, stop_at_write, stopped_at_writes

# --- Farthest point sampling ------------------------------------------------------------------------------------------


def assert_farthest(vectors, picks, start):
    """Check the definition: each pick after the first ones is, but for rounding, the least similar to those before."""
    rows = vectors.astype(np.float64)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    largest = np.where(rows.any(axis=1), -np.inf, np.inf)
    for number, pick in enumerate(picks):
        assert pick == start[number] if number < len(start) else largest[pick] <= largest.min() + 1e-6
        largest = np.maximum(largest, units @ units[pick])
        largest[picks[: number + 1]] = np.inf


real_numbers = st.builds(
    lambda seed, dimension: np.random.default_rng(seed).normal(size=(200, dimension)).astype(np.float16),
    st.integers(0, 2**32 - 1),
    st.integers(1, 100),
)


@given(vectors=small_numbers | real_numbers, dtype=st.sampled_from([np.float16, np.float32]), data=st.data())
def test_farthest_points_are_those_of_the_definition_with_ties_and_duplicates(vectors, dtype, data):
    usable = np.flatnonzero(vectors.any(axis=1)).tolist()
    if usable:
        n = data.draw(st.integers(1, min(len(usable), 40)))
        start = data.draw(st.lists(st.sampled_from(usable), min_size=1, max_size=n, unique=True))
        picks = farthest_points(vectors.astype(dtype), n, start=start).tolist()
        assert len(picks) == n
        assert_farthest(vectors, picks, start)


def test_farthest_points_reach_all_directions():
    """By hand: from east the opposite comes first, then what lies between."""
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 3], [-2, 0], [0, -1], [1, 1]], np.float32)
    assert farthest_points(vectors, 4, start=0).tolist() == [0, 3, 2, 4]


def test_threads_and_the_number_of_picks_change_nothing(monkeypatch):
    vectors = clusters(dtype=np.float16)
    picks = farthest_points(vectors, 200).tolist()
    monkeypatch.setattr(farthest, "_THREAD_ROWS", 64)
    monkeypatch.setenv("PELLUCID_THREADS", "3")
    assert farthest_points(vectors, 200).tolist() == picks and farthest_points(vectors, 30).tolist() == picks[:30]


def test_most_similarities_are_never_computed():
    vectors = clusters()
    with farthest.FarthestPoints(vectors, 200) as search:
        assert search.measure() is None
        search.take(0)
        while len(search.picks) < 200:
            search.take(search.farthest())
    assert_farthest(vectors, search.picks, [0])
    assert search.n_products < 0.5 * 200 * len(vectors)


def test_every_float16_is_read_exactly():
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[np.isfinite(bits.view(np.float16))]
    with farthest.FarthestPoints(bits[:, None], 1) as search:
        for row in range(0, len(bits), 7):
            search.picks.clear()
            search.take(row)
            expected = bits[row : row + 1].view(np.float16).astype(np.float32)
            assert search._vectors[0, :1].tobytes() == expected.tobytes()  # the sign of 0 too


def test_lengths_and_places_in_memory_do_not_matter(tmp_path):
    vectors = clusters(1000, dtype=np.float16)
    np.save(tmp_path / "v.npy", vectors)
    picks, wide = farthest_points(vectors, 20).tolist(), vectors.astype(np.float32)
    scaled = (wide * 2.0 ** np.random.default_rng(0).integers(-30, 30, size=(1000, 1))).astype(np.float32)
    for same in (np.load(tmp_path / "v.npy", mmap_mode="r"), np.asfortranarray(vectors), vectors.astype(">f2"), scaled):
        assert farthest_points(same, 20).tolist() == picks


def test_the_seed_draws_the_start_and_zeros_are_never_picked():
    vectors = clusters(100)
    vectors[::2] = 0
    assert len({int(farthest_points(vectors, 1, seed=seed)[0]) for seed in range(20)}) > 5
    assert sorted(farthest_points(vectors, 50)) == list(range(1, 100, 2))


def broken(value, dtype):
    vectors = clusters(5000, dtype=dtype)
    vectors[4321, 3] = vectors[4400, 0] = value
    return vectors


test_points_that_cannot_be_picked_are_refused = refused(
    *(
        (lambda change=change: farthest_points(**{"vectors": clusters(10), "n": 2, **change}), message)
        for change, message in [
            ({"n": 0}, "n is 0"),
            ({"n": True}, "n is True"),
            ({"n": 11}, "only 10 vectors"),
            ({"start": 10}, "start is 10"),
            ({"start": -1}, "start is -1"),
            ({"start": [1, 1]}, "start has 2 rows"),
            ({"start": [1, 2, 3]}, "start has 3 rows"),
            ({"vectors": np.zeros((4, 2))}, "float64"),
            ({"vectors": np.zeros(4, np.float32)}, r"shape \(4,\)"),
            *(
                ({"vectors": broken(value, dtype)}, "row 4321 ")
                for value in (np.nan, np.inf, -np.inf)
                for dtype in (np.float16, np.float32)
            ),
            ({"vectors": clusters(10) * np.float32([[0], [1]] * 5), "n": 6}, "only 5 of 10 vectors are not zero"),
        ]
    ),
    (lambda: uniform_points(np.zeros((3, 1)), 4), "only 3 vectors"),
)


# --- Uniform and KMeans -----------------------------------------------------------------------------------------------


def test_uniform_points():
    points = uniform_points(np.zeros((1000, 2)), 300, seed=4)
    assert len(set(points.tolist()) & set(range(1000))) == 300
    assert uniform_points(np.zeros((1000, 2), np.float16), 20, seed=4).tolist() == points[:20].tolist()
    draws = [uniform_points(np.zeros((10, 1)), 2, seed=seed) for seed in range(2000)]
    assert (abs(np.bincount(np.concatenate(draws), minlength=10) - 400) < 90).all()  # 5 standard deviations


def test_kmeans_takes_the_nearest_row_to_each_cluster():
    rng = np.random.default_rng(0)
    directions = np.eye(6, 20)
    vectors = np.concatenate([direction + 0.1 * rng.normal(size=(50, 20)) for direction in directions])
    vectors[np.arange(6) * 50 + 9] = directions * 4  # the middle of each, of another length
    picks = kmeans_points(vectors.astype(np.float16), 6)
    assert sorted(pick // 50 for pick in picks) == list(range(6))
    units = l2_normalize(vectors)
    for pick in picks:
        members = units[pick // 50 * 50 : pick // 50 * 50 + 50]
        mean = members.mean(axis=0)
        assert units[pick] @ mean >= np.sort(members @ mean)[-3]


def test_kmeans_picks_are_distinct_even_if_vectors_are_not():
    assert len(set(kmeans_points(np.repeat(np.eye(3, dtype=np.float32), 10, axis=0), 8).tolist())) == 8


def test_nearest_rows_are_found_across_blocks(monkeypatch):
    vectors = clusters(500)
    monkeypatch.setattr(sampling, "_BLOCK_ROWS", 64)
    assert sampling._nearest_distinct(vectors, l2_normalize(vectors)[[450, 3, 77]]).tolist() == [450, 3, 77]


# --- The filter -------------------------------------------------------------------------------------------------------

BROKEN = {  # what each rule drops, of the kinds found among published anchors
    "words": "Yes indeed.",
    "control characters": "A line that is broken\nin the middle.",
    "link": "You can buy this lamp at http://shop.example/dp/B000123 today.",
    "no sentence": "storage room in the cellar of a house",
    "markup": "Set the &nbsp; entity between <b>two</b> words.",
    "says little": "They may never have been there today.",
    "mojibake": "The cafÃ© was closed, but itâ€™s open again now.",
    "language": "Wir haben gestern im Garten gesessen und Kuchen gegessen.",
}
GOOD = [
    "The children are playing in the garden.",
    "How long does it take to learn to swim?",
    '"I never said that," the doctor answered.',
    "In 2014, 3 of 10 households had a café nearby (or a pub).",
    "“Nobody knows,” he wrote to his sister.",
    "It costs $20, which isn't much for a lamp!",
    "The farmer's wife said “yes.”",
]


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_drops_its_own(rule):
    filtered = Filtered()
    assert list(candidate_texts([*GOOD, BROKEN[rule]], filtered=filtered)) == GOOD
    assert {name: count for name, count in filtered.dropped.items() if count} == {rule: 1}
    assert str(filtered) == f"{len(GOOD)} of {len(GOOD) + 1} texts left (dropped: 1 {rule})"


@pytest.mark.parametrize(
    "text",
    [
        "Write to me at someone@post.example about it.",
        "Call the office at 555 0134 or 020-555-0134 now.",
        "Их адрес был в письме. Dim x As Integer",
        "he began in the middle of it.",
        "It has no end because someone cut",
        "The firm was founded by W. H.",
        "She met Dr.",
        'He said "stop and went on.',
        "This one (of them never closes.",
        "The words , they are loose .",
        "THIS IS WHAT SHOUTING LOOKS LIKE.",
        "12 43 9 88 1,000 2,000 x.",
        "The text goes on .. and on.",
        "A zero\u200bwidth space is hidden here.",
        "A part is \ufffd gone for ever.",
        "Two sentences.Without a space between them.",
        "A: That will be fine with me.",
        "Stage two Stage two is the shorter one.",
        "It takes six'turns'of the wire.",
        "The office is open on 634 - 6102 all day.",
    ],
)
def test_unreadable_texts_are_dropped(text):
    assert list(candidate_texts([*GOOD, text])) == GOOD


FEVER = 'Fever and a rash are signs of measles. A doctor (Smith) said: "Stay in bed." '
FEVER += "The children drink water at noon. " * 9


@pytest.mark.parametrize(
    ("texts", "settings", "left"),
    [
        # a long text gives its sentences
        ([GOOD[0], FEVER], {}, [
            GOOD[0], "Fever and a rash are signs of measles.", 'A doctor (Smith) said: "Stay in bed."',
            "The children drink water at noon."]),
        ([GOOD[0], FEVER], {"words": None}, [GOOD[0], FEVER.strip()]),
        # a corpus without sentences is recognised
        (["python list comprehension syntax", "merge branches with git", "what is it"], {}, [
            "python list comprehension syntax", "merge branches with git"]),
        (["python list comprehension syntax", *GOOD], {}, GOOD),
        # near-duplicates by their text
        (["I need a table for 4 people.", "I need a table for 12 people!", "I need a table for four people."], {}, [
            "I need a table for 4 people.", "I need a table for four people."]),
        (["I need a table for 4 people.", "I need a table for 12 people!"], {"readable": False}, [
            "I need a table for 4 people.", "I need a table for 12 people!"]),
        # other languages, and no rules
        ([BROKEN["language"], GOOD[0]], {"language": "de"}, [BROKEN["language"]]),
        ([*BROKEN.values(), *GOOD, " ", BROKEN["words"]], {"words": None, "language": None, "readable": False}, [
            *BROKEN.values(), *GOOD]),
    ],
)  # fmt: skip
def test_candidates_of_some_texts(texts, settings, left):
    assert list(candidate_texts(texts, CandidateSettings(**settings))) == left


def test_sentences_of_other_scripts_are_some():
    assert is_sentence("我们明天去学校。") and is_sentence("¿Dónde está la biblioteca?")


# --- All together -----------------------------------------------------------------------------------------------------

SUBJECTS = ("The farmer", "A pilot", "My sister", "The judge", "Every child", "An old dog")
DEEDS = ("paints", "finds", "forgets", "repairs", "sells", "admires")
THINGS = ("the fence", "a letter", "two apples", "the radio", "our house", "some music", "the garden", "a bicycle")
SENTENCES = [f"{who} {does} {what} today." for who in SUBJECTS for does in DEEDS for what in THINGS]


@pytest.mark.parametrize("method", ["fps", "uniform", "kmeans"])
def test_anchors_are_texts_of_the_corpus_far_enough_apart(method):
    anchors = choose_anchors(encode, SENTENCES, 12, method=method, seed=3)
    assert len(set(anchors) & set(SENTENCES)) == 12 and most_alike(anchors) <= 0.901
    assert choose_anchors(encode, iter(SENTENCES), 12, method=method, seed=3) == anchors
    assert method == "kmeans" or choose_anchors(encode, SENTENCES, 12, method=method, seed=4) != anchors


def test_farthest_anchors_are_the_picks_of_the_vectors_and_a_function_may_choose():
    picks = farthest_points(l2_normalize(encode(SENTENCES)).astype(np.float16), 10, seed=2)
    assert choose_anchors(encode, SENTENCES, 10, method="fps", seed=2) == [SENTENCES[row] for row in picks]
    settings = CandidateSettings(readable=False)
    chosen = choose_anchors(
        encode, SENTENCES, 3, method=lambda vectors, n, *, seed: np.arange(n) * 17 + seed, seed=5, settings=settings
    )
    assert chosen == [SENTENCES[row] for row in (5, 22, 39)]


def most_alike(anchors):
    """The largest cosine of two of the anchors."""
    vectors = l2_normalize(encode(anchors))
    return (vectors @ vectors.T - np.eye(len(anchors))).max()


def test_near_duplicates_are_replaced(monkeypatch):
    """KMeans may pick neighbours; farthest points take the place of the second."""
    monkeypatch.setitem(sampling.METHODS, "kmeans", lambda vectors, n, seed: np.arange(n))
    anchors = choose_anchors(encode, SENTENCES, 8, method="kmeans")
    assert len(set(anchors)) == 8 and anchors[0] == SENTENCES[0] and most_alike(anchors) <= 0.901


def partly(texts):
    return encode(texts) * np.array([["judge" not in text] for text in texts])


def test_texts_that_encode_to_zero_are_dropped():
    anchors = choose_anchors(partly, SENTENCES, 30, method="uniform", settings=CandidateSettings(readable=False))
    assert not any("judge" in anchor for anchor in anchors)


NO_CHOICE = [
    ({"n": 0}, "n is 0"),
    ({"method": "best"}, "method is 'best'; it must be one of kmeans, fps, uniform"),
    ({"corpus": ["no sentence"]}, "no candidate for an anchor: 0 of 1 texts left"),
    ({"corpus": "missing.txt"}, "missing.txt"),
    ({"encoder": "all-MiniLM"}, "no model .all-MiniLM."),
    ({"encoder": 5}, "an encoder is"),
    ({"corpus": [*SENTENCES[:10], "no sentence at all", SENTENCES[0], BROKEN["link"]], "n": 11},
     r"11 .*10 of 13 texts left \(dropped: 1 link, 1 no sentence, 1 duplicate\)"),
    ({"encoder": lambda texts: np.ones((len(texts), 3)), "n": 2, "method": "fps"}, "add texts, or take any"),
    ({"encoder": partly, "n": 250, "method": "fps"}, "48 encoded to zero"),
]  # fmt: skip


test_anchors_that_cannot_be_chosen_are_refused = refused(
    *((lambda change=change: choose_anchors(
        **{"encoder": encode, "corpus": SENTENCES, "n": 3, "method": "uniform", **change}), message, PellucidError)
      for change, message in NO_CHOICE),
    *((lambda wrong=wrong: CandidateSettings(**wrong), next(iter(wrong))) for wrong in (
        {"words": (5, 2)}, {"max_candidates": 0})),
    (lambda: list(candidate_texts(["Ein Satz."], CandidateSettings(language="klingon"))), "'klingon'"),
)  # fmt: skip


def test_a_stopped_run_encodes_no_shard_again(tmp_path, monkeypatch):
    monkeypatch.setattr(candidatestore, "_SHARD_TEXTS", 50)
    in_third_shard, sizes = 12, []  # writes
    run = partial(choose_anchors, lambda texts: sizes.append(len(texts)) or encode(texts), SENTENCES, work_dir=tmp_path)
    stop_at_write(lambda: run(9, method="fps"), in_third_shard)
    sizes.clear()
    run(9, method="fps")
    assert sizes == [8, 50, 50, 50, 38]  # a function is known by 8 texts; then the rest
    assert len(run(20, method="uniform")) == 20 and sizes[5:] == [8]


def test_a_work_dir_of_another_run_is_refused(tmp_path):
    choose_anchors(encode, SENTENCES, 3, method="fps", work_dir=tmp_path)
    assert len(choose_anchors(encode, iter([]), 3, method="fps", work_dir=tmp_path)) == 3  # not looked at
    for model, texts, options, message in (
        (encode, SENTENCES[1:], {}, r"the corpus that the run in .* texts 1 to 287 are not the same"),
        (encode, [*SENTENCES, "One more."], {}, "texts 1 to 289 are not the same"),
        (encode, SENTENCES, {"settings": CandidateSettings(words=None)}, "different: words"),
        (lambda texts: encode(texts)[:, ::-1], SENTENCES, {}, "another model"),
        (lambda texts: encode(texts)[:, :9], SENTENCES, {}, "another model"),
    ):
        with pytest.raises(InputError, match=message):
            choose_anchors(model, texts, 3, method="fps", work_dir=tmp_path, **options)


def test_anchors_of_a_run_that_was_stopped_are_those_of_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(candidatestore, "_SHARD_TEXTS", 50)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(SENTENCES))

    def run(folder):
        chosen = choose_anchors(encode, corpus, 9, method="fps", work_dir=folder)
        return chosen, (folder / "vectors.state.bin").read_bytes(), (folder / "candidates.state.jsonl").read_bytes()

    (_, whole), *others = stopped_at_writes(run, tmp_path / "runs")
    assert len(others) == 8 and all(other == whole for _, other in others)
    assert assert_damage_is_refused(run, tmp_path / "runs" / "0") == 3
    reversed_lines(corpus)
    for folder in ("0", "1"):
        with pytest.raises(InputError, match=r"corpus\.txt is not the corpus.*: texts 1 to 288 are not the same"):
            run(tmp_path / "runs" / folder)


def test_anchors_of_real_sentences_are_sentences(shared):
    lines = list(islice(read_texts(shared / "data" / "raw_english" / "open_licence.txt.xz"), 2000))
    anchors = choose_anchors(pellucid.load("static-en"), lines, 30, method="fps")
    assert len(set(anchors)) == 30 and all(is_sentence(anchor) and 3 <= len(anchor.split()) <= 60 for anchor in anchors)
