"""Backbones: attention proved, the head found, and states that do not depend on padding, for every architecture."""

import copy
import json

import numpy as np
import pytest

from families import reopened
from refusals import refused
from tiny_models import ENCODERS, byte_level, random_adapter, saved_backbone, sentence_piece, tiny_model, word_piece

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import pellucid.transformer.backbone as module  # noqa: E402
from pellucid import LexiconEmbedder, cluster_vocabulary  # noqa: E402
from pellucid.errors import InputError, ModelFolderError  # noqa: E402
from pellucid.lexicon import LexiconSettings  # noqa: E402
from pellucid.transformer.backbone import open_backbone, pooled, prepare  # noqa: E402
from pellucid.transformer.reading import Reader  # noqa: E402

CAUSAL = ("mistral", "llama", "qwen2", "qwen3", "gemma", "gemma2", "gpt_neox", "gpt_neo", "gpt2", "opt", "phi")


def tokenizer_of(kind):
    return word_piece() if kind in ENCODERS else sentence_piece()


def opened(kind, attention="bidirectional", head_kind="lm", **changes):
    tokenizer = tokenizer_of(kind)
    model = tiny_model(kind, len(tokenizer), **changes)
    return prepare(model, tokenizer, attention=attention, head_kind=head_kind, device="cpu")


def states_of(backbone, ids):
    ids = torch.tensor([ids])
    with torch.inference_mode():
        return backbone.states(ids, torch.ones_like(ids))[0]


def moved_positions(backbone):
    """Positions whose state changes with the token at position 11 of 20."""
    ids = [(5 * n + 7) % 60 + 5 for n in range(20)]
    other = [*ids[:11], ids[11] + 1, *ids[12:]]
    difference = (states_of(backbone, ids) - states_of(backbone, other)).abs().amax(dim=1)
    return (difference > 1e-6).nonzero().flatten().tolist()


@pytest.mark.filterwarnings("error:.*no instructions")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_that_the_processor_is_slow_at_are_told_of_and_can_be_changed(tmp_path, monkeypatch, dtype):
    model = LexiconEmbedder(opened("bert"), cluster_vocabulary(opened("bert").head, word_piece(), 8))
    model.backbone.model.to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(module, "half_dtype", lambda: "float32")
    with pytest.warns(UserWarning, match=f"torch.{dtype}, for which this processor has no instructions.*float"):
        slow = LexiconEmbedder.from_pretrained(tmp_path / "model")
    slow.backbone.model.float()
    again = reopened(slow, tmp_path / "again").encode("a loan of money")
    monkeypatch.setattr(module, "half_dtype", lambda: "bfloat16")
    LexiconEmbedder.from_pretrained(tmp_path / "model")
    assert again.toarray() == pytest.approx(slow.encode("a loan of money").toarray(), abs=1e-5)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_model_is_opened_on_one_thread(tmp_path, monkeypatch):
    """The proofs are of a few tokens; beside other programs threads waited seconds for each other after each layer."""
    threads, linear = set(), torch.nn.Linear.forward
    note = lambda self, x: threads.add(torch.get_num_threads()) or linear(self, x)  # noqa: E731
    monkeypatch.setattr(torch.nn.Linear, "forward", note)
    open_backbone(saved(tmp_path, "llama"), attention="causal").fingerprint()
    assert threads == {1} and torch.get_num_threads() == 2


@pytest.mark.parametrize("kind", CAUSAL + ENCODERS)
def test_bidirectional_means_that_every_state_sees_every_token(kind):
    assert moved_positions(opened(kind)) == list(range(20))


@pytest.mark.parametrize("kind", CAUSAL)
def test_causal_means_that_only_later_states_see_a_token(kind):
    moved = moved_positions(opened(kind, "causal"))  # two have a window of 4 in one or both layers, which stays one
    assert moved[0] == 11 and (moved == list(range(11, 20)) or kind in ("mistral", "gpt_neo"))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        pytest.param("qwen3_5_text", {"layer_types": ["linear_attention"] * 2}, marks=pytest.mark.full),
        ("mamba", {}),
    ],
)
def test_an_architecture_that_stays_causal_is_refused(kind, changes):
    with pytest.raises(InputError, match=rf"{kind}\) stays causal .* 0 of 7 earlier states.*attention='causal'"):
        opened(kind, **changes)
    assert moved_positions(opened(kind, "causal", **changes)) == list(range(11, 20))


