"""The page of lexicon results: what it says must follow from the rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

MODEL = SimpleNamespace(
    explain=lambda text: SimpleNamespace(
        rows=[SimpleNamespace(name=f"{text[:4]} {n}", contribution=n / 10) for n in range(8)]
    )
)


@pytest.fixture
def page(opened):
    return opened("papers.lens.page")


def rows(page, lexicon, dense):
    retrieval = {task: 60.0 for task, kind in page.TASKS.items() if kind == "retrieval"}
    return [
        page.Measured("start", "dense", dict.fromkeys(page.TASKS, 70.0)),
        page.Measured("trained", "dense", dict.fromkeys(page.TASKS, dense)),
        page.Measured("lexicon-minilm", "lexicon", dict.fromkeys(page.TASKS, lexicon), active=500.0),
        page.Measured("its largest 256", "pruned", dict.fromkeys(page.TASKS, lexicon / 2), active=256.0),
        page.Measured("both", "hybrid", retrieval),
        page.Measured("BM25", "words", {task: 40.0 for task in retrieval}),
    ]


@pytest.mark.parametrize(
    ("lexicon", "dense", "said"),
    [(71.0, 71.0, "71.00, no lower than"), (70.9, 71.0, "70.90, 99.9 % of"), (72.0, 71.0, "72.00, no lower than")],
)
def test_the_verdict_is_the_rows_own(page, lexicon, dense, said):
    text = page.make_page(rows(page, lexicon, dense), MODEL, "181 of the 283")
    assert said in text and "181 of the 283" in text
    assert "| LENS-4000 | 60.76 | 60.86 | 57.92 | 87.93 | 88.13 | 84.35 |" in text  # as printed, not rounded
    assert "| 256 | " in text and "| 50.0% |" in text  # half of the whole is left
    assert "| BM25 | " in text and "| - |" in text  # it was not measured on STS
    assert f"| {page.QUERIES[0]} | {page.QUERIES[0][:4]} 7; " in text  # the strongest first


def test_stemmed_bm25_finds_what_plain_does_not(opened):
    pytest.importorskip("bm25s")
    bm25 = opened("papers.bm25")
    corpus = [{"id": "a", "text": "connecting flights"}, {"id": "b", "text": "a bowl of rice"}]
    found = {}
    for name in (bm25.PLAIN, bm25.STEMMED):
        engine = bm25.Bm25(name)
        engine.index(corpus)
        found[name] = engine.search([{"id": "q", "text": "rice flight connections"}], top_k=2)["q"]["a"]
    assert found[bm25.PLAIN] == 0 < found[bm25.STEMMED]


def test_the_anchor_page_prints_the_papers_rows_as_printed(opened):
    anchors = opened("papers.ldir.page")
    table = anchors._table_sts(anchors.Rows([]), (200, 500))
    assert "| LDIR (500), as printed | 0.49 | 78.85 | 84.35 | 80.93 | 84.79 | 83.61 | 86.31 | 80.85 |" in table
