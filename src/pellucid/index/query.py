"""`SearchQuery`: a search as a value. Its fields are the options of every door: Python, HTTP, MCP and command line."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_args

from pellucid.errors import InputError, check_number, shown

Weights = Mapping[str, float] | None
"""Of parts or words by name; None for those that are set."""

Synonyms = Mapping[str, Sequence[str]] | None
"""The synonyms of words; None for those that are set."""

Boosts = Sequence[Mapping[str, Any]] | None
"""What metadata add to the score: {"where": conditions, "weight": 0.2} or {"recent": field, ...}; None for none."""

Conditions = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
"""On the metadata: a dict for all of them, a list of dicts for any; None for none."""


class Option(NamedTuple):
    """What an option means, for the doors that describe it, and the least and the most that a number may be."""

    help: str
    least: float = -math.inf
    most: float = math.inf

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON schema of a field with this option, which pydantic asks for; pellucid does not need it."""
        ends = {"minimum": self.least, "maximum": self.most}
        limits = {end: int(limit) for end, limit in ends.items() if math.isfinite(limit)}
        return {**handler(core_schema), **limits, "description": self.help}


@dataclass(frozen=True)
class SearchQuery:
    """What a search asks for; `Index.search` says what each field means.

    Raises:
        InputError: a field has a value that no index can use.
    """

    query: Annotated[str, Option("What to look for.")]
    top_k: Annotated[int, Option("How many hits.", 1)] = 10
    offset: Annotated[int, Option("How many of the best hits to leave out: 10 for the second page of ten.", 0)] = 0
    where: Annotated[Conditions, Option('On the metadata: {"year": {"gte": 1990}, "lang": "en"}.')] = None
    weights: Annotated[Weights, Option("The weight of a part of the score, e.g. bm25=1; parts not listed get 0.")] = (
        None
    )
    word_weights: Annotated[Weights, Option("What a word of the query counts, e.g. immune=0.3.")] = None
    steer: Annotated[
        Weights, Option("A text to move the query to, or with a weight below 0 away from, e.g. cars=-0.5.")
    ] = None
    synonyms: Annotated[
        Synonyms, Option("Words that a word of the query also finds, one way, e.g. car=auto|automobile.")
    ] = None
    boosts: Annotated[
        Boosts,
        Option(
            'What metadata add: [{"where": {"lang": "en"}, "weight": 0.2}], or what recent dates add: '
            '[{"recent": "day", "half_life_days": 30, "weight": 0.3}].'
        ),
    ] = None
    group_by: Annotated[
        str | None, Option("A field of the metadata: at most one hit for each of its values, the best.")
    ] = None
    min_score: Annotated[float | None, Option("Leave out hits with a lower score.")] = None
    min_probability: Annotated[
        float | None, Option("Leave out hits that answer with a lower probability; the index must be calibrated.", 0, 1)
    ] = None
    rerank: Annotated[Any, Option("A CrossEncoder, by folder or hub id, that scores the first hits anew.")] = None
    rerank_top: Annotated[int, Option("How many of the first hits it scores.", 1)] = 50
    settings: Annotated[
        str | None, Option("The name of options that the index keeps; those that are given count instead.")
    ] = None

    def __post_init__(self) -> None:
        """Check the text and the numbers; the index checks names of its parts and fields."""
        if not isinstance(self.query, str):
            raise InputError(f"the query is {shown(self.query)} ({type(self.query).__name__}); it must be a string")
        for name, (kind, option) in _NUMBERS.items():
            is_integer, value = kind is int, getattr(self, name)
            check_number(name, value, least=option.least, most=option.most, integer=is_integer, optional=not is_integer)
            if is_integer:
                object.__setattr__(self, name, int(value))  # numpy's are no numbers for C


OPTIONS: dict[str, tuple[Any, Option]] = {
    name: get_args(parameter.annotation) for name, parameter in inspect.signature(SearchQuery).parameters.items()
}
"""Of each field of `SearchQuery` its type, and what it means."""

DEFAULTS: dict[str, Any] = {name: getattr(SearchQuery, name) for name in OPTIONS if name != "query"}
"""The default of each option but the query."""

_NUMBERS = {name: (kind, option) for name, (kind, option) in OPTIONS.items() if kind in (int, float | None)}


def served_reranker(reranker: Any, *, is_wanted: bool) -> Any:
    """Return the reranker of a server, or None where none is `wanted`.

    Raises:
        InputError: one is wanted, and the server has none.
    """
    if is_wanted and reranker is None:
        raise InputError("rerank needs a server that was started with --rerank MODEL; leave it out")
    return reranker if is_wanted else None
