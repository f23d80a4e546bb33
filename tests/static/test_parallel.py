"""Reading parallel text: what is aligned comes out aligned, and what is not is named by file and line."""

import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files import written
from pellucid.errors import CorpusError
from pellucid.static.training.parallel import read_parallel
from refusals import refused

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


@pytest.mark.parametrize(
    ("text", "languages", "pairs"),
    [
        ("de\ten\nGeh.\tGo.\nLauf!\tRun!\n", EN_DE, PAIRS),
        ("zh\ten\n去\tgo\n", ("en", "zh-Hans"), [("go", "去")]),
    ],
)
def test_a_header_may_name_the_columns_the_other_way_round_and_needs_no_region(tmp_path, text, languages, pairs):
    assert read(written(tmp_path / "p.tsv", text.encode()), languages) == pairs


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\n\r\t\0", exclude_categories=["Cs"]))] * 2)))
def test_only_a_line_end_of_a_text_file_shifts_a_line(tmp_path_factory, pairs):
    """U+2028 or a form feed end a line elsewhere; here they must not."""
    pairs = [(f"x{one}x", f"y{other}y") for one, other in pairs]
    path = tmp_path_factory.mktemp("pairs") / "p.tsv"
    path.write_bytes("".join(f"{one}\t{other}\n" for one, other in pairs).encode())
    assert read(path) == pairs


test_what_cannot_be_read = refused(
    *((lambda tmp_path, name=name, content=content: read(written(tmp_path / name, content)), message, CorpusError)
      for name, content, message in [
        ("p.tsv", b"en\tfr\nGo.\tVa.\n", r"p\.tsv holds en and fr by its header, not en and de"),
        ("p.tsv", b"en\tde\nGo.\tGeh.\nRun! Lauf!\n", r"p\.tsv, line 3: no tab"),
        ("p.tsv", b"Go.\tGeh.\tCC-BY\n", r"p\.tsv, line 1: 3 columns"),
        ("p.tsv", b"Go.\tGeh.\nRun!\t \n", r"p\.tsv, line 2: a sentence has no translation \('Run!'\)"),
        ("p.tsv", b"\tGeh.\n", r"p\.tsv, line 1: a sentence has no translation \('Geh\.'\)"),
        ("p.tsv", b"Go.\tGeh\xff.\n", r"p\.tsv, line 1 is not UTF-8"),
        ("q.tsv.xz", b"no xz", "damaged"),
        ("p.txt", b"Go.\tGeh.\n", r"p\.txt is not a \.tsv file"),
    ]),
    (lambda tmp_path: read(tmp_path / "none.tsv"), r"parallel file not found: .*none\.tsv", CorpusError),
    *((lambda wrong=wrong: read(wrong), r"the path of a \.tsv file") for wrong in (["a", "b"], ("a", "b"), None)),
)  # fmt: skip


def test_real_pairs(shared):
    pairs = read(shared / "data/parallel/tatoeba/en-ja.tsv.xz", ("ja", "en"))
    assert len(pairs) == 43_128 and pairs[0] == ("行け。", "Go.")
