"""The page of lexicon results: what it says must follow from the rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from pellucid.core.arrays import l2_normalize

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


def test_each_way_to_search_is_told_by_what_it_finds(opened):
    pytest.importorskip("faiss")
    script = opened("papers.lens.faiss_search")
    rows = sparse.csr_matrix(np.random.default_rng(0).dirichlet(np.full(40, 0.1), 600).astype(np.float32))
    rows = l2_normalize(rows)
    cosines = (rows[:20] @ rows.T).toarray()
    worst = SimpleNamespace(search=lambda number: np.argsort(cosines[number])[:10].tolist(), mb=1.0)

    def ndcg(hits):  # a query is nearest to itself
        return float([max(of, key=of.get) for of in hits] == [*map(str, range(20))])

    collection = SimpleNamespace(ids=[*map(str, range(600))], ndcg=ndcg)
    made = {script.OURS: worst, script.PRUNED: worst, **script.faiss_indexes(rows, rows[:20], 8)}
    table = script.compared(made, cosines, collection)
    assert [row[2:4] for row in table.rows[:3]] == [["0.0%", 0.0], ["0.0%", 0.0], ["100.0%", 1.0]]
    right = {row[1]: float(row[2].strip("%")) for row in table.rows}
    assert 50 < right["nprobe=4"] < 100 and right["efSearch=256"] > 98 and table.rows[2][4] == "1.00"
