"""Training: its rows, the loss by hand, what gradients reach, batches of one set, stopped runs, bad input."""

import copy
import gzip
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from families import reopened
from files import written
from refusals import refused
from tiny_models import saved_backbone, tiny_lexicon, tiny_model, word_piece

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytest.importorskip("peft")
load_file = pytest.importorskip("safetensors.torch").load_file

from pellucid import LexiconEmbedder, cluster_vocabulary, train_lexicon  # noqa: E402
from pellucid.errors import CorpusError, InputError  # noqa: E402
from pellucid.lexicon import LexiconSettings, TrainingSet, TrainingSettings, read_training_sets  # noqa: E402
from pellucid.lexicon.trainer import (  # noqa: E402
    CandidateLoss,
    Collator,
    LexiconModule,
    LexiconTrainer,
    SimilarityLoss,
    Watch,
    candidate_loss,
    excluded,
)
from pellucid.lexicon.training import adapted_model  # noqa: E402
from pellucid.lexicon.training_data import TextSet, TrainingRow  # noqa: E402
from pellucid.persistence.checkpoints import WorkFolder  # noqa: E402
from pellucid.persistence.folder import allow_external  # noqa: E402
from pellucid.transformer import open_backbone  # noqa: E402
from pellucid.transformer.backbone import prepare  # noqa: E402
from resuming import assert_damage_is_refused  # noqa: E402

QUICK = TrainingSettings(
    epochs=2, batch_size=4, group_size=3, learning_rate=1e-2, warmup_steps=0, rank=4, alpha=8, save_steps=2
)
ROWS = [
    TrainingRow("car", ("vehicle",), ("beach", "horse"), (9.0,), (1.0, 0.0)),
    TrainingRow("doctor", ("medicine", "medicine boy"), ("car", "rapid"), (9.0, 4.0), (1.0, 0.0)),
    TrainingRow("boy", ("man",), ("horse",), (5.0,), (3.0,)),
    TrainingRow("rapid", ("quickly",), ()),
    TrainingRow("swift", ("quickly",), ("sick", "the man", "a beach")),
    TrainingRow("cars", ("vehicle",), ("gave",)),
]
CLASSES = [TrainingRow(word, ("doctor",), ("beach", "horse"), type="symmetric_class") for word in ("sick", "medicine")]


def train(model, folder, sets=(), settings=QUICK, **changes):
    sets = sets or [TrainingSet("pairs", ROWS)]
    return train_lexicon(model, sets, folder, replace(settings, **changes), show_progress_bar=False)


def weights_of(model):
    return {name: weight.detach().clone() for name, weight in model.backbone.model.state_dict().items()}


def losses(folder):
    last = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def apart(*models):
    """How far the vectors of two models lie apart."""
    first, second = (model.encode(["the man is riding the horse", "a car"]) for model in models)
    return np.abs(first - second).max()


UNSCORED = torch.full((2, 2), float("nan"))
OTHERS = torch.tensor([[False, False, True, True], [True, True, False, False]])


def value(excluded=OTHERS & False, scores=UNSCORED, distillation=1.0):
    """The loss of two rows with two candidates each, whose cosines are here."""
    texts = torch.tensor([[0.6, 0.2, 0.5, 0.1], [0.3, 0.4, 0.7, 0.8]]).t()
    return float(candidate_loss(torch.eye(2), texts, excluded, scores, temperature=0.5, distillation=distillation))


SOME = torch.tensor([[False, True, True, False], [False, False, False, True]])
SOME_EXCLUDED = -np.log(softmax([1.2, 0.2])[0]) - np.log(softmax([0.6, 0.8, 1.4])[2])


@pytest.mark.parametrize(
    ("excluded", "scores", "expected"),
    [
        (OTHERS, UNSCORED, -np.log(softmax([1.2, 0.4])[0]) - np.log(softmax([1.4, 1.6])[0])),
        (SOME, UNSCORED, SOME_EXCLUDED),
        (SOME | OTHERS, UNSCORED, 0),
        (SOME, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), SOME_EXCLUDED),
    ],
)
def test_the_loss_over_candidates_that_are_not_excluded_by_hand(excluded, scores, expected):
    assert value(excluded, scores) == pytest.approx(expected / 2, rel=1e-6, abs=1e-6)


