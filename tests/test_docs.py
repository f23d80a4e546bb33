"""What the documentation says is true: its code runs, its help is the help, its links lead somewhere."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import pellucid
from pellucid.pretrained import bundled_models

ROOT = Path(__file__).resolve().parents[1]
EXECUTED = [
    "README.md",
    *(f"docs/{name}.md" for name in "quickstart explanations anchors toolkit ensembles search".split()),
]
PACKAGE = ROOT / "src/pellucid"
FOUND = (module.name.partition(".")[2] for module in pkgutil.walk_packages(pellucid.__path__, "pellucid."))
MODULES = sorted(name for name in FOUND if name != "__main__")
HEAVY = {
    "torch",
    "transformers",
    "sentence_transformers",
    "sklearn",
    "matplotlib",
    "pandas",
    "pyarrow",
    "mteb",
    "qdrant_edge",
}


def python_blocks(page: str) -> str:
    """The python blocks of a page as one script, each on the lines it has there, so that errors name the line."""
    inside, lines = False, []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        lines.append(line if inside else "")
    return "\n".join(lines)


@pytest.mark.parametrize("page", EXECUTED)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    if "static-en" not in bundled_models():
        pytest.skip("src/pellucid/bundled/static-en is not in this checkout; its recipe makes it")
    monkeypatch.chdir(tmp_path)
    script = python_blocks(page)
    assert "pellucid." in script
    exec(compile(script, page, "exec"), {"__name__": page})


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_hold(module):
    results = doctest.testmod(importlib.import_module(f"pellucid.{module}"))
    assert results.failed == 0


def test_some_docstrings_have_examples():
    finder = doctest.DocTestFinder()
    found = [test for name in MODULES for test in finder.find(importlib.import_module(f"pellucid.{name}"))]
    assert sum(len(test.examples) for test in found) >= 3


def test_the_command_line_page_is_the_help():
    page = runpy.run_path(str(ROOT / "docs/cli_page.py"))["page"]()
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == page, "run: make help-docs"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_lead_to_files(page):
    text = re.sub(r"<!--.*?-->", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://")):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_a_room_says_what_it_is_for_and_imports_nothing():
    for path in PACKAGE.glob("*/__init__.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        assert not [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))], path
        assert path.parent.name not in pellucid.__all__  # the folder would hide the public name


def test_the_readme_names_the_test_command_that_ci_runs():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"## Test\n\n```bash\n(.+)\n```", readme)[1]
    assert (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()[-1] == command


def test_importing_pellucid_is_quick_and_light():
    script = "import sys, time; t = time.perf_counter(); import pellucid; print(time.perf_counter() - t, *sys.modules)"
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    assert min(float(seconds) for seconds, *_ in runs) < 0.3
    assert not (HEAVY | {"numpy", "numba"}) & set(runs[0])


def test_using_a_model_loads_no_heavy_package(fruit, tmp_path):
    fruit.save_pretrained(tmp_path / "model")
    script = """
import sys, pellucid
model = pellucid.load(sys.argv[1])
print(model.explain("apple", "pear"), model.encode(["apple"] * 100), model.describe("car"))
print(pellucid.errors, pellucid.Embedder, pellucid.Explanation, pellucid.StaticEmbedder, file=sys.stderr)
print(*sys.modules)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "model")]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()
    assert "pellucid.static.embedder" in loaded
    assert not HEAVY & set(loaded)


def test_public_names_are_there_and_no_others():
    assert dir(pellucid) == sorted(pellucid.__all__)
    for name in pellucid.__all__:
        assert getattr(pellucid, name) is getattr(pellucid, name)  # the same at the first use and later
    with pytest.raises(AttributeError, match="no_such_name"):
        pellucid.no_such_name  # noqa: B018


def test_mistyped_keywords_are_errors(fruit):
    with pytest.raises(TypeError, match="show_progres_bar"):
        fruit.encode(["apple"], show_progres_bar=True)
    with pytest.raises(TypeError, match="top"):
        fruit.describe("apple", top=3)


def public_functions(module):
    """The public functions and methods a module defines, without those whose form a class of another library sets."""
    own = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
    yield from (item for item in own if inspect.isfunction(item) and not item.__name__.startswith("_"))
    for item in own:
        if inspect.isclass(item) and not item.__name__.startswith("_"):
            foreign = [base for base in item.__mro__ if not base.__module__.startswith("pellucid")]
            for name, method in vars(item).items():
                given = any(name in vars(base) for base in foreign)
                if inspect.isfunction(method) and not name.startswith("_") and not given:
                    yield method


@pytest.mark.parametrize("module", MODULES)
def test_no_public_function_swallows_keywords(module):
    for function in public_functions(importlib.import_module(f"pellucid.{module}")):
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, f"{module}.{function.__qualname__}"


@pytest.mark.parametrize("name", bundled_models())
def test_every_bundled_model_has_its_licence_told(name):
    card = (PACKAGE / "bundled" / name / "README.md").read_text(encoding="utf-8")
    assert "\nlicense: cc-by-sa-4.0\n" in card and "\nlanguage:" in card
    licences = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Licences")[2]
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8").partition("CC BY-SA 4.0")[2]
    assert f"`{name}`" in licences and name in notice
