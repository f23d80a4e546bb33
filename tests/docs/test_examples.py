"""The example of the search page, on a corpus of four abstracts, and the notebooks."""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = str(FOLDER / "search_scifact.py")
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

ABSTRACTS = {
    "1": ("Immune cells and immune tissue", "An immune response of immune cells surrounds the granuloma."),
    "2": ("Inflammation of granulomas", "The centre of a granuloma is inflamed, the tissue around it is not."),
    "3": ("Loans", "The bank raised the interest rate."),
    "4": ("Horses", "A man is riding a horse on the beach."),
}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    records = [{"_id": key, "title": title, "text": text} for key, (title, text) in ABSTRACTS.items()]
    queries = [{"_id": "7", "text": "The immune tissue around a granuloma."}, {"_id": "8", "text": "Riding horses."}]
    for name, rows in (("corpus.jsonl", records), ("queries.jsonl", queries)):
        (folder / name).write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    for split, row in (("train", "7\t2\t1"), ("test", "8\t4\t1")):
        (folder / f"qrels/{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{row}\n", encoding="utf-8")
    return folder


@pytest.mark.full
def test_the_story_of_a_wrong_hit_runs(data, monkeypatch, capsys):
    pytest.importorskip("Stemmer")
    monkeypatch.setattr(sys, "argv", [EXAMPLE, "--data", str(data), "--query", "7", "--word", "immune"])
    runpy.run_path(EXAMPLE, run_name="__main__")
    said = capsys.readouterr().out
    assert "4 documents indexed" in said and "wrong  Immune cells" in said
    assert "what puts hit 1 above hit 2, which is right" in said
    after = said.partition("'immune' counts 0.3 in all queries")[2]
    assert "1  " in after and "right  Inflammation of granulomas" in after.partition("\n2  ")[0]
    assert "to a right one in 1, from a right one in 0 (7)" in after
    assert "test: nDCG@10 100.00 -> 100.00" in after


def test_its_measures():
    example = runpy.run_path(EXAMPLE)
    right = {"a": {"1"}, "b": {"2", "3"}}
    before, after = {"a": ["1", "9"], "b": ["9", "2"]}, {"a": ["9", "1"], "b": ["2", "3"]}
    assert example["ndcg"](after, right) == pytest.approx(100 * (1 / np.log2(3) + 1) / 2)
    said = example["what_changed"](before, after, right)
    assert "the first hit moved in 2: to a right one in 1, from a right one in 1 (a, b)" in said


def test_vectors_of_other_stores_are_explained(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sentence_transformers")
    from tiny_models import tiny_transformer

    tiny_transformer(tmp_path / "bert", normalize=False).save_pretrained(str(tmp_path / "encoder"))
    monkeypatch.setattr(sys, "argv", ["explain_vectors.py", str(tmp_path / "encoder")])
    runpy.run_path(str(FOLDER / "explain_vectors.py"), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and all("left out" in line or "and a remainder of" in line for line in said)
    stores = {"faiss", "qdrant_client"} if all(map(importlib.util.find_spec, ("faiss", "qdrant_client"))) else set()
    assert stores <= {line.partition(":")[0] for line in said if " = " in line}


@pytest.mark.full
def test_the_demo_fits_on_a_screen():
    pytest.importorskip("Stemmer")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", FOLDER / "demo.sh"], capture_output=True, text=True, env=environment, check=True)
    text = " ".join(done.stdout.split())  # a sentence may be wrapped
    assert '"cancel" is close to "terminate"' in text and '"login" is close to "password"' in text
    assert done.stdout.count("\n") <= 50


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 5


@pytest.mark.full
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_says_what_it_shows(notebook, monkeypatch, capsys, request):
    pytest.importorskip("Stemmer")
    monkeypatch.chdir(FOLDER)
    content = notebook.read_text(encoding="utf-8")
    if "all-MiniLM-L6-v2" in content:
        monkeypatch.chdir(request.getfixturevalue("beside_minilm"))
        for path in FOLDER.glob("*.txt"):
            Path(path.name).symlink_to(path)
    names = {}
    for cell in json.loads(content)["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(notebook), "exec"), names)
            shown = "".join(line for output in cell["outputs"] for line in output.get("text", []))
            assert _without_numbers(capsys.readouterr().out) == _without_numbers(shown)


def _without_numbers(said):
    """Return the words that were said: digits and the bars of numbers may differ between machines."""
    return re.findall(r"[^\W\d_]+", said)