@pytest.mark.parametrize(
    ("kind", "attention"),
    [*((kind, attention) for kind in CAUSAL for attention in ("bidirectional", "causal")),
     *((kind, "bidirectional") for kind in ENCODERS)],
)  # fmt: skip
def test_states_times_head_are_the_models_own_logits(kind, attention):
    tokenizer = tokenizer_of(kind)
    model = tiny_model(kind, len(tokenizer), **({"final_logit_softcapping": None} if kind == "gemma2" else {}))
    twin, ids = copy.deepcopy(model), torch.tensor([[1, 9, 30, 12, 44, 2]])
    backbone = prepare(model, tokenizer, attention=attention, device="cpu")
    if attention == "bidirectional" and kind in CAUSAL:
        twin.config.is_causal = False
        twin.config.sliding_window = None if kind == "mistral" else getattr(twin.config, "sliding_window", None)
        for layer in twin.transformer.h if kind == "gpt_neo" else ():
            layer.attn.attention.bias.fill_(True)
    twin.set_attn_implementation(model.config._attn_implementation)
    with torch.inference_mode():
        expected = twin(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        hidden = backbone.states(ids, torch.ones_like(ids))
        found = torch.nn.functional.linear(hidden, backbone.head, backbone.head_bias)
    assert backbone.predicts_next == (kind in CAUSAL)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", CAUSAL + ENCODERS)
@pytest.mark.parametrize("pooling", ["max", "sum", "last"])
def test_weights_do_not_depend_on_the_texts_beside(kind, pooling):
    backbone = opened(kind)
    settings = LexiconSettings().resolved(backbone.tokenizer, backbone.predicts_next, backbone.max_length)
    texts = ["a car", "the man is riding a horse", "", "quickly the doctor gave a boy swift medicine"]
    readings, head = Reader(backbone.tokenizer, settings).read(texts, instructed=False), backbone.head[:40]
    together, fired = backbone.weights(readings, head, None, pooling)
    alone, where = map(np.concatenate, zip(*(backbone.weights([one], head, None, pooling) for one in readings)))
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert (fired == where).all() and (fired[2] == -1).all()
    assert together.any(axis=1).tolist() == [True, True, False, True]


LAST = torch.tensor([2, -1, 6])


def test_pooling_is_what_the_formulas_say():
    rng = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 7, 8, generator=rng)
    head, bias = torch.randn(1100, 8, generator=rng), torch.randn(1100, generator=rng)
    own = torch.tensor([[0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]]).bool()
    weights = torch.log1p(torch.relu(hidden @ head.T + bias)) * own[:, :, None]
    for pooling, expected in (("sum", weights.sum(1)), ("max", weights.amax(1)), ("last", weights[range(3), LAST])):
        values, position = pooled(hidden, own, LAST, head, bias, pooling)
        torch.testing.assert_close(values, expected)
        fires = expected > 0 if pooling != "last" else torch.zeros_like(expected, dtype=torch.bool)
        assert (position == torch.where(fires, weights.argmax(1), -1)).all()


def test_the_sum_pooling_has_the_gradient_of_its_formula():
    hidden = torch.randn(2, 5, 4, requires_grad=True)
    head = torch.randn(30, 4, requires_grad=True)
    own = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 1, 1, 1]]).bool()
    grads = []
    for values in (pooled(hidden, own, LAST, head, None, "sum")[0],
                   (torch.log1p(torch.relu(hidden @ head.T)) * own[:, :, None]).sum(1)):  # fmt: skip
        grads.append(torch.autograd.grad(values.square().sum(), (hidden, head)))
    torch.testing.assert_close(grads[0], grads[1])


def test_the_context_counts_what_positions_are_left():
    assert opened("roberta").max_length == 63 and opened("mpnet").max_length == 62  # they count from behind the padding
    assert opened("bert").max_length == 64


