r"""What the first components and the lengths of word vectors hold, at each step of making a static model.

    python -m papers.swe.component_tables TEACHER --data shared/data --work-dir work/multi --english work/static \
        --tagged DIR --ratings DIR --write

TEACHER, --data and --work-dir are those of `language_steps.py`, which makes the models of five languages; --english is
the work folder of `trials.py`, which makes the English ones. --tagged holds the Brown corpus as NLTK's data have it
(brown/ca01 ...) and the Universal Dependencies' GSD files (de_gsd-ud-dev.conllu ...; of Chinese zh_gsdsimp). --ratings
holds concreteness.txt (Brysbaert et al. 2014), squinky-train.tsv, -dev and -test (Lahiri 2015, as PragmEval has it) and
in_formal_sentences.tsv (Eder et al. 2023, German).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from papers.kit import Figure, Table
from papers.models import open_any
from papers.swe.crosslingual import LANGUAGES, tatoeba
from papers.swe.language_steps import (
    ALL,
    DROP,
    DROPPED,
    EXTRACTED,
    KEPT,
    MODELS,
    STEPS,
    TUNED,
    Languages,
    run_on_teacher,
)
from papers.swe.norms import norms_by_rank, norms_by_tag, read_tagged
from papers.swe.separation import silhouette
from papers.swe.trials import Maker
from pellucid import StaticEmbedder
from pellucid.core.embedder import Vectors
from pellucid.core.pca import spectrum_of
from pellucid.errors import InputError
from pellucid.static.bags import Bags
from pellucid.static.training.segmentation import word_finder
from pellucid.text.tables import read_texts
from pellucid.text.words import Vocabulary
from recipes.static_multi import open_e5

_CHUNK_WORDS = 8_192  # words at a time
SENTENCES, WORDS, POINTS = 20_000, 10_000, 200  # of a language; points of a map
ENGLISH_STEPS = {"extraction (3.1)": "extraction", "PCA without the first 7 (3.2)": "d256-pca"}
CLASSES = {
    "article": (0.37, 0.22), "preposition": (0.53, 0.33), "adverb": (0.71, 0.52), "numeral": (0.85, 0.66),
    "verb": (0.79, 0.67), "adjective": (0.87, 0.74), "noun": (0.91, 0.84), "proper noun": (1.00, 1.00),
}  # fmt: skip
"""The paper's classes with the lengths of SWE and of WordLlama there, as shares of that of proper nouns."""
UNIVERSAL = ("DET", "ADP", "PRON", "ADV", "NUM", "VERB", "ADJ", "NOUN", "PROPN")
TREEBANKS = {"de": "de_gsd", "fr": "fr_gsd", "zh": "zh_gsdsimp", "ja": "ja_gsd"}

Array = npt.NDArray[np.float64]


def as_static(model: Any, words: Sequence[str], *, subwords: Tokenizer | None = None) -> StaticEmbedder:
    """Return another library's table as a static model of `words`.

    Args:
        model: an opened `WordLlama` (also `WordLlamaInference`) or model2vec `StaticModel`.
        words: the words to have rows, such as another model's `vocabulary.words`. In lower case alone, they also
            match their other spellings.
        subwords: a tokenizer for finding unknown words by their prefix; None leaves them unknown.

    Returns:
        A float32 model. A word is cut as at the start of a text; one without a known token has a row of zeros.

    Raises:
        InputError: `model` is neither, or `words` holds none or one twice.
    """
    table, tokenizer = getattr(model, "embedding", None), getattr(model, "tokenizer", None)
    if not isinstance(table, np.ndarray) or table.ndim != 2 or not isinstance(tokenizer, Tokenizer):
        raise InputError(f"as_static takes an opened WordLlama or model2vec StaticModel, got {type(model).__name__}")
    if not words:
        raise InputError("as_static needs at least one word; give another model's vocabulary.words")
    vectors = np.zeros((len(words), table.shape[1]), np.float32)
    plain = Tokenizer.from_str(tokenizer.to_str())  # the model keeps its own
    plain.no_padding()
    plain.no_truncation()
    for start in range(0, len(words), _CHUNK_WORDS):
        chunk = words[start : start + _CHUNK_WORDS]
        for row, encoding in enumerate(plain.encode_batch(chunk, add_special_tokens=False), start):
            vectors[row] = _token_vectors(model, table, np.array(encoding.ids, np.int64)).sum(axis=0)
    return StaticEmbedder(Vocabulary(list(words), subwords), vectors)


