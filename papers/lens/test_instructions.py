"""Task instructions: the table against MTEB's own, who is told what, and that scores are kept apart."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from papers.lens.instructions import evaluate_instructed, read_instructions, with_task
from papers.test_local_tasks import WRITERS
from pellucid.errors import InputError
from pellucid.lexicon import LexiconSettings
from tasks import Planar

SCIFACT = "Given a scientific claim, retrieve documents that support or refute the claim."
STS = "Retrieve semantically similar text."
AUTO, BUNDLED = read_instructions("auto"), read_instructions("bundled")


class Told(Planar):
    """Writes down what each of its texts was read as."""

    def __init__(self, instruction="", trained=True, seen=None, template="{instruction} {text}"):
        super().__init__()
        self.settings = LexiconSettings(
            instruction=instruction, takes_instruction=trained, instructed_template=template
        )
        self.seen = [] if seen is None else seen

    def with_instruction(self, instruction):
        return Told(instruction, self.settings.takes_instruction, self.seen, self.settings.instructed_template)

    def save_pretrained(self, path):
        super().save_pretrained(path)
        (path / "instruction.txt").write_text(self.settings.instruction)

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        self.seen += [("document", "") if role == "document" else ("told", self.settings.instruction)] * len(texts)
        return super()._encode(texts, role, batch_size=batch_size, show_progress_bar=show_progress_bar)


# The table


@pytest.mark.full
def test_every_task_of_the_benchmark_has_an_instruction():
    import mteb

    expected = set()
    for task in mteb.get_benchmark("MTEB(eng, v1)").tasks:
        name, prompt = task.metadata.name, task.metadata.prompt
        expected |= {name, *(part.metadata.name for part in getattr(task, "tasks", []))}
        prompt = prompt["query"] if isinstance(prompt, dict) else prompt
        if prompt is not None and name != "TRECCOVID":  # MTEB adds "on COVID-19" to the paper's
            assert AUTO.tasks[name] == prompt.removesuffix(".") + "."
        if task.metadata.type == "STS":
            assert AUTO.tasks[name] == STS
    assert len(expected) == 56 + 12
    assert set(AUTO.tasks) == expected | {"AIR-Bench"}
    assert all(text.endswith(".") and text[0].isupper() and text == text.strip() for text in AUTO.tasks.values())


def test_tasks_that_the_authors_code_forgets():
    forums = {AUTO.tasks[name] for name in AUTO.tasks if name.startswith("CQADupstack")}
    assert forums == {
        "Given a question, retrieve detailed question descriptions from Stackexchange that are duplicates to the given "
        "question."
    }
    assert AUTO.tasks["SummEval"] == "Given a news summary, retrieve other semantically similar summaries."
    assert AUTO.tasks["TRECCOVID"] == "Given a query, retrieve documents that answer the query."


@pytest.mark.parametrize(
    ("name", "kind", "meant"),
    [
        ("SciFact", "Retrieval", "SciFact"),
        ("scifact", "Retrieval", "SciFact"),
        ("trec-covid", "Retrieval", "TRECCOVID"),
        ("fiqa", "Retrieval", "FiQA2018"),
        ("quora", "Retrieval", "QuoraRetrieval"),
        ("cqadupstack", "Retrieval", "CQADupstackRetrieval"),
        ("imdb", "Classification", "ImdbClassification"),
        ("mtop_intent", "Classification", "MTOPIntentClassification"),
        ("twenty-newsgroups", "Clustering", "TwentyNewsgroupsClustering"),
        ("TwitterURL", "PairClassification", "TwitterURLCorpus"),
        ("AIR-Bench_24.04_qa_law", "Retrieval", "AIR-Bench"),
        ("air-bench wiki", "Retrieval", "AIR-Bench"),
    ],
)
def test_folders_are_known_by_their_tasks_names(name, kind, meant):
    assert AUTO.of(name, kind) == AUTO.tasks[meant]


def test_other_tasks_are_told_their_types():
    assert AUTO.of("npl", "Retrieval") == "Retrieve text based on user query."
    assert AUTO.of("search_snippets", "Clustering") == "Identify categories in user passages."
    assert AUTO.of("npl", "SpeedReading") == ""
    aliases = set(AUTO.aliases.values())
    assert aliases <= set(AUTO.tasks)


# Who is told


def test_a_model_that_takes_none_is_untouched():
    plain = Planar()
    for table in (None, AUTO, BUNDLED):
        model, instruction = with_task(plain, table, "SciFact", "Retrieval")
        assert model is plain and instruction == ""


def test_only_a_model_trained_with_instructions_is_told_unasked():
    untrained, trained = Told(trained=False), Told()
    model, instruction = with_task(untrained, AUTO, "SciFact", "Retrieval")
    assert model is untrained and instruction == ""
    model, instruction = with_task(trained, AUTO, "SciFact", "Retrieval")
    assert model.settings.instruction == instruction == SCIFACT
    assert with_task(untrained, BUNDLED, "STS12", "STS")[1] == STS
    assert with_task(trained, None, "STS12", "STS") == (trained, "")


def test_an_instruction_that_a_model_has_stays_unless_asked():
    model = Told("Find it")
    assert with_task(model, AUTO, "SciFact", "Retrieval") == (model, "Find it")
    assert with_task(model, None, "SciFact", "Retrieval") == (model, "Find it")
    assert with_task(model, BUNDLED, "SciFact", "Retrieval")[1] == SCIFACT


def test_a_template_without_a_place_for_it_is_told_nothing():
    model = Told(template="Query: {text}")
    assert with_task(model, BUNDLED, "SciFact", "Retrieval") == (model, "")


def test_the_released_checkpoints_are_told_and_new_models_are_not():
    from papers.lens.checkpoint import SETTINGS

    assert SETTINGS.takes_instruction and not LexiconSettings().takes_instruction
    assert with_task(SimpleNamespace(settings=SETTINGS, with_instruction=str.upper), AUTO, "STS12", "STS") == (
        STS.upper(),
        STS,
    )


# In an evaluation


def run(model, tmp_path, kind, **options):
    WRITERS[kind](tmp_path / "data" / kind)
    results, told = evaluate_instructed(model, tmp_path / "data" / kind, cache_dir=tmp_path / "cache", **options)
    (row,) = results.rows
    return SimpleNamespace(task=row.task, score=row.score, instruction=told[row.task])


@pytest.mark.parametrize("kind", WRITERS)
def test_queries_and_texts_are_told_and_documents_are_not(kind, tmp_path):
    model = Told()
    row = run(model, tmp_path, kind)
    assert row.instruction == AUTO.of(row.task, kind) != ""
    documents = {("document", "")} if kind in ("Retrieval", "Reranking") else set()
    assert set(model.seen) == {("told", row.instruction)} | documents


def test_scores_are_kept_by_instruction(tmp_path):
    model = Told()

    def scored(**options):
        model.seen.clear()
        row = run(model, tmp_path, "STS", **options)
        return row.instruction, bool(model.seen)

    own = tmp_path / "own.json"
    own.write_text(json.dumps({"STS12": "Which are alike?"}))
    assert scored() == (STS, True)
    assert scored(instructions="none") == ("", True)
    assert scored(instructions=own) == ("Which are alike?", True)
    assert scored() == scored(instructions="bundled") == (STS, False)
    assert scored(instructions=None) == ("", False)
    own.write_text(json.dumps({"STS12": "Which mean the same?"}))
    assert scored(instructions=str(own)) == ("Which mean the same?", True)


def test_a_model_without_instructions_keeps_its_scores(tmp_path):
    model = Planar()
    run(model, tmp_path, "STS", instructions="none")
    encoded = model.encoded
    assert run(model, tmp_path, "STS", instructions="bundled").instruction == ""
    assert model.encoded == encoded


# An own file


def test_an_own_file_stands_alone(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"tasks": {"npl": "Find it."}, "types": {"STS": "Same?"}}))
    table = read_instructions(path)
    assert (table.of("NPL", "Retrieval"), table.of("STS12", "STS"), table.of("SciFact", "Retrieval")) == (
        "Find it.",
        "Same?",
        "",
    )
    assert table.asked and replace(AUTO, asked=True) == BUNDLED


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "own.json"),
        ("[]", "must hold an object of task names"),
        ('{"STS12": 3}', "all of them strings"),
        ('{"tasks": {}, "types": {"STS": null}}', "all of them strings"),
        (None, "no instructions '.*own.json': give auto, bundled, none or a JSON file"),
    ],
)
def test_a_file_of_no_use_is_said_before_any_work(content, message, tmp_path):
    path = tmp_path / "own.json"
    if content is not None:
        path.write_text(content)
    model = Told()
    with pytest.raises(InputError, match=message):
        run(model, tmp_path, "STS", instructions=path)
    assert model.seen == []


def test_a_lexicon_model_is_told(tmp_path):
    pytest.importorskip("torch")
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder
    from pellucid.transformer.backbone import prepare
    from tiny_models import byte_level, tiny_model

    tokenizer = byte_level()
    backbone = prepare(
        tiny_model("gpt_neox", len(tokenizer), max_position_embeddings=256), tokenizer, attention="causal", device="cpu"
    )
    clusters = cluster_vocabulary(backbone.head, tokenizer, 30)
    model = LexiconEmbedder(backbone, clusters, LexiconSettings(takes_instruction=True))
    rows = [run(model, tmp_path, "STS", instructions=choice) for choice in ("none", "auto")]
    by_hand = run(model.with_instruction(STS), tmp_path, "STS", instructions="none")
    assert rows[0].instruction == "" and rows[1].instruction == by_hand.instruction == STS
    assert rows[1].score == by_hand.score
    untrained = LexiconEmbedder(backbone, clusters)
    assert run(untrained, tmp_path, "STS").instruction == ""
