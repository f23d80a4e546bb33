"""Backbones: attention proved, the head found, and states that do not depend on padding, for every architecture."""

import copy
import json
import warnings

import numpy as np
import pytest

from tiny_models import ENCODERS, byte_level, sentence_piece, tiny_model, word_piece

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


def opened(kind, attention="bidirectional", **changes):
    tokenizer = tokenizer_of(kind)
    return prepare(tiny_model(kind, len(tokenizer), **changes), tokenizer, attention=attention, device="cpu")


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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_that_the_processor_is_slow_at_are_told_of_and_can_be_changed(tmp_path, monkeypatch, dtype):
    model = LexiconEmbedder(opened("bert"), cluster_vocabulary(opened("bert").head, word_piece(), 8))
    model.backbone.model.to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(module, "half_dtype", lambda: "float32")
    with pytest.warns(UserWarning, match=f"torch.{dtype}, for which this processor has no instructions.*float"):
        slow = LexiconEmbedder.from_pretrained(tmp_path / "model")
    slow.backbone.model.float()
    slow.save_pretrained(tmp_path / "again")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = LexiconEmbedder.from_pretrained(tmp_path / "again").encode("a loan of money")
        monkeypatch.setattr(module, "half_dtype", lambda: "bfloat16")
        LexiconEmbedder.from_pretrained(tmp_path / "model")
    assert again.toarray() == pytest.approx(slow.encode("a loan of money").toarray(), abs=1e-5)


def test_a_model_is_opened_on_one_thread(tmp_path, monkeypatch):
    """The proofs are of a few tokens; beside other programs threads waited seconds for each other after each layer."""
    saved(tmp_path, "llama")
    threads, linear = [], torch.nn.Linear.forward
    note = lambda self, x: threads.append(torch.get_num_threads()) or linear(self, x)  # noqa: E731
    monkeypatch.setattr(torch.nn.Linear, "forward", note)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        open_backbone(tmp_path, attention="causal").fingerprint()
        assert set(threads) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", CAUSAL + ENCODERS)
def test_bidirectional_means_that_every_state_sees_every_token(kind):
    assert moved_positions(opened(kind)) == list(range(20))


@pytest.mark.parametrize("kind", [kind for kind in CAUSAL if kind not in ("mistral", "gpt_neo")])
def test_causal_means_that_only_later_states_see_a_token(kind):
    assert moved_positions(opened(kind, "causal")) == list(range(11, 20))


@pytest.mark.parametrize("kind", ["mistral", "gpt_neo"])
def test_a_causal_window_stays_a_window(kind):
    positions = moved_positions(opened(kind, "causal"))  # window 4, in two layers (GPT-Neo: in one of them)
    assert min(positions) == 11


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_cannot_be_causal(kind):
    with pytest.raises(InputError, match=f"{kind}.* is not causal"):
        opened(kind, "causal")


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


@pytest.mark.parametrize("kind", CAUSAL + ENCODERS)
@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
def test_states_times_head_are_the_models_own_logits(kind, attention):
    if kind in ENCODERS and attention == "causal":
        return
    tokenizer = tokenizer_of(kind)
    model = tiny_model(kind, len(tokenizer), **({"final_logit_softcapping": None} if kind == "gemma2" else {}))
    twin = copy.deepcopy(model)
    backbone = prepare(model, tokenizer, attention=attention, device="cpu")
    ids = torch.tensor([[1, 9, 30, 12, 44, 2]])
    if attention == "bidirectional" and kind not in ENCODERS:
        twin.config.is_causal = False
        if kind == "mistral":
            twin.config.sliding_window = None
        if kind == "gpt_neo":
            for layer in twin.transformer.h:
                layer.attn.attention.bias.fill_(True)
    twin.set_attn_implementation(model.config._attn_implementation)
    with torch.inference_mode():
        expected = twin(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        hidden = backbone.states(ids, torch.ones_like(ids))
        found = torch.nn.functional.linear(hidden, backbone.head, backbone.head_bias)
    assert backbone.predicts_next == (kind not in ENCODERS)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", CAUSAL + ENCODERS)
@pytest.mark.parametrize("pooling", ["max", "sum", "last"])
def test_weights_do_not_depend_on_the_texts_beside(kind, pooling):
    backbone = opened(kind)
    settings = LexiconSettings().resolved(backbone.tokenizer, backbone.predicts_next, backbone.max_length)
    reader = Reader(backbone.tokenizer, settings)
    readings = reader.read(
        ["a car", "the man is riding a horse", "", "quickly the doctor gave a boy swift medicine"], instructed=False
    )
    head = backbone.head[:40]
    together, fired = backbone.weights(readings, head, None, pooling)
    for n, reading in enumerate(readings):
        alone, where = backbone.weights([reading], head, None, pooling)
        np.testing.assert_allclose(together[n], alone[0], rtol=1e-4, atol=1e-5)
        assert (fired[n] == where[0]).all()
    assert (together[2] == 0).all() and (fired[2] == -1).all()
    assert together[0].any() and together[3].any()


LAST = torch.tensor([2, -1, 6])


def test_pooling_is_what_the_formulas_say():
    rng = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 7, 8, generator=rng)
    head, bias = torch.randn(1100, 8, generator=rng), torch.randn(1100, generator=rng)
    own = torch.tensor([[0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]]).bool()
    weights = torch.log1p(torch.relu(hidden @ head.T + bias)) * own[:, :, None]
    for pooling, expected in (("sum", weights.sum(1)), ("max", weights.amax(1))):
        values, position = pooled(hidden, own, LAST, head, bias, pooling)
        torch.testing.assert_close(values, expected)
        assert (position == torch.where(expected > 0, weights.argmax(1), -1)).all()
    last, position = pooled(hidden, own, LAST, head, bias, "last")
    assert (position == -1).all() and not last[1].any()
    torch.testing.assert_close(last, weights[range(3), LAST])


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