def test_distillation_is_the_divergence_over_own_candidates_of_scored_rows():
    scores = torch.tensor([[2.0, 1.0], [float("nan"), 3.0]])
    teacher, student = softmax([2, 1]), softmax([1.2, 0.4])
    divergence = (teacher * np.log(teacher / student)).sum()
    for share in (1.0, 0.25):  # of two rows one has scores
        added = value(scores=scores, distillation=share) - value()
        assert added == pytest.approx(share * divergence / 2, rel=1e-3)
    same = torch.tensor([[1.2, 0.4], [1.4, 1.6]]) + torch.tensor([[5.0], [-3.0]])  # a shift changes no softmax
    assert value(scores=same) == pytest.approx(value(), rel=1e-5)


@pytest.mark.parametrize(
    ("in_batch", "expected"),
    [
        (True, [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1], [1, 1, 0, 1, 0, 1]]),
        (False, [[0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 0, 1]]),
    ],
)
def test_texts_that_belong_to_a_row_and_fillers_are_excluded(in_batch, expected):
    rows = [TrainingRow("q", pos) for pos in (("a", "d"), ("c",), ("a", "b"))]
    groups = [["a", "b"], ["c", "a"], ["a"]]  # groups of two, of which the last is filled up
    assert np.array(excluded(rows, groups, 2, in_batch=in_batch)).astype(int).tolist() == expected


def test_the_similarity_loss_is_smallest_at_the_teachers_cosines():
    loss = SimilarityLoss(None, replace(QUICK, similarity_temperature=0.1))
    teacher = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]])
    at = float(loss.value([torch.nn.functional.normalize(teacher)], teacher, None))
    units = torch.nn.functional.normalize(teacher).double().numpy()
    rows = [(softmax((units @ units.T)[n][[m for m in range(3) if m != n]] / 0.1)) for n in range(3)]
    assert at == pytest.approx(np.mean([-(row * np.log(row)).sum() for row in rows]), rel=1e-4)
    assert float(loss.value([torch.nn.functional.normalize(teacher + 0.3)], teacher, None)) > at


def batch_of(model, rows=ROWS, numbers=(0, 1, 2), name="rows", group=3):
    collator = Collator(model, {name: TrainingSet(name, rows)}, group, seed=0)
    return collator([{"number": n, "dataset_name": name} for n in numbers])


def columns(batch):
    return [
        {key.removeprefix(f"{column}_"): part for key, part in batch.items() if key.startswith(f"{column}_")}
        for column in ("query", "candidate")
    ]


def loss_of(module, chunk=None):
    return CandidateLoss(module, replace(QUICK, chunk=chunk))


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_gradients_reach_the_adapter_alone(kind):
    model = tiny_lexicon(kind)
    module, batch = LexiconModule(*adapted_model(model, QUICK)), batch_of(model)
    loss_of(module)(columns(batch), batch["label"]).backward()
    for name, weight in module.named_parameters():
        assert (weight.grad is not None) == ("lora_" in name), name
        # in the first step B is 0, so that A has none
        assert weight.grad is None or bool(weight.grad.any()) == ("lora_B" in name), name
    adapters = {name.split(".lora_A")[0] for name, _ in module.named_parameters() if "lora_A" in name}
    layers = [name for name, m in model.backbone.model.named_modules() if isinstance(m, torch.nn.Linear)]
    assert len(adapters) == len(layers) - 1 == {"bert": 13, "llama": 14}[kind]  # all but the head over tokens


def test_layers_that_no_state_comes_from_get_no_adapter():
    tokenizer = word_piece()
    whole = tiny_model("bert", len(tokenizer), headless=True)
    backbone = prepare(whole, tokenizer, attention="bidirectional", head_kind="input", device="cpu")
    _, adapted = adapted_model(LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, tokenizer, 20)), QUICK)
    names = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    assert len(names) == 24 and not any("pooler" in name for name in names)
    plain = {name for name, _ in whole.named_modules()}
    assert any("pooler" in name for name in plain) and not any("lora" in name for name in plain)


