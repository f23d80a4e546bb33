"""A small model of every family."""

import csv
from dataclasses import replace
from inspect import isfunction
from itertools import pairwise

import numpy as np
from scipy import sparse

from pellucid.anchors.embedder import AnchorEmbedder
from pellucid.core.dimensions import Dimension, Dimensions
from pellucid.ensemble.embedder import EnsembleEmbedder
from pellucid.lexicon.static import StaticLexiconEmbedder
from pellucid.static.embedder import StaticEmbedder
from pellucid.static.precision import quantize
from pellucid.text.words import Vocabulary
from tiny_models import backbone_of, piece_tokenizer, tiny_transformer

WORDS = "the cat sat on a mat bank loan river token doctor medicine man horse boy beach".split()

TEXTS = ["The Cat sat", "river bank", "", "tokenisers and TOKENISER <query>", "the doctor, a LOAN", "a man on a horse"]

ANCHORS = ["the cat sat", "bank loan", "a mat", "the doctor", "a man on a horse", "river"]

STATIC = ["static", "static lexicon", "anchors", "ensemble"]

FAMILIES = [*STATIC, "anchors over a transformer", "ensemble with a transformer", "lexicon", "key tokens"]


def static_model() -> StaticEmbedder:
    """Words, prefixes and a table large enough that joblib puts it into a file."""
    tokenizer = piece_tokenizer(["token", "##iser", "##s"])
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 64)).astype(np.float16)
    return StaticEmbedder(Vocabulary(WORDS, lambda: tokenizer), vectors)  # a function that no pickle can hold


def static_lexicon_model(seed=1):
    weights = np.round(np.random.default_rng(seed).random((len(WORDS), 12)) * 4) * (np.arange(12) % 3 != 1)
    names = Dimensions(Dimension(f"cluster {n}", (f"word {n}",)) for n in range(12))
    return StaticLexiconEmbedder(Vocabulary(WORDS), sparse.csr_matrix(weights), names)


def first_letters(texts):
    """An encoder that is a function: counts of the first letters."""
    return np.array([[text.count(letter) + 1 for letter in "abcdefgh"] for text in texts], np.float32)


def count_animals(texts):
    """How often each animal is in a text."""
    return np.array([[text.count(animal) for animal in ("cat", "dog", "cow")] for text in texts], np.float32)


def letter_pairs(texts):
    """Counts of pairs of letters, hashed to 64 dimensions."""
    vectors = np.zeros((len(texts), 64), np.float32)
    for row, text in zip(vectors, texts):
        np.add.at(row, [(ord(a) * 31 + ord(b)) % 64 for a, b in pairwise(text)], 1)
    return vectors


def hashed(texts):
    """Eight numbers that a text alone decides; zero for a blank one."""
    rows = [np.random.default_rng(list(text.encode("utf-8"))).normal(size=8) * bool(text.strip()) for text in texts]
    return np.array(rows)


def lexicon_model(seed=0):
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder

    backbone = backbone_of("mistral", "bidirectional", seed=seed)
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 30)).scale({0: 0.5})


def key_token_model(seed=0):
    from pellucid.keytokens.embedder import KeyTokenEmbedder
    from pellucid.keytokens.states import KeyTokenSettings

    return KeyTokenEmbedder(backbone_of("llama", "causal", seed=seed), KeyTokenSettings(top_k=20))


def every_model(folder):
    """Return a model of each family by name; of those that need torch only where it is."""
    models = {
        "static": static_model(),
        "static lexicon": static_lexicon_model(),
        "anchors": AnchorEmbedder(static_model(), ANCHORS),
        "ensemble": EnsembleEmbedder([static_model(), AnchorEmbedder(first_letters, ANCHORS), first_letters]),
    }
    try:
        import sentence_transformers  # noqa: F401
    except ImportError:
        return models
    transformer = tiny_transformer(folder, normalize=True)
    return models | {
        "anchors over a transformer": AnchorEmbedder(transformer, ANCHORS),
        "ensemble with a transformer": EnsembleEmbedder([transformer, static_model()]),
        "lexicon": lexicon_model(),
        "key tokens": key_token_model(),
    }


VARIANTS = {
    "lexicon, told and cut": lambda models: models["lexicon"].with_settings(
        replace(models["lexicon"].settings, instruction="Find it.", max_active_dims=9)
    ),
    "lexicon, summed": lambda models: models["lexicon"].with_settings(
        replace(models["lexicon"].settings, pooling="sum")
    ),
    "lexicon, last": lambda models: models["lexicon"].with_settings(
        replace(models["lexicon"].settings, pooling="last")
    ),
    "key tokens, adjusted": lambda models: _adjusted(models["key tokens"]),
    "static lexicon, edited": lambda models: (
        models["static lexicon"].merge(0, 2, name="both").scale({"cluster 3": 0.5}).with_max_active_dims(2)
    ),
    "static, float32": lambda models: StaticEmbedder(
        models["static"].vocabulary, np.array(models["static"].vectors, np.float32)
    ),
    "static, int8": lambda models: StaticEmbedder(
        Vocabulary(WORDS), *quantize(np.array(models["static"].vectors, np.float32))
    ),
}  # made of the models above, with other settings


def _adjusted(model):
    model = model.fitted([text for text in TEXTS if text], "component", strength=-1.0)
    settings = replace(model.settings, pooling="weighted_mean", signs="signed", top_k=9)
    return model.with_settings(settings).scale({5: 0.25}).without(7)


def dense_rows(rows):
    """Return rows as an array, also sparse ones."""
    return rows.toarray() if hasattr(rows, "toarray") else rows


def reopened(model, folder, **options):
    """Save a model and open it, its functions given again."""
    model.save_pretrained(folder, **options)
    return opened(model, folder)


def opened(model, folder):
    """Open the folder of a model that was saved, its functions given again."""
    if isinstance(model, EnsembleEmbedder):
        functions = (part for part in model.parts if isfunction(_function_of(part.model)))
        return EnsembleEmbedder.from_pretrained(folder, parts={part.name: part.model for part in functions})
    function = _function_of(model)
    return type(model).from_pretrained(folder, **{"encoder": function} if isfunction(function) else {})


def _function_of(model):
    return getattr(getattr(model, "encoder", model), "model", None)


def edit_table(folder, change):
    """Change the rows of a folder's `dimensions.tsv`, as lists of cells, as a person does with a spreadsheet."""
    path = folder / "dimensions.tsv"
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, dialect="excel-tab"))
    changed = change(rows)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, dialect="excel-tab").writerows(rows if changed is None else changed)


def cell(number, column, value):
    """Return a change for `edit_table`: another value in a column of the dimension `number`."""
    return lambda rows: rows[number + 1].__setitem__(column, value)
