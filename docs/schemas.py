"""Write docs/schema.json from the types of explanations and reports: `make help-docs`. The tests hold the two equal."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pellucid
from pellucid.explain import Explanation, Group
from pellucid.explain.explanation import SCHEMA_VERSION
from pellucid.explain.views.report import VERSION, Report, data_fields

PAGE = Path(__file__).with_name("schema.json")
SOURCES = Path(pellucid.__file__).parent

_ABOUT = (
    "What to_dict and to_json give: one definition for each class of results, and for each class of records in them. "
    "Keys are not renamed, removed or given another meaning within a version."
)
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schema() -> dict[str, Any]:
    """Return the JSON schema of everything that pellucid writes as JSON about a model."""
    definitions: dict[type, Any] = {}
    results = sorted([Explanation, *reports()], key=lambda kind: kind.__name__)
    anyof = [_of(kind, definitions) for kind in results]
    names = Counter(kind.__name__ for kind in definitions)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise TypeError(f"two classes of records are called {twice[0]}; give one of them another name")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pellucid explanations and reports",
        "description": _ABOUT,
        "anyOf": anyof,
        "$defs": {kind.__name__: definitions[kind] for kind in sorted(definitions, key=lambda kind: kind.__name__)},
    }


def text() -> str:
    """Return the file: the schema as JSON, with what holds nothing else on one line."""
    lines = json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"
    return re.sub(r"[\[{]\n[^\[\]{}]*[\]}]", lambda inner: re.sub(r"\n *", " ", inner[0]), lines)


def reports() -> list[type]:
    """Return every class of reports, after importing the modules that define one."""
    for path in sorted(SOURCES.rglob("*.py")):
        if "Report):" in path.read_text("utf-8"):
            import_module(".".join((SOURCES.name, *path.relative_to(SOURCES).with_suffix("").parts)))
    found = (kind for kind in Report.__subclasses__() if kind.__module__.startswith("pellucid."))
    return [kind for kind in found if "to_dict" not in vars(kind)]  # hits have a form of their own: search-schema.json


def _of(hint: Any, definitions: dict[type, Any]) -> dict[str, Any]:
    """Return the schema of a value's type; a record's goes into `definitions`."""
    arguments = get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if get_origin(hint) is Literal:
        return {"enum": list(arguments)}
    if get_origin(hint) is Mapping:
        return {"type": "object"}
    if get_origin(hint) in (Union, UnionType):
        found = [_of(one, definitions) for one in arguments]
        plain = all(set(one) == {"type"} for one in found)
        return {"type": [one["type"] for one in found]} if plain else {"anyOf": found}
    if get_origin(hint) is Sequence:
        arguments = (*arguments, ...)
    if get_origin(hint) in (tuple, Sequence):
        items = {"type": "array", "items": _of(arguments[0], definitions)}
        return items if arguments[1] is ... else items | {"minItems": len(arguments), "maxItems": len(arguments)}
    if data_fields(hint) is None:
        raise TypeError(f"{hint!r} has no form in JSON; declare the field as a number, a string, a record or a tuple")
    if hint not in definitions:
        definitions[hint] = {}  # a record may hold its own kind
        definitions[hint] = _record(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _record(kind: type, definitions: dict[type, Any]) -> dict[str, Any]:
    """Return the schema of a dataclass or named tuple; the texts are those of its docstring and comments."""
    hints, (summary, said) = get_type_hints(kind), _documented(kind)
    properties = {name: _of(hints[name], definitions) for name in data_fields(kind) or ()}
    if issubclass(kind, Explanation):
        properties |= {"remainder": {"type": "number"}, "percentile": {"type": ["number", "null"]}}
        properties = {"summary": {"type": "string"}} | properties | {"groups": _of(tuple[Group, ...], definitions)}
        for name in ("summary", "groups", "remainder", "percentile"):
            said[name] = _sentence(str(inspect.getdoc(getattr(Explanation, name))).split("\n\n")[0])
    properties = {name: one | {"description": said[name]} if name in said else one for name, one in properties.items()}
    if issubclass(kind, Report):
        properties = {"version": {"const": VERSION}, "kind": {"const": kind.kind}} | properties
    elif issubclass(kind, Explanation):
        properties = {"version": {"const": SCHEMA_VERSION}} | properties
    return {
        "type": "object",
        "description": summary,
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _documented(kind: type) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring, and a sentence for each field: from its attributes or its comment."""
    doc = inspect.getdoc(kind) or ""
    summary, (_, _, attributes) = doc.split("\n\n")[0], doc.partition("Attributes:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    above = re.findall(r"((?:^    # .*\n)+)    (\w+): ", source := inspect.getsource(kind), re.MULTILINE)
    beside = re.findall(r"^    (\w+): [^#\n]*  # (.*)", source, re.MULTILINE)
    comments = [(name, lines.replace("    # ", " ")) for lines, name in above] + beside
    ends = {name: entry.strip().rstrip(".") + "." for name, entry in comments}
    return " ".join(summary.split()), {name: _sentence(entry) for name, entry in {**ends, **dict(entries)}.items()}


def _sentence(entry: str) -> str:
    """Return lines as one sentence with a capital."""
    line = " ".join(entry.split())
    return line[:1].upper() + line[1:]


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