def _token_vectors(model: Any, table: npt.NDArray[Any], ids: npt.NDArray[np.int64]) -> Vectors:
    """Return the vectors of tokens as the model weighs them, float32 [tokens, d]."""
    unknown = getattr(model, "unk_token_id", None)
    if unknown is not None:  # model2vec leaves them out; WordLlama counts its token for them
        ids = ids[ids != unknown]
    mapping, weights = getattr(model, "token_mapping", None), getattr(model, "weights", None)
    vectors: Vectors = table[ids if mapping is None else mapping[ids]].astype(np.float32)
    return vectors if weights is None else vectors * np.asarray(weights, np.float32)[ids][:, None]


def silhouettes(given: Given) -> Table:
    """Return how far apart words and sentences of different languages are at each step."""
    rows = []
    for name in MODELS:
        model = given.languages.model(name)
        sets = [["en", code] for code in LANGUAGES]
        cells = [apart(model, {code: words(given.languages, code) for code in codes}) for codes in [*sets, ALL]]
        rows.append([name, *cells, apart(model, {code: sentences(given.languages, code)[:2_000] for code in ALL})])
    heads = [*(f"words, en-{code}" for code in LANGUAGES), "words, all five", "sentences, all five"]
    return Table(["step", *heads], rows)


def apart(model: StaticEmbedder, items: Mapping[str, Sequence[str]]) -> str:
    """Return the silhouette score of languages by 1,000 items of each that no other one has."""
    return f"{silhouette(model, items):.3f}"


@cache
def sentences(languages: Languages, code: str) -> list[str]:
    """Return some text of a language."""
    return list(islice(read_texts(languages.corpus(code)), SENTENCES))


@cache
def words(languages: Languages, code: str) -> list[str]:
    """Return the most frequent words of some text of a language."""
    find = word_finder(code)
    counts = Counter(
        word.text if code != "en" else word.text.lower() for text in sentences(languages, code) for word in find(text)
    )
    return [word for word, _ in counts.most_common(WORDS)]


def maps(given: Given) -> str:
    """Draw t-SNE of the words of all languages and of pairs at each step; return the name of the picture."""
    import matplotlib.pyplot as plt

    shown = [*STEPS, *TUNED]
    sets = [list(ALL), *(["en", code] for code in LANGUAGES)]
    figure, panels = plt.subplots(len(sets), len(shown), figsize=(3.1 * len(shown), 3.0 * len(sets)), squeeze=False)
    for row, codes in zip(panels, sets, strict=True):
        for axes, name in zip(row, shown, strict=True):
            draw_map(axes, given, name, codes)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(ALL), frameon=False, markerscale=3)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    path = given.folder / "languages-apart.png"
    figure.savefig(path, dpi=70)
    return path.name


def draw_map(axes: Any, given: Given, name: str, codes: Sequence[str]) -> None:
    """Draw the words of some languages by t-SNE (cosine)."""
    from sklearn.manifold import TSNE

    model, own = given.languages.model(name), Counter(w for code in codes for w in words(given.languages, code))
    chosen = {}
    for code in codes:
        found = [w for w in words(given.languages, code) if own[w] == 1 and w in model.vocabulary]
        chosen[code] = np.random.default_rng(0).permutation(found)[:POINTS].tolist()
    rows = model.word_vectors(np.array([model.vocabulary.row(w) for code in codes for w in chosen[code]]))
    places = TSNE(2, metric="cosine", init="pca", random_state=0, n_jobs=1).fit_transform(np.array(rows, np.float32))
    for number, code in enumerate(codes):
        part = places[number * POINTS : (number + 1) * POINTS]
        axes.scatter(*part.T, s=3, linewidths=0, alpha=0.6, label=code, color=f"C{ALL.index(code)}")
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"{'five languages' if len(codes) > 2 else '-'.join(codes)}\n{name}", fontsize=8)