@pytest.mark.parametrize("kind", ["retrieval", "symmetric_sts"])
def test_cached_gradients_are_the_gradients(kind):
    model, found = tiny_lexicon("llama"), []
    for chunk in (None, 2):
        module = LexiconModule(*adapted_model(model, replace(QUICK, dropout=0)))
        batch = batch_of(model, [replace(row, type=kind) for row in ROWS if row.neg], numbers=(0, 1, 2, 3))
        loss = loss_of(module, chunk=chunk)(columns(batch), batch["label"])
        loss.backward()
        found.append({name: weight.grad for name, weight in module.named_parameters() if weight.requires_grad})
        found[-1]["loss"] = loss.detach()
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)


def test_the_module_embeds_as_the_model_does():
    model = tiny_lexicon("llama", LexiconSettings(instruction="query the horse"))
    module = LexiconModule(*adapted_model(model, QUICK)).eval()
    expected = model.encode_query(["boy"]), model.encode_document(["man", "horse"])
    with torch.inference_mode():
        for column, rows in zip(columns(batch_of(model, numbers=[2], group=2)), expected):
            np.testing.assert_allclose(module(column)["sentence_embedding"].numpy(), rows.toarray(), atol=1e-6)


@pytest.mark.parametrize(("kind", "instructed"), [("normal", False), ("symmetric_sts", True)])
def test_a_rows_prompt_is_told_and_not_pooled(kind, instructed):
    model = tiny_lexicon("bert")
    rows = [TrainingRow("boy", ("man",), ("horse",), prompt=prompt, type=kind) for prompt in ("a beach", "", "the car")]
    query, candidate = columns(batch_of(model, rows, group=2))
    queries, candidates = (map(model.backbone.tokenizer.decode, column["input_ids"]) for column in (query, candidate))
    assert [[word for word in ("beach", "car") if word in text] for text in queries] == [["beach"], [], ["car"]]
    own = query["input_ids"][query["own"]].tolist()
    assert query["own"].sum(dim=1).tolist() == [1, 1, 1] and model.backbone.tokenizer.decode(own) == "boy boy boy"
    assert ["beach" in text for text in candidates] == [instructed] * 2 + [False] * 4


def test_candidates_are_drawn_with_their_scores_and_never_repeated():
    row = TrainingRow("q", ("p0", "p1"), tuple(f"n{n}" for n in range(5)), (10.0, 11.0), (0.0, 1.0, 2.0, 3.0, 4.0))
    few, drawn = replace(row, neg=("long one",), neg_scores=(1.0,)), Counter()
    collator = Collator(tiny_lexicon(), {"s": TrainingSet("s", [row, few])}, 4, seed=0)
    for collator.epoch in range(40):
        texts, scores = collator.draw(row, 0, 4)
        assert (texts, scores) == collator.draw(row, 0, 4) and len(set(texts)) == 4
        assert scores == [10 + int(texts[0][1]), *(float(text[1]) for text in texts[1:])]
        drawn.update(texts)
    assert len(drawn) == 7 and drawn["p0"] + drawn["p1"] == 40
    batch = collator([{"number": n, "dataset_name": "s"} for n in (0, 1)])
    assert batch["query_excluded"][:, 6:].all() and batch["label"][1].isnan().tolist() == [False, False, True, True]


@pytest.mark.full
def test_training_lowers_the_loss_and_leaves_the_model_as_it_was(tmp_path):
    model = tiny_lexicon("llama")
    twin, states = copy.deepcopy(model), weights_of(model)
    trained = train(model, tmp_path, epochs=20, learning_rate=3e-3, dropout=0.0, save_steps=10)
    first, *_, last = losses(tmp_path)
    assert last < first / 2
    cosines = [m.similarity(m.encode(["car"]), m.encode(["vehicle", "beach"]))[0] for m in (model, trained)]
    assert np.subtract(*cosines[1]) > np.subtract(*cosines[0]) + 0.1
    assert apart(model, twin) == 0 and weights_of(model).keys() == states.keys()
    assert all(torch.equal(weight, states[name]) for name, weight in weights_of(model).items())
    assert all(weight.requires_grad for weight in model.backbone.model.parameters())
    np.testing.assert_array_equal(trained.clusters.centroids, model.clusters.centroids)


