"""Every option of a search at every door: Python, HTTP, MCP and the command line, with the same hits."""

import asyncio
import inspect
import json
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the server needs pellucid[serve]")
pytest.importorskip("mcp", reason="the assistant's server needs pellucid[mcp]")
pytest.importorskip("Stemmer", reason="an index needs pellucid[search]")

import pellucid
from commands import all_commands, run_command
from pellucid.bulk import encode_corpus
from pellucid.errors import InputError
from pellucid.index.query import OPTIONS, SearchQuery
from pellucid.integrations.mcp import create_server
from pellucid.server import ServerSettings, create_app
from serving import ask, running

TEXTS = ["a red apple", "a green apple and a pear", "a dog in the park", "apple trees in a park", "a pear tree"]
QUERY = "red apple or pear"
RECENT = {"recent": "day", "half_life_days": 9.0, "weight": -0.3}
# Of each option a value that changes the hits, and how the command line says it.
VALUES: dict[str, tuple[Any, list[str]]] = {
    "top_k": (2, ["-k", "2"]),
    "offset": (1, ["--offset", "1"]),
    "where": ({"year": {"gte": 2}}, ["--where", "year>=2"]),
    "weights": ({"bm25": 1}, ["--weight", "bm25=1"]),
    "word_weights": ({"red": 0.1, "pear": 2}, ["--word-weight", "red=0.1", "--word-weight", "pear=2"]),
    "steer": ({"dog": 0.8}, ["--steer", "dog=0.8"]),
    "synonyms": ({"pear": ["dog", "park"], "red": ["green"]}, ["--synonym", "pear=dog|park", "--synonym", "red=green"]),
    "boosts": (
        [{"where": {"year": {"gte": 3}}, "weight": 0.4}, RECENT],
        ["--boost", "year>=3=0.4", "--boost", "day ~ 9 = -0.3"],
    ),
    "group_by": ("day", ["--group-by", "day"]),
    "min_score": (0.2, ["--min-score", "0.2"]),
    "min_probability": (0.6, ["--min-probability", "0.6"]),
    "rerank": (True, ["--rerank", "any"]),
    "settings": ("kept", ["--settings", "kept"]),
    "rerank_top": (3, ["--rerank", "any", "--rerank-top", "3", "-k", "2"]),
}
WITH: dict[str, dict[str, Any]] = {"rerank_top": {"rerank": True, "top_k": 2}}


def dogs_first(query: str, texts: list[str]) -> list[float]:
    """Score texts as a reranker that likes what the query is not about."""
    return [2.0 * ("dog" in text) - len(text) / 100 for text in texts]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, static: Any) -> Any:
    with pellucid.Index.create(tmp_path_factory.mktemp("options") / "index", {"words": static}) as made:
        made.add(
            TEXTS, ids=list("abcde"), metadata=[{"year": n, "day": f"{1000 + n % 2 * 1999}-11-01"} for n in range(5)]
        )
        made.save_settings("kept", {"weights": {"bm25": 1}, "synonyms": {"pear": ["dog"]}})
        made.calibrate(TEXTS * 4, ["the parliament voted on taxes"] * 20)
        yield made


async def call_tool(assistant: Any, name: str, arguments: dict[str, Any]) -> Any:
    import mcp

    async with mcp.Client(assistant) as client:
        return (await client.call_tool(name, arguments)).structured_content


@pytest.fixture(scope="module")
def served(index: Any) -> Any:
    """The address of a server of the index, and a server for assistants; both have a reranker, as the command line."""
    models = {"words": pellucid.load("static-en")}
    with pytest.MonkeyPatch.context() as patch:
        for module in ("loading", "server.service"):
            patch.setattr(f"pellucid.{module}.open_sentence_transformer", lambda name, kind: dogs_first)
        with running(models, index=str(index.folder), rerank="any") as url:
            yield url, create_server(models, index, dogs_first)


def searched(index: Any, *, rerank: bool = False, **options: Any) -> list[tuple[str, float]]:
    """Return the ids and scores that a search in Python finds."""
    return [(hit.id, hit.score) for hit in index.search(QUERY, **options, rerank=dogs_first if rerank else None)]


