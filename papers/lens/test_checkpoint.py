"""The LENS authors' checkpoints: what their example gives, names of clusters, harmful files, task instructions."""

from __future__ import annotations

import copy
import zipfile

import numpy as np
import pytest

from tasks import Planar
from tiny_models import sentence_piece, tiny_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from papers.lens.checkpoint import (
    INSTRUCTIONS,
    _read_head,
    evaluate_instructed,
    instruction_for,
    name_clusters,
    open_checkpoint,
)
from papers.test_local_tasks import WRITERS
from pellucid.errors import InputError, ModelFolderError
from pellucid.lexicon import LexiconSettings
from pellucid.lexicon.clusters import cluster_vocabulary


def by_the_readme(model, tokenizer, head, texts, instruction=None):
    """The authors' usage example, with left padding and their masks; `model` gives the last hidden states."""
    tokenizer.padding_side, tokenizer.pad_token = "left", "<unk>"
    said = [f"<instruct>{instruction}\n<query>{text}" if instruction else text for text in texts]
    inputs = tokenizer([text + "</s>" for text in said], padding=True, return_tensors="pt")
    mask = inputs["attention_mask"].clone()
    if instruction:
        mask[:] = 0
        for row, ids in zip(mask, inputs["input_ids"]):
            row[(ids == tokenizer.convert_tokens_to_ids("<query>")).nonzero()[-1].item() : -2] = 1
    mask[:, -2:] = 0
    with torch.inference_mode():
        hidden = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
        weights = torch.log(1 + torch.relu(hidden @ head.T)) * mask.unsqueeze(-1)
        return torch.nn.functional.normalize(weights.max(dim=1).values, dim=1).numpy()


@pytest.fixture(scope="module")
def authors(tmp_path_factory):
    """A tiny Mistral with the three added tokens, its centroids in either place, and what it was made from."""
    root = tmp_path_factory.mktemp("authors")
    tokenizer = sentence_piece()
    model = tiny_model("mistral", len(tokenizer), sliding_window=None)
    model.save_pretrained(root / "base")
    tokenizer.save_pretrained(root / "base")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<instruct>", "<query>", "<response>"]})
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    centroids = torch.nn.Linear(32, 12, bias=False)
    torch.nn.init.normal_(centroids.weight, std=0.5)
    for form in ("published", "beside"):
        model.lm_head = centroids if form == "published" else torch.nn.Linear(32, len(tokenizer), bias=False)
        model.save_pretrained(root / form)
        tokenizer.save_pretrained(root / form)
    torch.save(copy.deepcopy(centroids).half(), root / "beside" / "lm_head.pth")
    reference = model.model
    reference.config.is_causal = False
    return root, reference.eval(), tokenizer, centroids.weight.detach()


@pytest.mark.parametrize("form", ["published", "beside"])
@pytest.mark.parametrize("instruction", [None, "Find the horse."])
@pytest.mark.filterwarnings("ignore:the checkpoint holds")
def test_the_authors_checkpoints_give_what_their_example_gives(authors, form, instruction):
    root, reference, tokenizer, head = authors
    texts = ["the man is riding a horse", "quickly a car", "the sick boy gave the doctor a horse on the beach"]
    expected = by_the_readme(reference, tokenizer, head, texts, instruction)
    found = open_checkpoint(root / form).with_instruction(instruction or "").encode(texts)
    np.testing.assert_allclose(found.toarray(), expected, atol=2e-3 if form == "beside" else 1e-5)
    assert found.shape == (3, 12) and expected.any(axis=1).all()


def test_the_authors_clusters_are_named_by_the_model_they_came_from(authors):
    root, *_ = authors
    with pytest.warns(UserWarning, match="clusters are called by numbers; give the model it was trained from"):
        nameless = open_checkpoint(root / "published")
    assert nameless.dimensions.names[0] == "cluster 0"
    named = open_checkpoint(root / "published", backbone=root / "base")
    words = [word for dimension in named.dimensions for word in dimension.about]
    assert {"horse", "doctor", "medicine"} <= set(words) and not {"<instruct>", "</s>"} & set(words)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_saved_layer_or_tensor_is_read(tmp_path, dtype):
    linear = torch.nn.Linear(8, 5, bias=False).to(getattr(torch, dtype))
    for name, saved in {"layer.pth": linear, "tensor.pth": linear.weight}.items():
        torch.save(saved, tmp_path / name)
        assert (_read_head(tmp_path / name, 8) == linear.weight.detach().float().numpy()).all()


