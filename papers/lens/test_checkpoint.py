"""The LENS authors' checkpoints: what their example gives, how clusters are named, files that could do harm."""

from __future__ import annotations

import copy
import warnings
import zipfile

import numpy as np
import pytest

from tiny_models import random_adapter, sentence_piece, tiny_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import pellucid
from papers.lens.checkpoint import _read_array, name_clusters, open_checkpoint
from pellucid.errors import InputError, ModelFolderError
from pellucid.lexicon.clusters import cluster_vocabulary
from pellucid.transformer.backbone import unchanged_names

TEXTS = ["The man is riding a horse.", "a doctor gave the sick boy medicine", "", "cars quickly, swift cars!"]


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
    """A tiny Mistral with the three added tokens, written as published and as trained, and its centroids."""
    root = tmp_path_factory.mktemp("authors")
    tokenizer = sentence_piece()
    base = tiny_model("mistral", len(tokenizer), sliding_window=None)
    base.save_pretrained(root / "base")
    tokenizer.save_pretrained(root / "base")
    random_adapter(root / "trained" / "checkpoint-20", root / "base")
    (root / "trained" / "checkpoint-3").mkdir()
    (root / "trained" / "checkpoint-3" / "adapter_config.json").write_text("{}")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<instruct>", "<query>", "<response>"]})
    base.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    centroids = torch.nn.Linear(32, 12, bias=False)
    torch.nn.init.normal_(centroids.weight, std=0.5)
    tokenizer.save_pretrained(root / "trained")
    (root / "trained" / "embedding").mkdir()
    torch.save(base.get_input_embeddings(), root / "trained" / "embedding" / "input_emb.pth")
    torch.save(centroids, root / "trained" / "embedding" / "lm_head.pth")
    import peft

    with unchanged_names():
        merged = peft.PeftModel.from_pretrained(base, root / "trained" / "checkpoint-20").merge_and_unload()
    for form in ("published", "beside"):
        merged.lm_head = centroids if form == "published" else torch.nn.Linear(32, len(tokenizer), bias=False)
        merged.save_pretrained(root / form)
        tokenizer.save_pretrained(root / form)
    torch.save(copy.deepcopy(centroids).half(), root / "beside" / "lm_head.pth")
    reference = merged.model
    reference.config.is_causal = False
    return root, reference.eval(), tokenizer, centroids.weight.detach()


@pytest.mark.usefixtures("outside_allowed")
@pytest.mark.parametrize("form", ["published", "beside", "trained"])
@pytest.mark.parametrize("instruction", [None, "Find the horse."])
def test_the_authors_checkpoints_give_what_their_example_gives(authors, form, instruction):
    root, reference, tokenizer, head = authors
    texts = ["the man is riding a horse", "quickly a car", "the sick boy gave the doctor a horse on the beach"]
    expected = by_the_readme(reference, tokenizer, head, texts, instruction)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = open_checkpoint(root / form)
    found = model.with_instruction(instruction or "").encode(texts)
    np.testing.assert_allclose(found.toarray(), expected, atol=2e-3 if form == "beside" else 1e-5)
    assert found.shape == (3, 12) and expected.any(axis=1).all()


@pytest.mark.usefixtures("outside_allowed")
def test_the_authors_clusters_are_named_by_the_model_they_came_from(authors):
    root, *_ = authors
    with pytest.warns(UserWarning, match="clusters are called by numbers; give the model it was trained from"):
        nameless = open_checkpoint(root / "published")
    assert nameless.dimensions.names[0] == "cluster 0"
    named = open_checkpoint(root / "published", backbone=root / "base")
    trained = open_checkpoint(root / "trained")
    assert named.dimensions.names == trained.dimensions.names
    words = [word for dimension in named.dimensions for word in dimension.about]
    assert {"horse", "doctor", "medicine"} <= set(words) and not {"<instruct>", "</s>"} & set(words)


@pytest.mark.usefixtures("outside_allowed")
def test_an_authors_model_is_saved_as_ours(authors, tmp_path):
    root, *_ = authors
    model = open_checkpoint(root / "trained")
    model.save_pretrained(tmp_path / "model")
    again = pellucid.load(tmp_path / "model")
    np.testing.assert_allclose(again.encode(TEXTS).toarray(), model.encode(TEXTS).toarray(), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_saved_layer_or_array_is_read(tmp_path, dtype):
    linear = torch.nn.Linear(8, 5, bias=False).to(getattr(torch, dtype))
    expected = linear.weight.detach().float().numpy()
    torch.save(linear, tmp_path / "layer.pth")
    torch.save(linear.weight, tmp_path / "tensor.pth")
    np.save(tmp_path / "array.npy", expected)
    for name in ("layer.pth", "tensor.pth", "array.npy"):
        assert (_read_array(tmp_path / name, 8) == expected).all()


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
    for name, message in (found | {"none": "torch.save", "odd": "torch.save", "gone": "not found"}).items():
        with pytest.raises(ModelFolderError, match=message):
            _read_array(tmp_path / f"{name}.pth", 8)
    assert not (tmp_path / "harmed").exists()


def test_a_checkpoint_without_centroids_says_where_it_looked(authors, tmp_path):
    root, *_ = authors
    with pytest.raises(ModelFolderError, match=r"no centroids: no lm_head\.weight .* none of lm_head\.pth"):
        open_checkpoint(root / "base")


@pytest.mark.parametrize("content", ["null", "[]", "5"])
def test_an_adapter_file_of_the_authors_form_that_is_no_object_is_refused(tmp_path, content):
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "adapter_config.json").write_text(content)
    with pytest.raises(ModelFolderError, match="is an adapter; give the name"):
        open_checkpoint(tmp_path)


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
