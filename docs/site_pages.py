"""The manual's pages that stand elsewhere, in papers/, benchmarks/ and examples/: mkdocs itself reads docs/ only."""

from __future__ import annotations

import json
import re
from pathlib import Path

from architecture_page import file_map
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("papers", "benchmarks")  # docs/benchmarks.md is another page
NOTEBOOKS = "examples"
AT_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FOUND_FIRST = ("quickstart.md", "install.md", "choose.md", "inputs.md", "encoder.md", "search.md", "faq.md",
               "toolkit.md", "scale.md", "explanations.md", "limits.md", "errors.md")  # fmt: skip
"""What a new reader's words shall find before reference and results."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures of the folders, under the names that they have in the repository."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".md", ".png"):
                name = path.relative_to(ROOT).as_posix()
                files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    for name in AT_ROOT:
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    for path in sorted((ROOT / NOTEBOOKS).glob("*.ipynb")):
        name = f"{NOTEBOOKS}/{path.stem}.md"
        files.append(File.generated(config, name, content=from_notebook(path)))
    files.append(File.generated(config, "map.md", content=file_map()))
    return files


def from_notebook(path: Path) -> str:
    """Return a notebook as Markdown: its text, its code and what it prints."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            printed = "".join(output.get("text") or output["data"]["text/plain"])
            parts.append(f"```text\n{printed.rstrip()}\n```")
    end = f"This page is the notebook `{NOTEBOOKS}/{path.name}` of the repository."
    return "\n\n".join([*parts, end]) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links between docs/ and the folders fit the site, where docs/ is the root; weigh pages for its search."""
    page.meta["search"] = {"boost": 4 if page.file.src_uri in FOUND_FIRST else 1}
    if page.file.src_uri.startswith(("papers/", "benchmarks/", *AT_ROOT)):
        markdown = markdown.replace("](docs/", "](") if page.file.src_uri in AT_ROOT else markdown
        return re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
    outside = rf"\]\(((?:\.\./)*)\.\./((?:{'|'.join(FOLDERS)}|{NOTEBOOKS})/|{'|'.join(map(re.escape, AT_ROOT))})"
    return re.sub(rf"(\]\([^)\s]*{NOTEBOOKS}/\w+)\.ipynb\)", r"\1.md)", re.sub(outside, r"](\1\2", markdown))
