"""The manual's pages that stand beside their scripts, in papers/ and benchmarks/: mkdocs itself reads docs/ only."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("papers", "benchmarks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures of the folders, under the names that they have in the repository."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".md", ".png"):
                name = path.relative_to(ROOT).as_posix()
                files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links between docs/ and the folders fit the site, where docs/ is the root."""
    if page.file.src_uri.startswith(FOLDERS):
        return re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
    return re.sub(rf"\]\(\.\./({'|'.join(FOLDERS)})/", r"](\1/", markdown)