@pytest.mark.usefixtures("outside_allowed")
def test_what_is_trained_is_saved_as_an_adapter(tmp_path):
    model = tiny_lexicon("llama")
    backbone = open_backbone(saved_backbone(model.backbone, tmp_path / "base"), device="cpu")
    trained = train(LexiconEmbedder(backbone, model.clusters), tmp_path / "run")
    trained.save_pretrained(tmp_path / "small", backbone_name=str(tmp_path / "base"))
    assert sorted(path.name for path in (tmp_path / "small").iterdir() if path.is_dir()) == ["adapter"]
    with allow_external(True):
        opened = LexiconEmbedder.from_pretrained(tmp_path / "small")
    assert apart(opened, trained) < 1e-6 and apart(trained, model) > 1e-2


@pytest.mark.full
def test_a_model_with_an_adapter_is_trained_on_as_a_whole_copy(tmp_path):
    once = train(tiny_lexicon(), tmp_path / "first", max_steps=1)
    with pytest.raises(InputError, match=r"has an adapter already.*without backbone_name"):
        train(once, tmp_path / "second")
    whole = reopened(once, tmp_path / "whole")
    twice = train(whole, tmp_path / "second", rank=2, seed=1, max_steps=1)
    assert apart(whole, once) < 1e-5 and apart(twice, once) > 1e-4


@pytest.mark.full
def test_training_goes_on_from_an_adapter(tmp_path):
    model = tiny_lexicon()
    first = train(model, tmp_path / "first")
    adapter = str(tmp_path / "first" / "trained")
    on = train(model, tmp_path / "second", adapter=adapter, learning_rate=1e-12)
    assert apart(on, first) < 1e-5
    assert on.backbone.adapter[0]["r"] == QUICK.rank  # the same adapter, none on top of it
    further = train(model, tmp_path / "third", adapter=adapter)
    assert losses(tmp_path / "third")[-1] < losses(tmp_path / "first")[-1] and apart(further, first) > 1e-3
    with pytest.raises(InputError, match="does not fit LlamaForCausalLM"):
        train(tiny_lexicon("llama"), tmp_path / "fifth", adapter=adapter)
    assert not [name for name in model.backbone.model.state_dict() if "lora" in name]
    shutil.copytree(tmp_path / "third" / "trained", adapter, dirs_exist_ok=True)  # another one under its name
    with pytest.raises(InputError, match="different: adapter"):
        train(model, tmp_path / "second", adapter=adapter, learning_rate=1e-12)


@pytest.mark.full
def test_a_run_that_was_stopped_ends_like_one_that_was_not(tmp_path, monkeypatch):
    sets = [TrainingSet("pairs", ROWS), TrainingSet("classes", CLASSES * 3)]
    train(tiny_lexicon(), tmp_path / "whole", sets)  # 8 steps in two epochs

    def stop(self, args, state, control, **kwargs):
        if state.global_step == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "on_step_end", stop)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_lexicon(), tmp_path / "stopped", sets)
    half = tmp_path / "stopped" / "checkpoint-8"  # what a kill leaves while it is written
    half.mkdir()
    (half / "adapter_config.json").write_text("{}")
    steps = []
    original = LexiconTrainer.compute_loss
    monkeypatch.setattr(LexiconTrainer, "compute_loss", lambda *a, **k: steps.append(1) or original(*a, **k))
    train(tiny_lexicon(), tmp_path / "stopped", sets)
    assert len(steps) == 2  # from checkpoint 6
    whole, stopped = (
        load_file(tmp_path / run / "trained" / "adapter_model.safetensors") for run in ("whole", "stopped")
    )
    assert whole.keys() == stopped.keys() and all(torch.equal(whole[name], stopped[name]) for name in whole)
    train(tiny_lexicon(), tmp_path / "stopped", sets)
    assert len(steps) == 2  # what is finished stays as it is