def saved(folder, kind, **changes):
    tokenizer = tokenizer_of(kind)
    tiny_model(kind, len(tokenizer), **changes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_an_opened_folder_keeps_its_attention_only_if_asked(tmp_path):
    backbone = open_backbone(saved(tmp_path, "mistral"), device="cpu")
    saved_backbone(backbone, tmp_path / "again")  # with is_causal=False in its configuration
    assert json.loads((tmp_path / "again/config.json").read_text())["is_causal"] is False
    again = open_backbone(tmp_path / "again", attention="causal", device="cpu")
    assert min(moved_positions(again)) == 11
    assert (backbone.head_kind, backbone.attention, again.attention) == ("lm", "bidirectional", "causal")


def test_a_headless_encoder_lends_its_input_embeddings(tmp_path):
    backbone = open_backbone(saved(tmp_path, "bert", headless=True), device="cpu")
    assert backbone.head_kind == "input" and backbone.head_bias is None
    assert torch.equal(backbone.head, backbone.model.embeddings.word_embeddings.weight)
    causal = open_backbone(saved(tmp_path / "m", "mistral", headless=True), head="input", device="cpu")
    assert causal.predicts_next and causal.dimension == 32


def with_config(folder, **changes):
    """Write other settings into a folder's configuration."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def with_adapter(folder, kind, **changes):
    """Write an adapter of a small Llama, and another model for it."""
    random_adapter(folder / "adapter", saved(folder / "one", "llama"))
    return saved(folder / "other", kind, **changes)


test_what_is_no_backbone_is_refused = refused(
    *((lambda kind=kind: opened(kind, "causal"), f"{kind}.* is not causal") for kind in ENCODERS),
    (lambda: prepare(tiny_model("llama", len(sentence_piece()) - 1), sentence_piece(), attention="causal"),
     r"token of number (\d+), and the model \1 input"),
    (lambda: opened("t5", headless=True, head_kind="input"),
     "T5Model is an encoder with a decoder"),
    (lambda tmp_path: open_backbone(saved(tmp_path, "bert", headless=True), head="lm"),
     r"its architecture is BertModel.*ForCausalLM, .*head='input'"),
    (lambda tmp_path: open_backbone(saved(tmp_path, "mistral", headless=True)),
     r"no head over its vocabulary: its architecture is MistralModel"),
    (lambda tmp_path: open_backbone(with_config(
        saved(tmp_path, "bert", headless=True), architectures=["BertForMaskedLM"])),
     r"lacks \d of the weights of BertForMaskedLM \(cls\.predictions", ModelFolderError),
    (lambda tmp_path: open_backbone(saved(tmp_path, "albert", headless=True)),
     "have 32 dimensions and the rows of its input embeddings 16"),
    *((lambda tmp_path, name=name, value=value: open_backbone(saved(tmp_path, "llama"), **{name: value}),
       f"{name} is '{value}'") for name, value in [("attention", "both"), ("head", "best"), ("dtype", "int8")]),
    (lambda tmp_path: open_backbone(with_adapter(tmp_path, "gpt_neox"), adapter=tmp_path / "adapter"),
     "adapter", (InputError, ModelFolderError)),
    (lambda tmp_path: open_backbone(with_adapter(tmp_path, "llama", hidden_size=64), adapter=tmp_path / "adapter"),
     "does not fit LlamaForCausalLM"),
)  # fmt: skip


IDS = [1, 9, 30, 12, 44, 2]


@pytest.mark.needs("peft")
def test_an_adapter_is_merged_into_the_weights(tmp_path):
    adapter = random_adapter(tmp_path / "adapter", saved(tmp_path, "llama"))
    plain, adapted = (
        open_backbone(tmp_path, attention="causal", adapter=name, device="cpu") for name in (None, adapter)
    )
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    base.load_adapter(str(adapter))
    with torch.inference_mode():
        expected = base.eval()(input_ids=torch.tensor([IDS]), output_hidden_states=True).hidden_states[-1][0]
    torch.testing.assert_close(states_of(adapted, IDS), expected, rtol=1e-4, atol=1e-5)
    assert (states_of(plain, IDS) - expected).abs().max() > 0.01
    assert not np.allclose(plain.fingerprint(), adapted.fingerprint(), atol=1e-3)


def test_the_real_small_model_is_opened(shared):
    folder = shared / "data/lm/gpt-neo-3m-stories"
    backbone = open_backbone(folder, device="cpu") if folder.is_dir() else pytest.skip("the model is not at hand")
    assert backbone.max_length == 256 and tuple(backbone.head.shape) == (14_019, 128)
    assert moved_positions(backbone) == list(range(20))


def test_a_byte_level_tokenizer_without_start_token_gets_one_for_the_shift():
    tokenizer = byte_level()
    (reading,) = Reader(tokenizer, LexiconSettings(shift=True, end_token=True)).read(["the car"], instructed=False)
    assert reading.ids[0] == reading.ids[-1] == tokenizer.eos_token_id
    assert reading.first == 0 and len(reading.spans) == len(reading.ids) - 2


def test_a_backbone_can_be_prepared_again():
    first = opened("bert")
    again = prepare(first.model, first.tokenizer, attention="bidirectional", device="cpu")
    torch.testing.assert_close(states_of(again, [5, 6, 7]), states_of(first, [5, 6, 7]))


def test_an_adapter_of_another_class_of_the_model_is_refused_not_ignored(tmp_path):
    peft = pytest.importorskip("peft")
    saved(tmp_path, "llama")
    headless = transformers.AutoModel.from_pretrained(tmp_path)
    peft.get_peft_model(headless, peft.LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    with pytest.warns(UserWarning), pytest.raises(ModelFolderError, match="4 of 4 tensors of the adapter do not reach"):
        open_backbone(tmp_path, adapter=tmp_path / "adapter")
