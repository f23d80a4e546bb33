"""Reading parallel text: what is aligned comes out aligned, and what is not is named by file and line."""

from __future__ import annotations

import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import CorpusError, InputError
from pellucid.static.training.parallel import read_parallel

EN_DE = ("en", "de")
PAIRS = [("Go.", "Geh."), ("Run!", "Lauf!")]


def read(file, languages=EN_DE):
    return list(read_parallel(file, languages))


@pytest.mark.parametrize(("name", "opener"), [("p.tsv", open), ("p.tsv.xz", lzma.open), ("p.tsv.gz", gzip.open)])
@pytest.mark.parametrize("header", ["", "en\tde\n", "EN\tDE\n", "\ufeffen\tde\r\n", "\ufeff"])
def test_two_columns(tmp_path, name, opener, header):
    with opener(tmp_path / name, "wt", encoding="utf-8", newline="\n") as file:
        file.write(header + "Go.\tGeh.\r\n\nRun!\t Lauf! \n")
    assert read(tmp_path / name) == PAIRS


def test_a_header_may_name_the_columns_the_other_way_round(tmp_path):
    (tmp_path / "p.tsv").write_text("de\ten\nGeh.\tGo.\nLauf!\tRun!\n")
    assert read(tmp_path / "p.tsv") == PAIRS


def test_a_header_needs_no_region(tmp_path):
    (tmp_path / "p.tsv").write_text("zh\ten\n去\tgo\n", encoding="utf-8")
    assert read(tmp_path / "p.tsv", ("en", "zh-Hans")) == [("go", "去")]


def test_a_header_of_another_language_is_refused(tmp_path):
    (tmp_path / "p.tsv").write_text("en\tfr\nGo.\tVa.\n")
    with pytest.raises(CorpusError, match=r"p\.tsv holds en and fr by its header, not en and de"):
        read(tmp_path / "p.tsv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("en\tde\nGo.\tGeh.\nRun! Lauf!\n", r"p\.tsv, line 3: no tab"),
        ("Go.\tGeh.\tCC-BY\n", r"p\.tsv, line 1: 3 columns"),
        ("Go.\tGeh.\nRun!\t \n", r"p\.tsv, line 2: a sentence has no translation \('Run!'\)"),
        ("\tGeh.\n", r"p\.tsv, line 1: a sentence has no translation \('Geh\.'\)"),
    ],
)
def test_a_bad_row_is_named(tmp_path, text, message):
    (tmp_path / "p.tsv").write_text(text)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / "p.tsv")


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\n\r\t\0", exclude_categories=["Cs"]))] * 2)))
def test_only_a_line_end_of_a_text_file_shifts_a_line(tmp_path_factory, pairs):
    """U+2028 or a form feed end a line elsewhere; here they must not."""
    pairs = [(f"x{one}x", f"y{other}y") for one, other in pairs]
    path = tmp_path_factory.mktemp("pairs") / "p.tsv"
    path.write_bytes("".join(f"{one}\t{other}\n" for one, other in pairs).encode())
    assert read(path) == pairs


def test_what_cannot_be_read(tmp_path):
    (tmp_path / "p.tsv").write_bytes(b"Go.\tGeh\xff.\n")
    (tmp_path / "q.tsv.xz").write_bytes(b"no xz")
    (tmp_path / "p.txt").write_text("Go.\tGeh.\n")
    for file, message in [
        (tmp_path / "p.tsv", r"p\.tsv, line 1 is not UTF-8"),
        (tmp_path / "q.tsv.xz", "damaged"),
        (tmp_path / "p.txt", r"p\.txt is not a \.tsv file"),
        (tmp_path / "none.tsv", r"parallel file not found: .*none\.tsv"),
    ]:
        with pytest.raises(CorpusError, match=message):
            read(file)
    for wrong in (["a", "b"], ("a", "b"), None):
        with pytest.raises(InputError, match=r"the path of a \.tsv file"):
            read(wrong)


def test_real_pairs(shared):
    pairs = read(shared / "data/parallel/tatoeba/en-ja.tsv.xz", ("ja", "en"))
    assert len(pairs) == 43_128 and pairs[0] == ("行け。", "Go.")
