"""The paper's eight embedders, each opened from tiny models of its architecture."""

from __future__ import annotations

import numpy as np
import pytest

from tiny_models import byte_level, sentence_piece, states_of, tiny_model

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from papers.keytokens.presets import PRESETS, open_preset
from pellucid.errors import InputError, ModelFolderError
from pellucid.keytokens.states import PROMPT_EOL
from pellucid.transformer import open_backbone

TEXT = "the doctor gave a boy medicine"
MAKES = {"sgpt": ("gpt_neo", byte_level), "opt": ("opt", byte_level), "llama": ("llama", sentence_piece)}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Write the backbone, head and adapters of a preset, as small as can be; return what `open_preset` is given."""
    import pellucid.keytokens.embedder

    original = pellucid.keytokens.embedder.KeyTokenEmbedder.__init__

    def with_few_tokens(self, backbone, settings=None, **parts):  # the default keeps more than tiny models have
        from dataclasses import replace

        original(self, backbone, replace(settings, top_k=20), **parts)

    monkeypatch.setattr(pellucid.keytokens.embedder.KeyTokenEmbedder, "__init__", with_few_tokens)

    def write(name):
        preset = PRESETS[name]
        kind, make = MAKES.get(name.split("-")[0], ("mistral", sentence_piece))
        tokenizer = make()
        headless = "head" in preset
        for folder, bare in (("backbone", headless), ("head", False)):
            model = tiny_model(kind, len(tokenizer), headless=bare, seed=len(folder), max_position_embeddings=512)
            model.save_pretrained(tmp_path / folder)
            tokenizer.save_pretrained(tmp_path / folder)
        adapters = []
        for number in range(len(preset.get("adapters", ()))):
            torch.manual_seed(number)
            linear = ["q_proj", "v_proj"]
            config = peft.LoraConfig(r=2, target_modules=linear, init_lora_weights=False)
            adapted = peft.get_peft_model(tiny_model(kind, len(tokenizer), headless=headless), config)
            adapted.save_pretrained(tmp_path / f"adapter{number}")
            adapters.append(tmp_path / f"adapter{number}")
        given = {"backbone": tmp_path / "backbone", "adapters": adapters, "device": "cpu"}
        return given | ({"head": tmp_path / "head"} if headless else {})

    return write


def test_there_are_the_papers_eight():
    assert sorted(PRESETS) == [
        "gritlm", "llama-eol", "llama-eol-cse", "llm2vec", "opt-eol", "opt-eol-cse", "sgpt-msmarco", "sgpt-nli",
    ]  # fmt: skip
    facts = {name: (p.get("attention"), p["settings"].get("pooling")) for name, p in PRESETS.items()}
    assert facts["sgpt-nli"] == facts["sgpt-msmarco"] == (None, "weighted_mean")
    assert {facts[n] for n in facts if "eol" in n} == {(None, "prompt_eol")}
    assert facts["gritlm"] == facts["llm2vec"] == ("bidirectional", None)
    assert PRESETS["sgpt-nli"]["backbone"] == "Muennighoff/SGPT-1.3B-weightedmean-nli"  # the authors' is not "-bitfit"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_opens_and_reads_as_it_says(folders, name):
    given = folders(name)
    model = open_preset(name, **given)
    assert model.backbone.attention == PRESETS[name].get("attention", "causal")
    decoded_by = open_backbone(given.get("head", given["backbone"]), attention="causal", head="lm").head
    assert model.head.rows() == pytest.approx(decoded_by.numpy())
    rows = model.embed([TEXT, "a man", ""])
    assert rows.shape == (3, 32) and not rows[2].any()
    assert rows[0] == pytest.approx(expected(name, model), abs=1e-4)
    assert len(model.key_tokens(TEXT, 5)) == 5
    assert model.explain(TEXT, "a man").score == pytest.approx(
        float(model.similarity(model.encode([TEXT]), model.encode(["a man"]))[0, 0]), abs=1e-5
    )


def expected(name, model):
    """The embedding of TEXT by transformers alone, from the states of the whole prompt."""
    if "eol" in name:
        return states_of(model, PROMPT_EOL.replace("{text}", TEXT))[0][-1]
    if name.startswith("sgpt"):
        hidden, _ = states_of(model, TEXT)
        weights = np.arange(1, len(hidden) + 1)
        return weights @ hidden / weights.sum()
    before = "<|embed|>\n" if name == "gritlm" else "[INST] "
    behind = "" if name == "gritlm" else " [/INST]"
    hidden, ids = states_of(model, before + TEXT + behind)
    text = model.backbone.tokenizer(before + TEXT + behind, return_offsets_mapping=True)["offset_mapping"]
    first = next(n for n, (_, end) in enumerate(text) if end > len(before))
    assert 1 < first < len(ids) - 3
    return hidden[first:].mean(axis=0)


def test_adapters_change_the_model_and_the_second_one_too(folders):
    given = folders("llm2vec")
    both, one, none = (open_preset("llm2vec", **given | {"adapters": given["adapters"][:n]}) for n in (2, 1, 0))
    rows = [model.embed(TEXT) for model in (both, one, none)]
    assert np.abs(rows[0] - rows[1]).max() > 1e-3 and np.abs(rows[1] - rows[2]).max() > 1e-3


def test_an_instruction_is_told_to_queries_alone(folders):
    model = open_preset("gritlm", instruction="find cars", **folders("gritlm"))
    plain = open_preset("gritlm", **folders("gritlm"))
    assert model.embed(TEXT, role="document") == pytest.approx(plain.embed(TEXT), abs=1e-5)
    hidden, _ = states_of(model, "<|user|>\nfind cars\n<|embed|>\n" + TEXT)
    assert np.abs(model.embed(TEXT) - plain.embed(TEXT)).max() > 1e-3
    assert model.embed(TEXT) == pytest.approx(hidden[-len(own(model)) :].mean(axis=0), abs=1e-4)


def own(model):
    return model.encodings([TEXT])[0].spans


def test_an_unknown_preset_and_a_pickled_adapter_are_told(folders, tmp_path):
    with pytest.raises(InputError, match="sgpt-nli"):
        open_preset("sgpt")
    given = folders("opt-eol-cse")
    (tmp_path / "adapter0" / "adapter_model.safetensors").rename(tmp_path / "adapter0" / "adapter_model.bin")
    with pytest.raises(ModelFolderError, match="only adapters in that form are read"):
        open_preset("opt-eol-cse", **given)
