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
    from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from pellucid.core.embedder import Embedder
    from pellucid.index.index import Index

_Count = Annotated[int, Field(ge=1, le=50)]
_Model = Annotated[str | None, Field(description="One of the models that the server names; the first without it.")]


class ScoreTerm(BaseModel):
    """A term of a score."""

    name: str = Field(description="A word, a pair of words, or a dimension.")
    contribution: float = Field(description="What it adds to the score.")
    without: float | None = Field(None, description="The score without its words; null where not checked.")


class Why(BaseModel):
    """Why two texts are similar."""

    score: float = Field(description="The similarity: the sum of groups.")
    summary: str = Field(description="Where the score comes from, in one or two sentences.")
    groups: list[ScoreTerm] = Field(description="The score by phrases of text1 and those of text2 that they match.")


class TextDescription(BaseModel):
    """What a text is about."""

    description: str = Field(description="What pulls the text's embedding most.")
    coverage: float = Field(description="The share of its words that the model knows, 0 to 1.")


class FoundDocument(BaseModel):
    """A document that was found."""

    id: str
    score: float
    title: str
    text: str = Field(description="The passage of the document that fits best.")
    metadata: dict[str, Any]
    parts: dict[str, float] = Field(description="What each part of the index adds to the score.")
    summary: str = Field(description="Where the score comes from, in one or two sentences.")
    groups: list[ScoreTerm] = Field(description="The score by phrases of the query and those that they match.")
    marks: dict[str, list[dict[str, int | float]]] = Field(description="Stretches of title and text that match.")


class FoundDocuments(BaseModel):
    """The documents found, best first."""

    documents: list[FoundDocument]
    unknown: list[str] = Field(description="Words of the query that no document has, or that no model knows.")
    suggestions: dict[str, str] = Field(description="Words of the documents that unknown words may be meant as.")
    ignored: list[str] = Field(description="Words of the query that were not searched: stop words and signs.")


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
    own, arguments = signature(call, eval_str=True), dict(signature(SearchQuery).parameters)
    arguments["top_k"] = arguments["top_k"].replace(default=5, annotation=_Count)
    arguments["rerank"] = arguments["rerank"].replace(
        default=False, annotation=Annotated[bool, Field(description="Score the first hits anew.")]
    )
    arguments |= {name: own.parameters[name] for name in own.parameters if name != "options"}
    return own.replace(
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


class _Tools:
    """The tools; an assistant reads their signatures and docstrings."""

    def __init__(self, models: Mapping[str, Embedder], index: Index | None, rerank: Any) -> None:
        self._models, self._index, self._rerank = models, index, rerank

    def explain(self, text1: str, text2: str, model: _Model = None) -> Why:
        """Tell how similar two texts are, and why: in a sentence, and by phrases that match."""
        check_explained(text1, text2)
        why = self._model(model).explain(text1, text2)
        groups = [ScoreTerm.model_validate(group._asdict()) for group in why.lines]
        return Why(score=why.score, summary=why.summary(), groups=groups)

    def describe(self, text: str, top_k: _Count = 5, model: _Model = None) -> TextDescription:
        """Describe in a line what a text is mostly about for a model, and how much of it the model knows."""
        check_explained(text)
        opened = self._model(model)
        return TextDescription(description=opened.describe(text, top_k=top_k), coverage=float(opened.coverage(text)))

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
    ) -> FoundDocuments:
        """Find documents, with the reasons for each score.

        `min_score` leaves out documents with a lower score, `min_probability` those that answer with a lower
        probability, where the index is calibrated. `check` scores each document again without the words of each
        reason, so that the summary says what they are worth. An acronym that is also a word, such as WHO or IT, is
        searched where it is written in capitals.

        `where` are conditions on the metadata that must all hold, such as {"year": {"gte": 1990}, "lang": "en"}; the
        operators are eq, ne, in, nin, gt, gte, lt, lte and exists.
        """
        assert self._index is not None  # without one there is no such tool
        check_explained(options["query"])
        hits = self._index.search(**options | {"rerank": served_reranker(self._rerank, wanted=options["rerank"])})
        hits = hits.check() if check else hits
        documents = [{**hit.to_dict(), "summary": hit.summary()} for hit in hits]
        return FoundDocuments(
            documents=list(map(FoundDocument.model_validate, documents)),
            unknown=list(hits.unknown),
            suggestions={word: instead for word, instead, _ in hits.suggestions},
            ignored=list(hits.ignored),
        )

    def why_not(
        self, id: Annotated[str, Field(description="Of the document that is not found.")], **options: Any
    ) -> dict[str, Any]:
        """Tell why a search does not find a document: its rank, its gap to the last hit, and causes.

        Each cause has the cheapest change of the search that finds it, which was tried.
        """
        assert self._index is not None  # without one there is no such tool
        check_explained(options["query"])
        options |= {"id": id, "rerank": served_reranker(self._rerank, wanted=options["rerank"])}
        return self._index.why_not(**options).to_dict()

    def compare(
        self,
        queries: Annotated[list[str], Field(max_length=100)],
        second: Annotated[dict[str, Any] | str, Field(description="Options of search, or a name of `settings`.")],
        first: Annotated[dict[str, Any] | str, Field(description="The same; {} is the index as it is.")] = {},  # noqa: B006
        top_k: _Count = 10,
    ) -> dict[str, Any]:
        """Tell which queries find other documents with other options of a search, and which terms moved them."""
        assert self._index is not None  # without one there is no such tool
        check_explained(*queries)
        return self._index.compare(
            dict(zip(map(str, range(len(queries))), queries)), first, second, top_k=top_k
        ).to_dict()

    def _model(self, name: str | None) -> Embedder:
        if name is None:
            return next(iter(self._models.values()))
        if name not in self._models:
            raise InputError(f"no model {shown(name, 80)} is served here; there are: {', '.join(self._models)}")
        return self._models[name]
