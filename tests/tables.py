"""What the tests of the toolkit share: a family whose every number is written down, and checks of the views."""

import json
import re
from functools import cache
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from rich.console import Console

from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.core.embedder import Embedder
from pellucid.explain.explanation import Explanation
from pellucid.explain.rows import Row

SCHEMA = Path(__file__).parents[1] / "docs" / "schema.json"
HOSTILE = [
    "</p></div><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)> & &amp;',
    "$x^{ \\frac",
    "[bold]x[/bold] [/] [link=x]",
    "a \x1b[31mb\x1b]0;title\x07 \x00\x08\x9b1m",
    "שלום \u202epear\u202c \u2067car",
    "\ud800x \udfff",
    "line\r\nbreak\u2028 and\ttab",
]


CONTROLS = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]"


class TableEmbedder(Embedder):
    """Each known text has its row, written in the test; other texts are zero rows."""

    family = "tables"

    def __init__(self, rows, names=None, *, sparse=False, mixing=None):
        self.rows = {text: np.array(row, np.float64) for text, row in rows.items()}
        width = len(next(iter(rows.values())))
        self.mixing = np.eye(width) if mixing is None else mixing
        names = [f"d{number}" for number in range(self.mixing.shape[1])] if names is None else names
        self._dimensions = Dimensions(Dimension(name, (f"about {name}",)) for name in names)
        self.sparse = sparse

    @property
    def dimensions(self):
        return self._dimensions

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        zero = np.zeros(len(self.mixing))
        rows = np.array([self.rows.get(text, zero) for text in texts], np.float64).reshape(-1, len(zero))
        rows = (rows @ self.mixing).astype(np.float32)
        return scipy.sparse.csr_matrix(rows) if self.sparse else rows

    def get_embedding_dimension(self):
        return self.mixing.shape[1]

    def _edited(self, edit):
        mixing = self.mixing @ edit.mixing.matrix.toarray()
        return TableEmbedder(self.rows, edit.dimensions.names, sparse=self.sparse, mixing=mixing)

    def explain(self, text1, text2=None, *, role1=None, role2=None):
        texts = [text1, text1 if text2 is None else text2]
        units = [self.rows.get(text, np.zeros(len(self.mixing))) @ self.mixing for text in texts]
        first, second = (unit / (np.linalg.norm(unit) or 1.0) for unit in units)
        terms = [Row(n, (n,), c, 0.0) for n, c in zip(self.dimensions.names, (first * second).tolist()) if c]
        return Explanation.from_terms(self.family, (text1, text2), float(first @ second), terms)


def random_table(count=60, width=6, seed=0, *, sparse=False):
    """A model of `count` texts "t0", "t1", ... with random rows of mixed signs and some zeros."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0.2, 1.0, (count, width)) * (rng.random((count, width)) > 0.3)
    rows[:, 0] += 0.1
    return TableEmbedder({f"t{n}": row for n, row in enumerate(rows)}, sparse=sparse)


def units(model, texts):
    """The rows of `texts` at length 1, float64."""
    rows = np.array([model.rows[text] @ model.mixing for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class _Page(HTMLParser):
    """Collect the tags and attributes of a page; every tag must be closed in order."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.said = [], set(), set(), ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said += data


def check_views(report):
    """Check what every kind of result promises of its views; return the page's own words."""
    assert check_json(report)["kind"] == report.kind
    report.to_json().encode("utf-8")
    text = str(report)
    text.encode("utf-8")
    assert not re.search(CONTROLS, text)
    assert max(map(len, report.to_text(width=60).splitlines())) <= 60
    check_terminal(report)
    assert "\n" not in repr(report)
    return check_page(report)


def check_page(shown):
    """Check that a page stands alone, runs nothing and loads nothing; return its words."""
    page = shown.to_html()
    page.encode("utf-8")
    parsed = _Page(page)
    assert page.startswith("<!doctype html>") and shown._repr_html_() in page
    assert "url(" not in page and "http" not in page and "prefers-color-scheme: dark" in page
    assert not parsed.tags & {"script", "img", "link", "iframe", "a"}
    assert not {name for name in parsed.attributes if name.startswith("on")} | (parsed.attributes & {"src", "href"})
    return parsed.said


def check_terminal(shown):
    """Check that rich, in colour, writes nothing that steers a terminal but its own colours."""
    written = StringIO()
    Console(file=written, force_terminal=True, color_system="256", width=90, legacy_windows=False).print(shown)
    assert not re.search(CONTROLS, re.sub(r"\x1b\[[\d;]*m", "", written.getvalue()))


def check_json(result):
    """Check that the dict form is plain JSON and what the published schema says of the result's class."""
    value = json.loads(result.to_json())
    assert value == result.to_dict()
    _validator(type(result).__name__).validate(value)
    return value


@cache
def _validator(name):
    """What checks the dict form of the class called `name`."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text("utf-8"))
    ref = {"$ref": f"#/$defs/{name}"}
    assert ref in schema.pop("anyOf")
    return jsonschema.Draft202012Validator(schema | ref)
