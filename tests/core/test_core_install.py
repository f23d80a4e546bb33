"""What the core gives without any extra, in a process that has none."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = """
import sys
from importlib import metadata

EXTRAS = {"scipy", "torch", "sentence_transformers", "transformers", "sklearn", "peft", "accelerate", "datasets",
          "mteb", "pandas", "wordllama", "model2vec", "bm25s", "ftfy", "py3langid", "snowballstemmer", "simplemma",
          "jieba", "sudachipy", "pythainlp", "matplotlib", "pyarrow", "Stemmer", "ray", "pyspark",
          "qdrant_client", "pymilvus", "faiss"}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
found = metadata.version

def version(name):
    if name.replace("-", "_") in EXTRAS:
        raise metadata.PackageNotFoundError(name)
    return found(name)

metadata.version = version
"""


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where no extra can be imported."""
    return subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("room", ["", ".bulk", ".index", ".lexicon", ".static", ".transformer"])
def test_a_core_install_can_be_listed(room):
    """Star import, hasattr, getmembers and pydoc are what editors, notebooks and documentation tools do."""
    done = without_extras(f"""
import inspect, pydoc, pellucid{room} as package

exec("from pellucid{room} import *")
for name in package.__all__:
    assert hasattr(package, name) and name in globals(), name
assert {{name for name, _ in inspect.getmembers(package)}} >= set(package.__all__)
text = pydoc.plain(pydoc.render_doc("pellucid{room}"))
assert all(name in text for name in package.__all__)
for _, thing in inspect.getmembers(package):
    assert isinstance(thing, str) or pydoc.render_doc(thing)
""")
    assert done.returncode == 0, done.stderr


def test_what_is_heavy_is_imported_when_it_is_needed(fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "fruit")
    script = (
        "import sys, pellucid.explain.explanation as explanation, pellucid\n"
        "pellucid.load('static-en').encode(['a loan']), pellucid.load(sys.argv[1]).describe('the apple')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "fruit"], capture_output=True, text=True, check=True
    )
    heavy = {"scipy", "torch", "transformers", "sentence_transformers", "sklearn", "huggingface_hub", "rich"}
    heavy |= {"matplotlib", "pandas", "pyarrow", "mteb"}
    assert not (heavy | {"pellucid.static.training", "pellucid.explain.views.page"}) & set(done.stdout.split())


def test_an_absent_name_says_what_to_install_where_it_is_used():
    done = without_extras("""
import pellucid
from pellucid import encode_corpus
from pellucid.errors import MissingExtraError

try:
    pellucid.Index.create("x", {})
except MissingExtraError as error:
    assert str(error).startswith("PyStemmer is not installed"), error
else:
    raise AssertionError
try:
    encode_corpus("a.txt", "out")
except ImportError as error:
    assert str(error).startswith("pyarrow is not installed"), error
else:
    raise AssertionError
try:
    pellucid.Indx
except AttributeError:
    print("ok")
""")
    assert done.stdout == "ok\n", done.stderr


def test_the_families_with_dense_vectors_do_without_scipy(tmp_path):
    done = without_extras(f"""
import numpy as np
import pellucid

texts = ["The bank raised the rate.", "Mortgages got dearer.", "A zorblattish cat sleeps.", "Cats sleep a lot."]
for name in ("static-multi", "anchors-en-200"):
    model = pellucid.load(name)
    first, second, third = model.dimensions.names[:3]
    edited = model.without(third).scale({{first: 0.5}}).merge(first, second)
    edited.save_pretrained({str(tmp_path)!r} + "/" + name)
    opened = pellucid.load({str(tmp_path)!r} + "/" + name)
    assert np.abs(opened.encode(texts) - edited.encode(texts)).max() < 1e-5
    assert edited.explain(texts[0], texts[2]).score == opened.explain(texts[0], texts[2]).score
pairs = [tuple(texts[:2]), tuple(texts[2:]), tuple(texts[1:3])]
models = dict(one=model, other=edited)
pellucid.compare(models, pairs)
pellucid.EnsembleEmbedder(models).merge(0, 1).encode(texts)
try:
    pellucid.load("lexicon-en")
except pellucid.errors.MissingExtraError as error:
    assert str(error).startswith('scipy is not installed. Run: pip install "pellucid[sparse]" (in a clone'), error
    print("ok")
""")
    assert done.stdout == "ok\n", done.stderr