def test_a_harmful_or_broken_pickle_is_refused_and_not_run(tmp_path):
    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harmed"), "w"))

    torch.save([torch.zeros(4, 8), Harm()], tmp_path / "harm.pth")
    torch.save([torch.zeros(4, 8), torch.zeros(3)], tmp_path / "two.pth")
    torch.save(torch.zeros(1, 8).expand(1 << 40, 8), tmp_path / "huge.pth")
    torch.save(torch.zeros(4, 7), tmp_path / "narrow.pth")
    (tmp_path / "none.pth").write_bytes(b"not a zip")
    with zipfile.ZipFile(tmp_path / "odd.pth", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02K\x01")
        archive.writestr("a/data/0", b"\0" * 64)
    found = {"harm": "torch.save", "two": "holds list", "huge": "one array", "narrow": "any x 8"}
    for name, message in (found | {"none": "torch.save", "odd": "torch.save"}).items():
        with pytest.raises(ModelFolderError, match=message):
            _read_head(tmp_path / f"{name}.pth", 8)
    assert not (tmp_path / "harmed").exists()


def test_a_checkpoint_without_centroids_says_where_it_looked(authors, tmp_path):
    root, *_ = authors
    with pytest.raises(ModelFolderError, match=r"no centroids: no lm_head\.weight .* no lm_head\.pth"):
        open_checkpoint(root / "base")


def test_published_centroids_get_names():
    tokens = ["[unused1]", "review", "##view", "reviews", "paris", "rome", "##bed", "!", "?", "1995"]
    rows = np.eye(4, dtype=np.float32)[[0, 0, 0, 0, 1, 1, 2, 3, 3, 1]]
    rows = rows + np.random.default_rng(0).normal(scale=0.05, size=rows.shape).astype(np.float32)
    made = cluster_vocabulary(rows, tokens, 4)
    again = name_clusters(made.centroids, rows, tokens)
    assert (again.assignment == made.assignment).all() and again.names == made.names
    with_dead = name_clusters(np.vstack([made.centroids, np.full((1, 4), 99, np.float32)]), rows, tokens)
    assert with_dead.names[4] == "empty cluster 4" and with_dead.sizes[4] == 0
    with pytest.raises(InputError, match="3 dimensions and rows of 4"):
        name_clusters(np.ones((2, 3)), rows, tokens)


# Task instructions

SCIFACT, STS = (instruction_for(*task) for task in (("SciFact", "Retrieval"), ("STS12", "STS")))


class Told(Planar):
    """Writes down what each of its texts was read as."""

    def __init__(self, instruction="", seen=None):
        super().__init__()
        self.settings = LexiconSettings(instruction=instruction, takes_instruction=True)
        self.seen = [] if seen is None else seen

    def with_instruction(self, instruction):
        return Told(instruction, self.seen)

    def save_pretrained(self, path):
        super().save_pretrained(path)
        (path / "instruction.txt").write_text(self.settings.instruction)

    def _encode(self, texts, role, *, batch_size, show_progress_bar):
        self.seen += [("document", "") if role == "document" else ("told", self.settings.instruction)] * len(texts)
        return super()._encode(texts, role, batch_size=batch_size, show_progress_bar=show_progress_bar)


@pytest.mark.full
def test_every_task_of_the_benchmark_has_an_instruction():
    import mteb

    tasks, expected = INSTRUCTIONS["tasks"], set()
    for task in mteb.get_benchmark("MTEB(eng, v1)").tasks:
        name, prompt = task.metadata.name, task.metadata.prompt
        expected |= {name, *(member.metadata.name for member in getattr(task, "tasks", []))}
        prompt = prompt["query"] if isinstance(prompt, dict) else prompt
        if prompt is not None and name != "TRECCOVID":  # MTEB adds "on COVID-19" to the paper's
            assert tasks[name] == prompt.removesuffix(".") + "."
        if task.metadata.type == "STS":
            assert tasks[name] == STS
    assert len(expected) == 56 + 12
    assert set(tasks) == expected | {"AIR-Bench"}
    assert all(text.endswith(".") and text[0].isupper() and text == text.strip() for text in tasks.values())


def test_tasks_that_the_authors_code_forgets():
    tasks = INSTRUCTIONS["tasks"]
    (forums,) = {tasks[name] for name in tasks if name.startswith("CQADupstack")}
    assert forums.startswith(
        "Given a question, retrieve detailed question descriptions from Stackexchange that are dup"
    )
    assert tasks["SummEval"] == "Given a news summary, retrieve other semantically similar summaries."
    assert tasks["TRECCOVID"] == "Given a query, retrieve documents that answer the query."
    assert SCIFACT == "Given a scientific claim, retrieve documents that support or refute the claim."
    assert STS == "Retrieve semantically similar text."


@pytest.mark.parametrize(
    ("name", "kind", "meant"),
    [
        ("scifact", "Retrieval", "SciFact"),
        ("trec-covid", "Retrieval", "TRECCOVID"),
        ("fiqa", "Retrieval", "FiQA2018"),
        ("quora", "Retrieval", "QuoraRetrieval"),
        ("mtop_intent", "Classification", "MTOPIntentClassification"),
        ("twenty-newsgroups", "Clustering", "TwentyNewsgroupsClustering"),
        ("TwitterURL", "PairClassification", "TwitterURLCorpus"),
        ("AIR-Bench_24.04_qa_law", "Retrieval", "AIR-Bench"),
    ],
)
def test_folders_are_known_by_their_tasks_names(name, kind, meant):
    assert instruction_for(name, kind) == INSTRUCTIONS["tasks"][meant]


def test_other_tasks_are_told_their_types():
    assert instruction_for("npl", "Retrieval") == "Retrieve text based on user query."
    assert instruction_for("npl", "SpeedReading") == ""
    assert set(INSTRUCTIONS["aliases"].values()) <= set(INSTRUCTIONS["tasks"])


@pytest.mark.parametrize("kind", WRITERS)
def test_queries_and_texts_are_told_and_documents_are_not(kind, tmp_path):
    WRITERS[kind](tmp_path / "data")
    model = Told()
    (row,) = evaluate_instructed(model, tmp_path / "data", cache_dir=tmp_path / "cache").rows
    instruction = instruction_for(row.task, kind)
    documents = {("document", "")} if kind in ("Retrieval", "Reranking") else set()
    assert instruction and set(model.seen) == {("told", instruction)} | documents


def test_a_model_trained_without_instructions_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"Planar was trained without instructions; score it with pellucid\.evaluate"):
        evaluate_instructed(Planar(), tmp_path)