def test_a_tokenizer_larger_than_the_model_is_refused():
    tokenizer = sentence_piece()
    n_rows = len(tokenizer) - 1
    with pytest.raises(InputError, match=f"token of number {n_rows}, and the model {n_rows} input"):
        prepare(tiny_model("llama", n_rows), tokenizer, attention="causal")


def saved(folder, kind, **changes):
    tokenizer = tokenizer_of(kind)
    tiny_model(kind, len(tokenizer), **changes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_an_opened_folder_keeps_its_attention_only_if_asked(tmp_path):
    backbone = open_backbone(saved(tmp_path, "mistral"), device="cpu")
    backbone.model.save_pretrained(tmp_path / "again")  # with is_causal=False in its configuration
    backbone.tokenizer.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["is_causal"] is False
    again = open_backbone(tmp_path / "again", attention="causal", device="cpu")
    assert min(moved_positions(again)) == 11
    assert (backbone.head_kind, backbone.attention, again.attention) == ("lm", "bidirectional", "causal")


def test_a_headless_encoder_lends_its_input_embeddings(tmp_path):
    backbone = open_backbone(saved(tmp_path, "bert", headless=True), device="cpu")
    assert backbone.head_kind == "input" and backbone.head_bias is None
    assert torch.equal(backbone.head, backbone.model.embeddings.word_embeddings.weight)
    with pytest.raises(InputError, match=r"its architecture is BertModel.*ForCausalLM, .*head='input'"):
        open_backbone(tmp_path, head="lm")


def test_a_headless_causal_model_is_refused_unless_its_embeddings_are_asked_for(tmp_path):
    saved(tmp_path, "mistral", headless=True)
    with pytest.raises(InputError, match=r"no head over its vocabulary: its architecture is MistralModel"):
        open_backbone(tmp_path)
    backbone = open_backbone(tmp_path, head="input", device="cpu")
    assert backbone.predicts_next and backbone.dimension == 32


def test_weights_that_would_be_random_are_refused(tmp_path):
    saved(tmp_path, "bert", headless=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(ModelFolderError, match=r"lacks \d of the weights of BertForMaskedLM \(cls\.predictions"):
        open_backbone(tmp_path)


def test_embeddings_of_another_width_than_the_states_are_refused(tmp_path):
    tokenizer = word_piece()
    config = transformers.AlbertConfig(
        vocab_size=len(tokenizer), embedding_size=16, hidden_size=32, num_attention_heads=4, intermediate_size=48
    )
    transformers.AlbertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="have 32 dimensions and the rows of its input embeddings 16"):
        open_backbone(tmp_path)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("attention", "both", "attention is 'both'"),
        ("head", "best", "head is 'best'"),
        ("dtype", "int8", "dtype is 'int8'"),
    ],
)
def test_arguments_of_no_use_are_named(tmp_path, argument, value, message):
    with pytest.raises(InputError, match=message):
        open_backbone(saved(tmp_path, "llama"), **{argument: value})