def layers(given: Given) -> Table:
    """Return of each layer of the teacher how far apart languages are and how well it finds translations."""
    pairs = {code: [texts[:1_000] for texts in tatoeba(given.languages.data, code)] for code in LANGUAGES}
    texts = [text for both in pairs.values() for side in both for text in side]
    states = layer_states(given.languages.teacher, texts)
    place, sides = 0, []
    for code, both in pairs.items():
        sides += [(code if side == 0 else "en", slice(place + side * len(both[0]), place + (side + 1) * len(both[0])))
                  for side in (0, 1)]  # fmt: skip
        place += 2 * len(both[0])
    names = [*map(str, range(len(states) - 1)), f"{len(states) - 2}, first token"]
    rows = [[name, *layer_cells(layer, sides)] for name, layer in zip(names, states, strict=True)]
    heads = ["variance between languages", "of component 1", "of components 2 to 7"]
    heads += ["silhouette", f"silhouette without {DROP}"]
    return Table(["layer", *heads, "found", *(f"found without {k}" for k in (1, 3, DROP))], rows)


def layer_states(teacher: str, texts: Sequence[str]) -> list[Array]:
    """Return texts' mean states at each layer, the input embeddings first, and their first states at the last one.

    Returns:
        float64 [n, d] each.
    """
    import torch

    e5 = open_e5(teacher)
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    found: list[Any] = []
    for start in range(0, len(order), 64):
        features = e5.preprocess([texts[n] for n in order[start : start + 64]], prompt="query: ")
        with torch.inference_mode():
            states = e5[0].auto_model(**features, output_hidden_states=True).hidden_states
        mask = features["attention_mask"][..., None].to(torch.float32)
        means = [(state.float() * mask).sum(1) / mask.sum(1) for state in states]
        found.append(torch.stack([*means, states[-1][:, 0].float()]).numpy())
    back = np.argsort(order)
    return [layer[back].astype(np.float64) for layer in np.concatenate(found, axis=1)]


def layer_cells(rows: Array, sides: Sequence[tuple[str, slice]]) -> list[str]:
    """Return the cells of a layer; `sides` are the languages of stretches of rows, translations side by side."""
    from sklearn.metrics import silhouette_score

    once = dict(sides)  # English only once
    balanced = np.concatenate([rows[part] for part in once.values()])
    labels = np.repeat(np.arange(len(once)), [len(rows[part]) for part in once.values()])
    spectrum = spectrum_of(balanced, centred=True)
    placed = (balanced - spectrum.mean) @ spectrum.components.T
    total, between = placed.var(axis=0), np.var([placed[labels == n].mean(axis=0) for n in range(len(once))], axis=0)
    shares = [between.sum() / total.sum(), between[0] / total[0], between[1:DROP].sum() / total[1:DROP].sum()]
    apart = [silhouette_score(some[::2], labels[::2], metric="cosine") for some in (balanced, placed[:, DROP:])]
    everything = (rows - spectrum.mean) @ spectrum.components.T
    found = [accuracy(rows, sides), *(accuracy(everything[:, k:], sides) for k in (1, 3, DROP))]
    return [*(f"{100 * share:.1f}" for share in shares), *(f"{a:.3f}" for a in apart), *(f"{x:.1f}" for x in found)]


