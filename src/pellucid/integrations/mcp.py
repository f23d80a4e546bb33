"""A server of the Model Context Protocol: assistants ask models and an index, and get reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

from pellucid.analysis.citing import cite
from pellucid.core.arrays import check_explained
from pellucid.errors import VERSION, InputError, PellucidError, importing, shown
from pellucid.index.query import SearchQuery, served_reranker

with importing("mcp", "mcp"):
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools.base import Tool
    from mcp.types import ToolAnnotations
    from pydantic import ConfigDict, Field

if TYPE_CHECKING:
    from pellucid.core.embedder import Embedder
    from pellucid.index.index import Index

_Count = Annotated[int, Field(ge=1, le=50)]
_Model = Annotated[str | None, Field(description="One of the models that the server names; the first without it.")]


_DOCUMENT = "id score title text metadata parts summary groups marks".split()  # the fields of a document that are sent


def create_server(models: Mapping[str, Embedder], index: Index | None = None, rerank: Any = None) -> MCPServer:
    """Return a server with the tools explain, describe and cite, and with an index search, why_not and compare.

    Args:
        models: by name; the first is the default.
        index: what search asks.
        rerank: the second stage that a search may ask for, see `Index.search`.
    """
    if not models:
        raise InputError("no model is given to serve; name at least one, as static-en")
    instructions = f"The models are: {', '.join(models)}."
    if index is not None:
        instructions += f" The index holds {len(index):,} documents; fields of the metadata: {index.info()['fields']}."
    tools = _Tools(models, index, rerank)
    described = [_tool(tools.explain), _tool(tools.describe), _tool(tools.cite)]
    if index is not None:
        described += [_tool(call, _search_signature(call)) for call in (tools.search, tools.why_not)]
        described.append(_tool(tools.compare))
    return MCPServer("pellucid", instructions=instructions, version=VERSION, log_level="WARNING", tools=described)


def _search_signature(call: Callable[..., Any]) -> Signature:
    """Return the arguments of a tool that takes the fields of `SearchQuery`, some with limits of their own."""
    call_signature, arguments = signature(call, eval_str=True), dict(signature(SearchQuery).parameters)
    arguments["top_k"] = arguments["top_k"].replace(default=5, annotation=_Count)
    arguments["rerank"] = arguments["rerank"].replace(
        default=False, annotation=Annotated[bool, Field(description="Score the first hits anew.")]
    )
    arguments |= {name: call_signature.parameters[name] for name in call_signature.parameters if name != "options"}
    return call_signature.replace(
        parameters=sorted(arguments.values(), key=lambda argument: argument.default is not argument.empty)
    )


def _tool(call: Callable[..., Any], arguments: Signature | None = None) -> Tool:
    """Return a tool that refuses unknown arguments, which MCPServer's own drop, and tells pellucid's own errors."""

    @wraps(call)
    def explaining_errors(**arguments: Any) -> Any:
        try:
            return call(**arguments)
        except PellucidError as error:
            raise ToolError(str(error)) from error

    explaining_errors.__signature__ = arguments or signature(call, eval_str=True)  # type: ignore[attr-defined]
    tool = Tool.from_function(explaining_errors, annotations=ToolAnnotations(read_only_hint=True))

    class Arguments(tool.fn_metadata.arg_model):  # type: ignore[name-defined]
        model_config = ConfigDict(extra="forbid")

    tool.fn_metadata.arg_model = Arguments
    tool.parameters = Arguments.model_json_schema(by_alias=True) | {"title": tool.parameters["title"]}
    return tool


def _terms(lines: Any) -> list[dict[str, Any]]:
    """Return lines of a score as plain values: `without` is the score without their words, where that was checked."""
    return [{name: getattr(line, name) for name in ("name", "contribution", "without")} for line in lines]


class _Tools:
    """The tools; an assistant reads their signatures and docstrings."""

    def __init__(self, models: Mapping[str, Embedder], index: Index | None, rerank: Any) -> None:
        self._models, self._rerank = models, rerank
        self._index: Any = index  # without one there are no tools that ask it

    def explain(self, text1: str, text2: str, model: _Model = None) -> dict[str, Any]:
        """Tell how similar two texts are, and why: the score, in a sentence, and by phrases that match.

        `groups` are phrases of text1 with those of text2 that they match; they add up to the score.
        """
        check_explained(text1, text2)
        why = self._model(model).explain(text1, text2)
        return {"score": why.score, "summary": why.summary(), "groups": _terms(why.lines)}

    def describe(self, text: str, top_k: _Count = 5, model: _Model = None) -> dict[str, Any]:
        """Describe in a line what a text is mostly about for a model, and which share of its words the model knows."""
        check_explained(text)
        opened = self._model(model)
        return {"description": opened.describe(text, top_k=top_k), "coverage": float(opened.coverage(text))}

    def cite(self, answer: str, passages: list[str], top_k: _Count = 3, model: _Model = None) -> dict[str, Any]:
        """Find the sentences of passages that support each sentence of an answer.

        A support is `passages[passage][start:end]`. Check its `differences`: numbers, names and negations. A sentence
        without a probable support that agrees is not `is_supported`.
        """
        check_explained(answer)
        return cite(answer, passages, self._model(model), top_k=top_k).to_dict()

    def search(
        self,
        check: Annotated[bool, Field(description="Score each document without the words that match.")] = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Find documents, with the reasons for each score: what each part of the index adds, and phrases that match.

        `min_score` leaves out documents with a lower score, `min_probability` those that answer with a lower
        probability, where the index is calibrated. `check` scores each document again without the words of each
        reason, so that the summary says what they are worth. An acronym that is also a word, such as WHO or IT, is
        searched where it is written in capitals.

        `where` are conditions on the metadata that must all hold, such as {"year": {"gte": 1990}, "lang": "en"}; the
        operators are eq, ne, in, nin, gt, gte, lt, lte and exists.
        """
        check_explained(options["query"])
        hits = self._index.search(**options | {"rerank": served_reranker(self._rerank, is_wanted=options["rerank"])})
        hits = hits.check() if check else hits
        documents = [{**hit.to_dict(), "summary": hit.summary(), "groups": _terms(hit.explain().lines)} for hit in hits]
        return {
            "documents": [{name: document[name] for name in _DOCUMENT} for document in documents],
            "unknown": list(hits.unknown),
            "suggestions": {word: instead for word, instead, _ in hits.suggestions},
            "ignored": list(hits.ignored),
        }

    def why_not(
        self, id: Annotated[str, Field(description="Of the document that is not found.")], **options: Any
    ) -> dict[str, Any]:
        """Tell why a search does not find a document: its rank, its gap to the last hit, and causes.

        Each cause has the cheapest change of the search that finds it, which was tried.
        """
        check_explained(options["query"])
        options |= {"id": id, "rerank": served_reranker(self._rerank, is_wanted=options["rerank"])}
        return dict(self._index.why_not(**options).to_dict())

    def compare(
        self,
        queries: Annotated[list[str], Field(max_length=100)],
        second: Annotated[dict[str, Any] | str, Field(description="Options of search, or a name of `settings`.")],
        first: Annotated[dict[str, Any] | str, Field(description="The same; {} is the index as it is.")] = {},  # noqa: B006
        top_k: _Count = 10,
    ) -> dict[str, Any]:
        """Tell which queries find other documents with other options of a search, and which terms moved them."""
        check_explained(*queries)
        return dict(
            self._index.compare(dict(zip(map(str, range(len(queries))), queries)), first, second, top_k=top_k).to_dict()
        )

    def _model(self, name: str | None) -> Embedder:
        if name is None:
            return next(iter(self._models.values()))
        if name not in self._models:
            raise InputError(f"no model {shown(name, 80)} is served here; there are: {', '.join(self._models)}")
        return self._models[name]
