"""What CONTRIBUTING.md says of adding a family, a part, reasons, a reader and a command is done, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pellucid.cli.app import app
from pellucid.index import parts

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = PAGE.partition("## How to add")[2].partition("\n## ")[0].split("\n### ")[1:]
CODE = {section.partition("\n")[0]: re.search(r"```python\n(.*?)```", section, re.DOTALL)[1] for section in SECTIONS}


@pytest.mark.needs("Stemmer")
@pytest.mark.parametrize("name", CODE)
def test_what_is_added_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "PARTS", dict(parts.PARTS))
    monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))
    names: dict[str, object] = {}
    for code in (CODE["A family"], CODE[name]):
        exec(compile(code, f"CONTRIBUTING.md, {name}", "exec"), names)
    assert len([line for line in CODE[name].splitlines() if line]) <= 20
    if name == "A command":
        said = CliRunner().invoke(app, ["known", "a loan for a house"], catch_exceptions=False)
        assert said.exit_code == 0 and "loan" in said.stdout


def test_each_kind_of_addition_is_there():
    assert list(CODE) == ["A family", "A part of an index", "A kind of reasons", "A reader of files", "A command"]
