"""The terms of many passages, counted in C: what Python counts; and documents that are committed together."""

import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pellucid
from pellucid.errors import InputError
from pellucid.index import arrays, counting, writer
from pellucid.index.arrays import TermCounts, hash_strings
from pellucid.index.counting import TermCounter
from pellucid.index.terms import Analyser
from test_terms import PIECES, languages

BLANKS = [" ", "  ", "\n", "\t", "\r\n", "\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u3000"]
CAPITALS = [
    "I",
    "A",
    "IT",
    "AIDS",
    "US",
    "WHO",
    "STRASSE",
    "STRA\u00dfE",
    "\u00c9TAT",
    "vitamin",
    "the",
    "(IT),",
    "OR/AND",
]
words = st.sampled_from(PIECES) | st.sampled_from(CAPITALS) | st.text(max_size=4)
texts = st.lists(st.tuples(words, st.sampled_from([*BLANKS, ""])), max_size=30).map(
    lambda pieces: "".join(word + blank for word, blank in pieces)
)


def plainly(analyser: Analyser, passages: list[str]) -> list[Counter]:
    """What C counts: how often the hash of each term stands in each passage."""
    counts = [Counter(analyser.terms(text)) for text in passages]
    return [Counter(dict(zip(hash_strings(passage).tolist(), passage.values()))) for passage in counts]


def spelled(counts: TermCounts) -> list[Counter]:
    """How often each hash of a term stands in each passage."""
    items, starts = list(zip(counts.hashes[counts.terms].tolist(), counts.counts.tolist())), [0, *counts.ends.tolist()]
    passages = [Counter(dict(items[start:end])) for start, end in pairwise(starts)]
    assert [len(passage) for passage in passages] == [end - start for start, end in pairwise(starts)]  # each term once
    return passages


@given(
    st.lists(texts, max_size=6), languages, st.lists(st.sampled_from(["it", "IT", "(the", "'tis", "a"])), st.booleans()
)
@example(["IT WHO US IT"], "english", ["it", "who", "us"], False)
def test_c_counts_what_python_counts(passages, language, stop_words, again):
    counter, analyser = TermCounter(Analyser(language, stop_words or None)), Analyser(language, stop_words or None)
    for _ in range(1 + again):  # the second time every token is remembered
        counts = counter.count(passages)
        expected = plainly(analyser, passages)
        assert spelled(counts) == expected
        assert counts.lengths().tolist() == [passage.total() for passage in expected]
        signatures = [sum(term % 2**64 * n for term, n in passage.items()) % 2**64 for passage in expected]
        assert counts.signatures().tolist() == signatures
        tensors = arrays._inverted_counts(counts)
        assert tensors["bm25.keys"].tolist() == sorted({term for passage in expected for term in passage})
        ends = [0, *tensors["bm25.key_ends"].tolist()]
        for term, start, end in zip(tensors["bm25.keys"].tolist(), ends, ends[1:]):
            items = list(zip(tensors["bm25.rows"][start:end].tolist(), tensors["bm25.values"][start:end].tolist()))
            assert items == [(n, passage[term]) for n, passage in enumerate(expected) if term in passage]


def test_texts_whose_capitals_are_no_acronyms_have_no_terms(index_of):
    shout = "IT WHO US " * 2000  # terms that these words could be, and none is
    index = index_of([shout], ids=["a"])
    index.update("a", text=f"the {shout}")
    assert index.verify() == [] and list(index.search("it")) == []


def test_c_divides_texts_at_the_blanks_of_python():
    every = "".join(f"a{chr(code)}b " for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    table = counting.TokenTable()
    numbers, ends = table.read([every.encode()])
    tokens = table.tokens()
    assert [tokens[number] for number in numbers.tolist() if number >= 0] == every.split()
    assert (numbers < 0).sum() == 1 and ends.tolist() == [len(numbers)]
    cut = ["\xe1", "\u3000"[:1], "\u2003a", "a\u2003", "\x85", "\u1680\u1680", "", "\n"]  # blanks at the ends of texts
    numbers, ends = table.read([text.encode() for text in cut])
    tokens, starts = table.tokens(), [0, *ends.tolist()]
    for text, start, end in zip(cut, starts, ends.tolist()):
        assert [tokens[number] for number in numbers[start:end].tolist() if number >= 0] == text.split()


def test_what_is_forgotten_is_counted_again(monkeypatch):
    monkeypatch.setattr(counting, "MAX_CACHED_TOKENS", 3)
    monkeypatch.setattr(counting, "_BLOCK_CHARS", 20)
    counter, analyser = TermCounter(Analyser()), Analyser()
    passages = [f"word{n % 7} and IT {n}" for n in range(100)]
    assert spelled(counter.count(passages)) == plainly(analyser, passages)


@given(st.data())
def test_hostile_numbers_are_refused(data):
    from pellucid.native.terms import TokenLists, count_terms, invert

    lists = st.lists(st.integers(-3, 6), max_size=5)
    int32, int64 = (lambda items, kind=kind: np.array(items, kind) for kind in (np.int32, np.int64))
    known = TokenLists(
        np.zeros(data.draw(st.integers(0, 3)), np.uint8), int64(data.draw(lists)), int32(data.draw(lists)),
        int64(data.draw(lists)), int32(data.draw(lists)),
    )  # fmt: skip
    try:
        terms, counts, ends = count_terms(
            known, int32(data.draw(lists)), int64(data.draw(lists)), data.draw(st.integers(0, 4))
        )
        assert len(terms) == len(counts) and (not len(ends) or ends[-1] == len(terms))
    except InputError:
        pass
    arguments = data.draw(lists), data.draw(lists), data.draw(lists), data.draw(lists), data.draw(lists)
    try:
        rows, _ = invert(*(kind(items) for kind, items in zip((int32, int32, int64, int32, int64), arguments)))
        assert len(rows) == len(arguments[0])
    except InputError:
        pass


@pytest.mark.parametrize(
    ("limit", "commits"), [("MAX_PENDING_BYTES", 3), ("MAX_PENDING_TERMS", 3), ("MAX_PENDING_S", 3), ("FANOUT", 1)]
)
def test_a_build_is_one_commit_unless_it_is_much_or_takes_long(tmp_path, monkeypatch, limit, commits):
    monkeypatch.setattr(writer, limit, 0)
    with pellucid.Index.create(tmp_path / "index", {}) as index:
        before = index.snapshot().commit.state.commit
        index.add((f"text number{n}" for n in range(2500)), ids=range(2500))
        assert index.snapshot().commit.state.commit == before + commits
        assert index.verify() == []


@pytest.mark.parametrize("error", [InputError, KeyboardInterrupt])
def test_the_blocks_before_an_error_or_an_interrupt_stay(tmp_path, error):
    def read():
        yield from (f"text {n}" for n in range(2500))
        raise error

    with pellucid.Index.create(tmp_path / "index", {}) as index:
        with pytest.raises(error):
            index.add(read(), ids=map(str, range(3000)))
        assert sorted(map(int, (document.id for document in index))) == list(range(2000))
        assert index.verify() == []


def test_what_a_disk_refuses_is_not_tried_again(tmp_path, monkeypatch):
    tried = []

    def refuse(*arguments):
        tried.append(arguments)
        raise pellucid.errors.WritingError(28, "full")

    with pellucid.Index.create(tmp_path / "index", {}) as index:
        monkeypatch.setattr("pellucid.index.collection.replace_documents", refuse)
        with pytest.raises(pellucid.errors.WritingError):
            index.add(f"text {n}" for n in range(1500))
        assert len(tried) == 1 and len(index) == 0