@pytest.mark.full
def test_a_batch_is_of_one_set_and_every_row_comes_once_an_epoch(tmp_path, monkeypatch):
    seen, original = [], Collator.__call__

    def spy(self, chosen):
        seen.append((self.epoch, [(item["dataset_name"], item["number"]) for item in chosen]))
        return original(self, chosen)

    monkeypatch.setattr(Collator, "__call__", spy)
    sets = [TrainingSet("pairs", ROWS), TrainingSet("classes", CLASSES * 3)]
    texts = TextSet("texts", ["a man", "the boy", "a horse", "the beach", "cars"], np.eye(5, 4) + 0.1)
    train(tiny_lexicon(), tmp_path, [*sets, texts])
    epochs, batches = zip(*seen)
    assert epochs == (0,) * 6 + (1,) * 6 and all(len({name for name, _ in batch}) == 1 for batch in batches)
    every = [(name, n) for name, count in (("classes", 6), ("pairs", 6), ("texts", 5)) for n in range(count)]
    assert all(sorted(chain(*batches[start : start + 6])) == every for start in (0, 6)) and batches[:6] != batches[6:]


@pytest.mark.full
def test_texts_are_drawn_to_a_teachers_cosines(tmp_path):
    texts, vectors = "car vehicle doctor medicine boy man horse beach".split(), np.repeat(np.eye(4), 2, axis=0)
    model, off = tiny_lexicon("llama"), ~np.eye(8, dtype=bool)
    changes = {"epochs": 60, "batch_size": 8, "learning_rate": 3e-3, "dropout": 0.0, "save_steps": 60}
    trained = train(model, tmp_path, [TextSet("texts", texts, vectors)], **changes)
    before, after = (
        np.corrcoef((m.encode(texts) @ m.encode(texts).T).toarray()[off], (vectors @ vectors.T)[off])[0, 1]
        for m in (model, trained)
    )
    assert after > max(0.8, before + 0.1)


@pytest.mark.full
def test_a_nan_loss_stops_the_run_and_loses_nothing(tmp_path, monkeypatch):
    original = LexiconModule.forward
    calls = []

    def broken(self, features):
        calls.append(1)
        embedding = original(self, features)["sentence_embedding"]
        return {"sentence_embedding": embedding * (float("nan") if len(calls) > 6 else 1)}

    model = tiny_lexicon()
    before = weights_of(model)
    with monkeypatch.context() as patch:
        patch.setattr(LexiconModule, "forward", broken)
        with pytest.raises(InputError, match=r"the loss is nan at step 4, on a batch of 'pairs'.*learning rate"):
            train(model, tmp_path)
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(model).items())
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-2"]
    tensors = load_file(str(tmp_path / "checkpoint-2" / "adapter_model.safetensors"))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    train(model, tmp_path)  # goes on