def accuracy(rows: Array, sides: Sequence[tuple[str, slice]]) -> float:
    """Return how many sentences have their translation first, in both directions, in percent over all pairs."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    shares = []
    for (_, first), (_, second) in zip(sides[::2], sides[1::2], strict=True):
        cosines = unit[first] @ unit[second].T
        shares += [(cosines.argmax(axis) == np.arange(len(cosines))).mean() for axis in (0, 1)]
    return 100 * float(np.mean(shares))


def ends(given: Given) -> Table:
    """Return the words at the ends of components of the extracted vectors (the paper's table 8)."""
    model = given.english("d256-pca-keep")
    names, rows = model.vocabulary.words[:WORDS], model.word_vectors(np.arange(WORDS))
    lines = []
    for number in (1, 2, 3, 4, 5, 6, 7):
        order = np.argsort(rows[:, number - 1])
        lines.append([str(number), *(", ".join(names[n] for n in end) for end in (order[:5], order[::-1][:5]))])
    return Table(["component", "five smallest", "five largest"], lines, left=3)


def correlations(given: Given) -> Table:
    """Return the correlations of components 1 to 7 with what is known of words and of texts."""
    from scipy.stats import pearsonr, spearmanr

    model, german = given.english("d256-pca-keep"), given.languages.model(KEPT)
    names, rows = model.vocabulary.words[:WORDS], model.word_vectors(np.arange(WORDS))
    rated = concreteness(given.ratings / "concreteness.txt")
    known = np.array([n for n, name in enumerate(names) if name in rated])
    by_word = {
        f"frequency rank, {WORDS:,} words": (rows, np.arange(WORDS)),
        "length in letters, the same": (rows, np.array([len(name) for name in names])),
        f"concreteness, {len(known):,} words": (rows[known], np.array([rated[names[n]] for n in known])),
    }
    lines = [[what, *(correlated(spearmanr, place, values) for place in some.T[:DROP])] for what, (some, values) in
             by_word.items()]  # fmt: skip
    formal = {"English": (model, read_squinky(given.ratings)), "German": (german, read_german(given.ratings))}
    for language, (made, (texts, scores)) in formal.items():
        means = Bags.from_sentences(texts, made.vocabulary).means(made.vectors.astype(np.float32))
        what = f"formality, {len(texts):,} {language} sentences"
        lines.append([what, *(correlated(pearsonr, place, scores) for place in means.T[:DROP])])
    return Table(["", *(f"component {n}" for n in range(1, DROP + 1))], lines)


def correlated(measure: Callable[..., Any], one: Any, other: Any) -> str:
    """Return a correlation."""
    return f"{measure(one, other).statistic:+.2f}"


def concreteness(path: Path) -> dict[str, float]:
    """Return the mean rating of each word, from 1 (abstract) to 5."""
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:])
    return {cells[0]: float(cells[2]) for cells in lines}


def read_squinky(folder: Path) -> tuple[list[str], Array]:
    """Return sentences and whether people found them formal, 1 or 0."""
    lines = [line.rsplit("\t", 1) for part in ("train", "dev", "test")
             for line in (folder / f"squinky-{part}.tsv").read_text(encoding="utf-8").splitlines()[1:]]  # fmt: skip
    return [text for text, _ in lines], np.array([label == "high" for _, label in lines], np.float64)


def read_german(folder: Path) -> tuple[list[str], Array]:
    """Return German sentences and how formal they are, from -1 to 1."""
    lines = (folder / "in_formal_sentences.tsv").read_text(encoding="utf-8").splitlines()[1:]
    cells = [line.split("\t") for line in lines]
    return [row[2] for row in cells], np.array([float(row[1]) for row in cells])


def tags(given: Given) -> Table:
    """Return the lengths of English words by part of speech in the Brown corpus, as shares of proper nouns'."""
    models = {**{name: given.english(folder) for name, folder in ENGLISH_STEPS.items()}, **given.others()}
    columns = {name: shares(model, given.brown(), "Proper Noun", brown=True) for name, model in models.items()}
    rows = [
        [name, *(f"{found[name.title()]:.2f}" for found in columns.values()), *(f"{x:.2f}" for x in printed)]
        for name, printed in CLASSES.items()
    ]
    return Table(["part of speech", *columns, "paper: SWE", "paper: WordLlama"], rows)


