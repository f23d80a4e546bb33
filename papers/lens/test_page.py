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
    return opened("papers.lens.tables")


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
    figures = dict(page.figures(rows(page, lexicon, dense), MODEL))
    assert said in figures["mean"]
    assert "| 256 | " in str(figures["largest"]) and "| 50.0% | 50.0% |" in str(
        figures["largest"]
    )  # half of the whole is left
    assert figures["scores"].cell("BM25", "STS12") == "-"  # it was not measured on STS
    query = next(iter(page.QUERIES))
    assert figures["clusters"].cell(query, "lexicon-minilm").startswith(f"{query[:4]} 7; ")  # the strongest first


def test_stemmed_bm25_finds_what_plain_does_not(opened):
    pytest.importorskip("bm25s")
    bm25 = opened("papers.bm25")
    collection = SimpleNamespace(ids=["a", "b"], documents=["connecting flights", "a bowl of rice"])
    plain, stemmed = (
        bm25.Bm25(collection, name).hits(["rice flight connections"], 2)[0] for name in (bm25.PLAIN, bm25.STEMMED)
    )
    assert plain["a"] == 0 < stemmed["a"]