@pytest.mark.full
def test_a_folder_of_another_run_is_not_overwritten(tmp_path):
    model, texts, vectors = tiny_lexicon(), ["car", "vehicle", "doctor", "medicine"], np.eye(4)
    train(model, tmp_path)
    train(model, tmp_path / "texts", [TextSet("texts", texts, vectors)], max_steps=1)
    with WorkFolder(tmp_path), pytest.raises(InputError, match="is in use by process"):
        train(model, tmp_path)
    for different, changes, message in (
        (model, {"learning_rate": 1e-3}, "different: learning_rate"),
        (model, {"sets": [TrainingSet("pairs", ROWS[::-1])]}, "different: the training set 'pairs'"),
        (model, {"sets": [TrainingSet("others", ROWS)]},
         "different: the training set 'others', the training set 'pairs'"),
        (tiny_lexicon(seed=1), {}, "different: model"),
        (model, {"folder": tmp_path / "texts", "sets": [TextSet("texts", texts, vectors[::-1])], "max_steps": 1},
         "different: the training set 'texts'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            train(different, **{"folder": tmp_path, **changes})


@pytest.mark.full
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path):
    model = tiny_lexicon()
    train(model, tmp_path / "run", epochs=1)  # two steps
    found = assert_damage_is_refused(
        lambda folder: train(model, folder, epochs=1), tmp_path / "run", unused=("trained",)
    )
    assert found >= 6  # adapter, optimizer, schedule, random numbers, state of the trainer and of the run


def start(call, folder):
    """Start a run with what is bad, and check that nothing was begun."""
    try:
        call(tiny_lexicon(), folder / "run")
    finally:
        assert not (folder / "run").exists()


test_bad_input_is_refused_before_anything_starts = refused(
    *(
        (lambda tmp_path, call=call: start(call, tmp_path), message)
        for call, message in [
            (lambda model, run: train_lexicon(model, [], run), "no training sets"),
            (lambda model, run: train(model, run, [TrainingSet("a", ROWS)] * 2), "one name"),
            (lambda model, run: train(model, run, [TrainingSet("a.b", ROWS)]), "hold a dot"),
            (lambda model, run: train(model.scale({0: 0.5}), run), "scaled or merged"),
            (lambda model, run: TextSet("texts", ["a", "b"], np.ones((1, 3))), "2 texts and 1 vectors"),
        ]
    ),
    *(
        (lambda changes=changes: replace(QUICK, **changes), message)
        for changes, message in [
            ({"temperature": 0}, "temperature is 0; it must be a number, above 0"),
            ({"batch_size": 1}, "batch_size is 1; it must be an integer, at least 2"),
            ({"learning_rate": float("nan")}, "learning_rate is nan"),
            ({"max_steps": 0}, "max_steps is 0"),
            ({"chunk": 0}, "chunk is 0"),
            ({"rank": 0}, "rank is 0"),
        ]
    ),
    (
        lambda monkeypatch, tmp_path: monkeypatch.setenv("WORLD_SIZE", "2") or train(tiny_lexicon(), tmp_path / "run"),
        "one device; start it without torchrun",
    ),
)


# --- Rows to train on: read as published, bad ones named by file and line, nothing usable lost ---

GOOD = {
    "query": "what cures it",
    "pos": ["medicine"],
    "neg": ["a horse", "a beach"],
    "pos_scores": [4.5],
    "neg_scores": [-1.0, 0.25],
    "prompt": "Given a question, retrieve answers",
    "type": "normal",
    "category": "another program's field",
}


def jsonl(path, *lines):
    return written(path, "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


PUBLISHED = TrainingRow(
    "what cures it", ("medicine",), ("a horse", "a beach"), (4.5,), (-1.0, 0.25), "Given a question, retrieve answers",
    "normal",
)  # fmt: skip
PAIR = {"query": "q", "pos": ["p"]}


@pytest.mark.parametrize(
    ("name", "lines", "of_set", "rows"),
    [
        ("medical.jsonl", [GOOD], "medical", [PUBLISHED]),
        # without a type or negatives it is retrieval, and scores may be null, and absent without negatives
        ("pairs.v2.jsonl", [PAIR | {"neg": None}, PAIR | {"pos": "p"}, ""], "pairs", [TrainingRow("q", ("p",))] * 2),
        ("a.jsonl", [PAIR | {"pos_scores": None, "neg_scores": None}, PAIR | {"pos_scores": [], "neg_scores": []}], "a",
         [TrainingRow("q", ("p",))] * 2),
        ("a.jsonl", [PAIR | {"neg": [], "pos_scores": [2], "neg_scores": []}, PAIR | {"pos_scores": [2.0]}], "a",
         [TrainingRow("q", ("p",), (), (2.0,), ()), TrainingRow("q", ("p",), (), (2.0,), ())]),
    ],
)  # fmt: skip
def test_rows_are_read_as_published(tmp_path, name, lines, of_set, rows):
    [found] = read_training_sets(jsonl(tmp_path / name, *lines))
    assert (found.name, found.rows, found.in_batch) == (of_set, rows, True)


BAD_ROWS = [
    ("{", "not JSON"),
    ([1], "a row is an object"),
    ({"pos": ["p"]}, "'query' holds ''"),
    ({"query": "q"}, "'pos' is empty"),
    ({"query": "q", "pos": []}, "'pos' is empty"),
    ({"query": " ", "pos": ["p"]}, "'query' holds ' '"),
    ({"query": "q", "pos": ["p", 3]}, "'pos' holds 3"),
    ({"query": "q", "pos": {"a": 1}}, "'pos' is {'a': 1}, which is not a list"),
    ({"query": "q", "pos": ["p"], "neg": [""]}, "'neg' holds ''"),
    ({"query": "q", "pos": ["p"], "prompt": 5}, "prompt is 5; it must be a string"),
    ({"query": "q", "pos": ["p"], "pos_scores": [1, 2], "neg_scores": []}, "'pos_scores' and 'pos' do not match"),
    ({"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [1]}, "'neg_scores' and 'neg' do not match: none"),
    ({"query": "q", "pos": ["p"], "neg": ["n"], "neg_scores": [1]}, "'pos_scores' and 'pos' do not match: none"),
    ('{"query": "q", "pos": ["p"], "pos_scores": [NaN]}', "a score of 'pos_scores' is nan"),
    ({"query": "q", "pos": ["p"], "pos_scores": [True]}, "a score of 'pos_scores' is True"),
    ({"query": "q", "pos": ["p"], "pos_scores": 2.0}, "'pos_scores' is 2.0, which is not a list"),
    ({"query": "q", "pos": ["p"], "type": "symmetric_class"}, "'neg' is empty, and a query of type"),
]
MIXED = [TrainingRow("q", ("p",)), TrainingRow("q", ("p",), ("n",), type="symmetric_sts")]


test_a_bad_row_is_named_by_file_and_line_and_a_bad_file_by_name = refused(
    *((lambda tmp_path, row=row: read_training_sets(jsonl(tmp_path / "rows.jsonl", GOOD, "", row, GOOD)),
       rf"rows\.jsonl, line 3: .*{re.escape(reason)}", CorpusError) for row, reason in BAD_ROWS),
    *((lambda tmp_path, name=name, content=content, files=files: read_training_sets(
        files(written(tmp_path / name, content))), message, CorpusError)
      for name, content, message in [
          ("rows.csv", b"a,b", r"\.jsonl \(also packed\) or \.parquet, not"),
          ("rows.jsonl.gz", gzip.compress(json.dumps(GOOD).encode())[:-9], "damaged"),
          ("rows.parquet", b"PAR1 is no parquet file", "not a parquet file"),
          ("empty.jsonl", b"", "no row to train on"),
      ] for files in (Path, lambda path: [path])),
    (lambda tmp_path: read_training_sets(tmp_path / "absent.jsonl"), "not found", CorpusError),
    (lambda: read_training_sets([]), "no training files", CorpusError),
    (lambda: TrainingSet("mixed", MIXED), "holds rows of the types", CorpusError),
    (lambda: TrainingSet("empty", []), "the training set 'empty' has no rows", CorpusError),
)  # fmt: skip


@pytest.mark.needs("pyarrow.parquet")
def test_compressed_lines_and_parquet_give_the_same_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    rows = [GOOD, {**GOOD, "query": "other", "pos_scores": None, "neg_scores": None}]
    plain = read_training_sets(jsonl(tmp_path / "rows.jsonl", *rows))[0].rows
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as lines:
        lines.write("\n".join(map(json.dumps, rows)))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    for name in ("rows.jsonl.gz", "rows.parquet"):
        assert read_training_sets(tmp_path / name)[0].rows == plain


def test_a_set_is_of_one_type(tmp_path):
    (tmp_path / "other").mkdir()
    first = jsonl(tmp_path / "a.jsonl", GOOD, {**GOOD, "type": "symmetric_sts"}, GOOD)
    sets = read_training_sets([first, jsonl(tmp_path / "other" / "a.jsonl", GOOD, {**GOOD, "type": "symmetric_sts"})])
    assert [(s.name, len(s)) for s in sets] == [
        ("a-normal", 2),
        ("a-symmetric_sts", 1),
        ("a-normal", 1),
        ("a-symmetric_sts", 1),
    ]


@pytest.mark.parametrize(
    ("kind", "in_batch", "instructed", "size"),
    [
        ("retrieval", True, False, 4),
        ("normal", True, False, 4),
        ("only_1neg", True, False, 2),
        ("symmetric_sts", False, True, 4),
        ("symmetric_class", False, False, 4),
        ("symmetric_clustering", False, True, 4),
    ],
)
def test_the_type_decides_how_a_query_is_compared(kind, in_batch, instructed, size):
    training_set = TrainingSet(
        "s", [TrainingRow("q", ("p",), ("a", "b", "c"), type=kind), TrainingRow("q", ("p",), ("a",), type=kind)]
    )
    assert (training_set.in_batch, training_set.candidates_instructed) == (in_batch, instructed)
    assert (training_set.group_size(8), training_set.group_size(2)) == (size, 2)