def adapter_for(folder, kind, *, seed=3):
    """Write a random adapter of rank 2 as peft does, and return the adapted model's states for some ids."""
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    adapted = peft.get_peft_model(
        base, peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    torch.manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    adapted.save_pretrained(folder / "adapter")
    ids = torch.tensor([[1, 9, 30, 12, 44, 2]])
    with torch.inference_mode():
        return adapted.eval()(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]


def test_an_adapter_is_merged_into_the_weights(tmp_path):
    pytest.importorskip("peft")
    expected = adapter_for(saved(tmp_path, "llama"), "llama")
    plain = open_backbone(tmp_path, attention="causal", device="cpu")
    backbone = open_backbone(tmp_path, attention="causal", adapter=tmp_path / "adapter", device="cpu")
    torch.testing.assert_close(states_of(backbone, [1, 9, 30, 12, 44, 2]), expected, rtol=1e-4, atol=1e-5)
    assert (states_of(plain, [1, 9, 30, 12, 44, 2]) - expected).abs().max() > 0.01
    assert not np.allclose(plain.fingerprint(), backbone.fingerprint(), atol=1e-3)


def test_an_adapter_that_does_not_reach_the_model_is_refused(tmp_path):
    pytest.importorskip("peft")
    adapter_for(saved(tmp_path / "one", "llama"), "llama")
    saved(tmp_path / "other", "gpt_neox")
    with pytest.raises((InputError, ModelFolderError), match="adapter"):
        open_backbone(tmp_path / "other", adapter=tmp_path / "one/adapter")
    saved(tmp_path / "deeper", "llama", hidden_size=64)
    with pytest.raises(InputError, match="does not fit LlamaForCausalLM"):
        open_backbone(tmp_path / "deeper", adapter=tmp_path / "one/adapter")


def test_the_real_small_model_is_opened(shared):
    folder = shared / "data/lm/gpt-neo-3m-stories"
    if not folder.is_dir():
        pytest.skip("the language model is not at hand")
    backbone = open_backbone(folder, device="cpu")
    assert backbone.max_length == 256 and tuple(backbone.head.shape) == (14_019, 128)
    assert moved_positions(backbone) == list(range(20))


def test_a_byte_level_tokenizer_without_start_token_gets_one_for_the_shift():
    tokenizer = byte_level()
    (reading,) = Reader(tokenizer, LexiconSettings(shift=True, end_token=True)).read(["the car"], instructed=False)
    assert reading.ids[0] == reading.ids[-1] == tokenizer.eos_token_id
    assert reading.first == 0 and len(reading.spans) == len(reading.ids) - 2


def test_a_model_with_encoder_and_decoder_is_refused():
    config = transformers.T5Config(vocab_size=300, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    with pytest.raises(InputError, match="T5Model is an encoder with a decoder"):
        prepare(transformers.T5Model(config), sentence_piece(), attention="bidirectional", head_kind="input")


def test_a_backbone_can_be_prepared_again():
    first = opened("bert")
    again = prepare(first.model, first.tokenizer, attention="bidirectional", device="cpu")
    torch.testing.assert_close(states_of(again, [5, 6, 7]), states_of(first, [5, 6, 7]))


@pytest.mark.parametrize("kind", ["mistral", "bert"])
def test_gradients_reach_an_adapter_added_in_place(kind):
    peft = pytest.importorskip("peft")
    backbone = opened(kind)
    targets = ["query", "value"] if kind == "bert" else ["q_proj", "v_proj"]
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=targets), backbone.model)
    ids = torch.tensor([[5, 9, 30, 12]])
    hidden = backbone.states(ids, torch.ones_like(ids))
    values, _ = pooled(hidden, torch.ones_like(ids).bool(), LAST, backbone.head, None, "max")
    values.sum().backward()
    grads = [p.grad for n, p in backbone.model.named_parameters() if "lora_B" in n]
    assert len(grads) == 4 and all(grad is not None and grad.abs().max() > 0 for grad in grads)


def test_an_adapter_of_another_class_of_the_model_is_refused_not_ignored(tmp_path):
    peft = pytest.importorskip("peft")
    saved(tmp_path, "llama")
    headless = transformers.AutoModel.from_pretrained(tmp_path)
    peft.get_peft_model(headless, peft.LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    with pytest.warns(UserWarning), pytest.raises(ModelFolderError, match="4 of 4 tensors of the adapter do not reach"):
        open_backbone(tmp_path, adapter=tmp_path / "adapter")
