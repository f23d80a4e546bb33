"""An ensemble on disk: each part in a folder of its own, or found by name.

    config.json        the family and, for people, the names of the parts
    ensemble.json      the parts in order: name, weight, dimension, how each is opened, and how it is known again
    part_0/ ...        a pellucid model or a SentenceTransformer, as it saves itself; absent where it is found by name

A part is known again by its cosines between a few sentences: one that is found by name and gives others is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.base import Embedder
from pellucid.encoders import Encoder, is_sentence_transformer
from pellucid.errors import InputError, ModelFolderError
from pellucid.pretrained import (
    check_family,
    load,
    locate,
    open_encoder,
    open_sentence_transformer,
    saving,
    without_bars,
)
from pellucid.store import read_json, write_json

_FACTS = "ensemble.json"
_OURS, _STOCK, _NAMED, _CALLABLE = "pellucid", "sentence-transformers", "name", "function"


class SavedPart(NamedTuple):
    """A part as it is written and read."""

    name: str
    model: Encoder
    weight: float
    dimension: int
    source: str | None
    """The name it is kept by, None where it is a copy or a function."""
    cosines: list[float]
    """What it is known again by: those of a few sentences to each other."""


def write_folder(path: str | Path, parts: Sequence[SavedPart]) -> None:
    """Write `parts` to folder `path`; see `EnsembleEmbedder.save_pretrained`."""
    facts = {"parts": ", ".join(part.name for part in parts), "dimension": sum(part.dimension for part in parts)}
    with saving(path, "ensemble", facts) as folder:
        records = []
        for number, part in enumerate(parts):
            kind = _NAMED if part.source is not None else _write_model(_place(folder, number), part.model)
            facts_of_part = {"name": part.name, "weight": part.weight, "dimension": part.dimension, "opened": kind}
            records.append({**facts_of_part, "source": part.source, "cosines": part.cosines})
        write_json(folder / _FACTS, {"parts": records})


def _place(folder: Path, number: int) -> Path:
    return folder / f"part_{number}"


def _write_model(folder: Path, model: Encoder) -> str:
    """Write a copy of a model where it has a form on disk; return which."""
    if isinstance(model, Embedder):
        model.save_pretrained(folder)
        return _OURS
    if is_sentence_transformer(model):
        with without_bars():
            model.save_pretrained(str(folder), create_model_card=False)
        return _STOCK
    return _CALLABLE


def read_folder(path_or_id: str | Path, instead: Mapping[str, Encoder]) -> list[SavedPart]:
    """Open the parts that `write_folder` wrote, as they were said to be; see `EnsembleEmbedder.from_pretrained`."""
    folder = locate(path_or_id)
    check_family(folder, "ensemble")
    records = _read_records(folder / _FACTS)
    unknown = set(instead) - {record["name"] for record in records}
    if unknown:
        raise InputError(
            f"{folder} has no part {sorted(unknown)[0]!r:.80}; there are {', '.join(r['name'] for r in records)}"
        )
    return [_read_part(folder, number, record, instead) for number, record in enumerate(records)]


def _read_records(path: Path) -> list[dict[str, Any]]:
    """Return what is said of each part after checking it."""
    found = read_json(path)
    records = found.get("parts") if isinstance(found, dict) else None
    if not isinstance(records, list) or not records or not all(map(_is_record, records)):
        raise ModelFolderError(
            f"{path} does not describe an ensemble; each part needs name, weight, opened and cosines"
        )
    if len({record["name"] for record in records}) < len(records):
        raise ModelFolderError(f"{path} has two parts of the same name")
    return records


def _is_record(value: Any) -> bool:
    kinds: dict[str, Any] = {"name": str, "weight": (int, float), "dimension": int, "opened": str, "cosines": list}
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), kind) for key, kind in kinds.items())
        and all(_is_number(number) for number in (value["weight"], *value["cosines"]))
        and type(value["dimension"]) is int
        and all(abs(cosine) < 2 for cosine in value["cosines"])
    )


def _is_number(value: Any) -> bool:
    """Whether a value of JSON is a number that a float can hold, and no NaN."""
    return type(value) in (int, float) and abs(value) < 1e18


def _read_part(folder: Path, number: int, record: dict[str, Any], instead: Mapping[str, Encoder]) -> SavedPart:
    """Open one part, unless there is another one to use instead."""
    name, model = record["name"], instead.get(record["name"])
    try:
        model = _open(_place(folder, number), record, folder) if model is None else model
    except InputError as error:
        raise ModelFolderError(f"{folder}: the part {name!r:.80} cannot be used: {error}") from error
    except RecursionError as error:
        raise ModelFolderError(f"{folder}: the part {name!r:.80} leads back to the ensemble") from error
    source = record.get("source") if record["opened"] == _NAMED else None
    return SavedPart(name, model, record["weight"], record["dimension"], source, record["cosines"])


def _open(place: Path, record: dict[str, Any], folder: Path) -> Encoder:
    """Open the model of a part from its folder or by its name."""
    kind, name, source = record["opened"], record["name"], record.get("source")
    if kind == _OURS:
        return load(place)
    if kind == _STOCK:
        return open_sentence_transformer(str(place))
    if kind == _NAMED and isinstance(source, str):
        return open_encoder(source)
    if kind == _CALLABLE:
        raise ModelFolderError(
            f"{folder}: the part {name!r:.80} was a function, which no file can hold; give it: "
            f"EnsembleEmbedder.from_pretrained(folder, parts={{{name!r:.80}: function}})"
        )
    raise ModelFolderError(
        f"{folder}: the part {name!r:.80} is opened by {kind!r:.40}, which this version does not know"
    )