def shares(
    model: StaticEmbedder, tagged: Iterable[tuple[str, str]], longest: str, brown: bool = False
) -> dict[str, float]:
    """Return the mean length of each part of speech over that of one."""
    found = norms_by_tag(model, tagged, brown=brown, words=WORDS)
    return {tag: mean / found[longest] for tag, mean in found.items()}


def language_tags(given: Given) -> Table:
    """Return the same of other languages, before PCA, after it and after tuning."""
    cells: dict[str, list[dict[str, float]]] = {}
    for code, treebank in TREEBANKS.items():
        files = sorted(given.tagged.glob(f"{treebank}-ud-*.conllu"))
        models = [given.languages.model(name) for name in (EXTRACTED, DROPPED, next(iter(TUNED)))]
        cells[code] = [shares(model, read_tagged(*files), "PROPN") for model in models]
    rows = [
        [tag, *(" / ".join(f"{one[tag]:.2f}" if tag in one else "-" for one in found) for found in cells.values())]
        for tag in UNIVERSAL
    ]
    return Table(["part of speech", *cells], rows)


def ranks(given: Given) -> Table:
    """Return the correlation of length and frequency rank at each step."""
    brown = [" ".join(word for word, _ in given.brown()[start : start + 50]) for start in range(0, 1_200_000, 50)]
    rows = [
        [name, by_rank(model, brown)]
        for name, model in (*((n, given.english(f)) for n, f in ENGLISH_STEPS.items()), *given.others().items())
    ]
    return Table(["model", "Brown corpus"], rows)


def language_ranks(given: Given) -> Table:
    """Return the same in five languages."""
    rows = []
    for name in (*STEPS, *TUNED):
        model = given.languages.model(name)
        rows.append([name, *(by_rank(model, sentences(given.languages, code)) for code in ALL)])
    return Table(["step", *ALL], rows)


def by_rank(model: StaticEmbedder, texts: Sequence[str]) -> str:
    """Return Spearman's correlation of the lengths of the most frequent words with their ranks."""
    return f"{norms_by_rank(model, texts, words=WORDS):+.2f}"


class Given:
    """What the tables are made of, by the options of the script."""

    def __init__(self, arguments: Any) -> None:
        """Take the arguments."""
        self.languages = Languages(arguments.teacher, arguments.data, arguments.work_dir)
        self.folder, self.tagged, self.ratings = arguments.folder, arguments.tagged, arguments.ratings
        self._maker = Maker(arguments.data, arguments.english)

    @cache  # noqa: B019 (one a run)
    def english(self, name: str) -> StaticEmbedder:
        """Return a model of `papers/swe/trials.py`."""
        return self._maker.model(name)

    @cache  # noqa: B019
    def others(self) -> dict[str, StaticEmbedder]:
        """Return models that others are compared with."""
        bundled = StaticEmbedder.from_pretrained("static-en")
        wordllama = as_static(open_any("wordllama"), bundled.vocabulary.words)
        return {"static-en": bundled, "WordLlama": wordllama}

    @cache  # noqa: B019
    def brown(self) -> list[tuple[str, str]]:
        """Return the words of the Brown corpus with their tags."""
        return list(read_tagged(*sorted(self.tagged.glob("brown/c[a-r][0-9][0-9]"))))


TABLES: dict[str, Callable[[Given], Figure]] = {
    "silhouettes": silhouettes,
    "maps": maps,
    "layers": layers,
    "language-ranks": language_ranks,
    "language-tags": language_tags,
    "ends": ends,
    "correlations": correlations,
    "ranks": ranks,
    "tags": tags,
}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the tables; the maps are a picture beside the page."""
    given = Given(options)
    for name in options.only:
        yield name, TABLES[name](given)


if __name__ == "__main__":
    options = {
        "--english": {"type": Path, "required": True, "help": "work folder of papers/swe/trials.py"},
        "--tagged": {"type": Path, "required": True, "help": "folder of tagged text"},
        "--ratings": {"type": Path, "required": True, "help": "folder of ratings"},
        "--folder": {"type": Path, "default": Path(__file__).parent, "help": "of the pictures"},
    }
    run_on_teacher(measure, options, only=TABLES)