def test_every_option_has_a_value_here_and_is_an_argument_of_python() -> None:
    assert VALUES.keys() | {"query"} == OPTIONS.keys()
    own, asked = (inspect.signature(call).parameters for call in (pellucid.Index.search, SearchQuery))
    assert {name: own[name].default for name in asked} == {name: asked[name].default for name in asked}
    schema = create_app(models={"words": pellucid.load("static-en")}).openapi()["components"]["schemas"]
    of_body = schema["SearchRequest"]["properties"]
    assert OPTIONS.keys() <= of_body.keys() and all(of_body[name]["description"] for name in OPTIONS)
    assert of_body["top_k"] | {"minimum": 1, "maximum": 100} == of_body["top_k"]


@pytest.mark.parametrize("name", VALUES)
def test_an_option_does_the_same_at_every_door(name: str, index: Any, served: Any, tmp_path: Any) -> None:
    (url, assistant), (value, said) = served, VALUES[name]
    options = {name: value, **WITH.get(name, {})}
    expected, asked = searched(index, **options), {"query": QUERY, **options}
    run_command("search", index.folder, QUERY, *said, "-o", tmp_path / "hits.jsonl")
    table = [json.loads(line) for line in open(tmp_path / "hits.jsonl")]
    doors = {
        "http": ask(url, "/search", asked)[1]["hits"],
        "mcp": asyncio.run(call_tool(assistant, "search", {"top_k": 10, **asked}))["documents"],
        "command line": json.loads(run_command("search", index.folder, QUERY, *said, "--json").stdout)["hits"],
        "table": [row | {"score": sum(row[key] or 0 for key in row if key.startswith("score."))} for row in table],
    }
    assert expected and expected != searched(index, **WITH.get(name, {}))
    for door, hits in doors.items():
        assert [hit["id"] for hit in hits] == [id for id, _ in expected], door
        assert [hit["score"] for hit in hits] == pytest.approx([score for _, score in expected]), door


@pytest.mark.parametrize("name", sorted(VALUES.keys() - {"group_by", "rerank", "rerank_top"}))
def test_why_not_says_the_same_at_every_door(name: str, index: Any, served: Any) -> None:
    (url, assistant), (value, said) = served, VALUES[name]
    wanted, asked = index.why_not(QUERY, "c", **{name: value}).to_dict(), {"query": QUERY, "id": "c", name: value}
    command = run_command("search", index.folder, QUERY, *said, "--why-not", "c", "--json")
    tool = asyncio.run(call_tool(assistant, "why_not", {"top_k": 10, **asked}))
    for answer in (ask(url, "/why_not", asked)[1], tool, json.loads(command.stdout)):
        assert answer == json.loads(json.dumps(wanted))


# What is made or read, the command that does so, options under another name there, and those that are Python's alone.
DOORS: dict[str, tuple[Any, str, dict[str, str], set[str]]] = {
    "build": (pellucid.CorpusFile, "index build", {}, {"path"}),
    "create": (pellucid.Index.create, "index build",
               {"models": "model", "weights": "weight", "passage_characters": "passage"},
               {"path"}),
    "encode": (encode_corpus, "encode", {"corpus": "file"}, {"shard_size"}),
    "serve": (ServerSettings, "serve", {"hosts": "allow_host"},
              {"token", "max_body_bytes", "max_waiting"}),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_every_option_of_what_is_made_is_at_the_command_line_or_known_to_be_absent(door: str) -> None:
    value, command, names, absent = DOORS[door]
    params = {param.name for param in dict(all_commands())[tuple(command.split())].params}
    assert {name for name in inspect.signature(value).parameters if names.get(name, name) not in params} == absent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k is 0; it must be an integer, at least 1"),
        ({"offset": -1}, "offset is -1"),
        ({"top_k": True}, "top_k is True"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"rerank_top": 0}, "rerank_top is 0"),
        ({"min_score": "a"}, "min_score is 'a'; it must be a number, finite, or None"),
        ({"min_probability": float("nan")}, "min_probability is nan"),
        ({"query": 5}, "the query is 5 (int); it must be a string"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_searched(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        SearchQuery(**{"query": "a", **options})
    assert message in str(refused.value)


def test_a_reranker_that_no_server_has_is_refused(index: Any) -> None:
    with running({"words": pellucid.load("static-en")}, index=str(index.folder)) as url:
        status, answer = ask(url, "/search", {"query": QUERY, "rerank": True})
    assert status == 422 and "--rerank MODEL" in answer["error"]
