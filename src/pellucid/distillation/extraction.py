"""Word vectors from a sentence transformer, in one pass over a corpus (SWE paper, section 3.1, equation 1).

A word's vector is the mean, over at most N of its occurrences, of the teacher's last hidden states at its pieces. The
paper's N counts sentences, with a word's first place in each; here a sentence that holds a word twice counts twice.
Each sentence is encoded once and serves every word in it; the published code encodes a sentence anew for each word, up
to 15 million times. The same forward pass gives the sentence's own vector, which distillation (section 3.3) needs.

Sentences are encoded in shards. After each shard the state is written aside and renamed, so that a killed run goes on
where it stopped, with no sentence lost or counted twice. Nothing of this file is needed to use a model.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pellucid.corpus import Corpus, is_path, read_texts
from pellucid.distillation.languages import word_finder
from pellucid.distillation.teacher import WordVectors, forward, one_thread_a_batch, word_vectors
from pellucid.errors import CorpusError
from pellucid.progress import Progress
from pellucid.store import check_same_run, read_json, read_tensors, write_json, write_tensors, writing
from pellucid.words import Word, well_formed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class ExtractionSettings:
    """What is taken from the corpus.

    Attributes:
        max_vocabulary: at most this many words, the most frequent first.
        min_count: a word must occur this often in the corpus.
        occurrences: at most this many occurrences of a word are averaged; the paper's N counts sentences.
        cased: keep case; False lower-cases the words, as the paper does for English.
        sentence_words: shortest and longest sentence taken, in words. Long ones carry word order, which a mean of
            words cannot follow; the paper saw them harm.
        enough: take a sentence only if one of its words has occurred fewer than this many times in those taken before;
            None takes all. A sentence of well-known words adds little and costs a full pass of the teacher.
        max_sentences: stop after this many usable sentences; None takes all.
        prompt: put before each sentence for the teacher; its own pieces are never part of a word.
        language: code of the corpus's language, for those written without spaces; None cuts at spaces and punctuation.
        batch_size: sentences in one forward pass of the teacher.
    """

    max_vocabulary: int = 150_000
    min_count: int = 1
    occurrences: int = 100
    cased: bool = False
    sentence_words: tuple[int, int] = (2, 40)
    enough: int | None = None
    max_sentences: int | None = None
    prompt: str = ""
    language: str | None = None
    batch_size: int = 64


@dataclass(frozen=True)
class Extraction:
    """What one pass over the corpus left.

    Attributes:
        words: the vocabulary, most frequent first.
        counts: int64 [words], occurrences in the usable sentences of the corpus.
        vectors: float32 [words, hidden size of the teacher]; a zero row where the teacher saw no whole occurrence.
        sentences: the usable sentences, in order of the corpus.
        teacher_vectors: float16 [sentences, teacher dimension], each of length 1.
    """

    words: list[str]
    counts: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]
    sentences: list[str]
    teacher_vectors: npt.NDArray[np.float16]


_SHARD = 16_384  # sentences between two checkpoints: about a minute of a small teacher on two cores


def extract(
    teacher: SentenceTransformer,
    corpus: Corpus,
    work_dir: Path,
    settings: ExtractionSettings,
    *,
    show_progress_bar: bool = True,
) -> Extraction:
    """Run or resume the pass of `teacher` over `corpus`, keeping its state in `work_dir`.

    Raises:
        CorpusError: the corpus cannot be read, or no sentence of it is usable.
        InputError: `work_dir` holds the state of another corpus, teacher or setting.
    """
    corpus = spool(corpus, work_dir)
    words, total = count_words(teacher, corpus, work_dir, settings, show_progress_bar=show_progress_bar)
    state = _State(work_dir, len(words), int(teacher[0].get_embedding_dimension()))
    number_of = {word: row for row, word in enumerate(words)}
    sentences: list[str] = []
    with Progress("teacher", total=total, unit="sentences", enabled=show_progress_bar) as progress:
        for number, shard in enumerate(_shards(usable_sentences(corpus, settings))):
            if number >= state.shards_done:
                _encode_shard(teacher, shard, number_of, state, settings, progress)
                state.save(number)
            else:
                progress.advance(len(shard))
            sentences.extend(shard)
    return _finished(work_dir, sentences)


def _finished(work_dir: Path, sentences: list[str]) -> Extraction:
    """Return what the finished pass over `sentences` left in `work_dir`."""
    vocabulary = read_json(work_dir / "vocabulary.json")
    tensors, metadata = read_tensors(work_dir / "sums.safetensors")
    paths = [_shard_path(work_dir, number) for number in range(int(metadata["shards_done"]))]
    return Extraction(
        words=vocabulary["words"],
        counts=np.array(vocabulary["counts"], dtype=np.int64),
        vectors=tensors["sums"] / np.maximum(tensors["used"], 1)[:, None].astype(np.float32),
        sentences=sentences,
        teacher_vectors=np.concatenate([read_tensors(path)[0]["teacher_vectors"] for path in paths]),
    )


def usable_sentences(corpus: Corpus, settings: ExtractionSettings) -> Iterator[str]:
    """Yield the sentences of `corpus` that `settings` takes, in order; the same at every call."""
    shortest, longest = settings.sentence_words
    taken = 0
    seen: Counter[str] = Counter()
    for text in read_texts(corpus):
        if taken == settings.max_sentences:
            return
        if len(text) > longest * 100:
            continue
        words = [word.text for word in _words(text, settings)]
        if not shortest <= len(words) <= longest:
            continue
        if settings.enough is not None:
            if all(seen[word] >= settings.enough for word in words):
                continue
            seen.update(words)
        taken += 1
        yield well_formed(text)


def spool(corpus: Corpus, work_dir: Path) -> Corpus:
    """Write an iterable to disk once: the pass over it must be repeatable to be resumable. A path is returned as it is.

    Raises:
        CorpusError: an item is no string.
    """
    if is_path(corpus):
        return corpus
    path = work_dir / "corpus.jsonl"
    if not path.exists():
        with writing(path) as aside, open(aside, "w", encoding="utf-8") as file:
            for text in read_texts(corpus):
                file.write(json.dumps(well_formed(text), ensure_ascii=False) + "\n")
    return path


def count_words(
    teacher: SentenceTransformer,
    corpus: Corpus,
    work_dir: Path,
    settings: ExtractionSettings,
    *,
    show_progress_bar: bool = True,
) -> tuple[list[str], int]:
    """Return the words of a spooled `corpus` and the number of usable sentences, counting only once per `work_dir`.

    Raises:
        CorpusError: the corpus cannot be read, or no sentence of it is usable.
        InputError: `work_dir` holds the state of another corpus, teacher or setting.
    """
    path = work_dir / "vocabulary.json"
    origin = _origin(corpus, teacher, settings)
    if path.exists():
        saved = read_json(path)
        check_same_run(work_dir, saved["origin"], origin)
        return saved["words"], saved["sentences"]
    counter: Counter[str] = Counter()
    total = 0
    with Progress("counting words", unit="sentences", enabled=show_progress_bar) as progress:
        for sentence in usable_sentences(corpus, settings):
            counter.update(word.text for word in _words(sentence, settings))
            total += 1
            progress.advance()
    if not total:
        raise CorpusError(
            f"the corpus has no usable sentence: none has {settings.sentence_words[0]} to "
            f"{settings.sentence_words[1]} words; see sentence_words"
        )
    ranked = sorted(counter.items(), key=lambda item: (-item[1], item[0]))[: settings.max_vocabulary]
    kept = [(word, count) for word, count in ranked if count >= settings.min_count]
    if not kept:
        raise CorpusError(f"no word occurs {settings.min_count} times in the corpus; lower min_count")
    words, counts = [word for word, _ in kept], [count for _, count in kept]
    write_json(path, {"origin": origin, "sentences": total, "words": words, "counts": counts})
    return words, total


def _origin(corpus: Corpus, teacher: SentenceTransformer, settings: ExtractionSettings) -> dict[str, Any]:
    """What a resumed run must share with the run it goes on from."""
    path = Path(corpus)  # type: ignore[arg-type]
    digest = hashlib.sha256()
    for name, weights in sorted(teacher.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(weights.detach().cpu().float().numpy().ravel()[:4096]).tobytes())
    values = json.loads(json.dumps(asdict(settings)))
    del values["batch_size"]  # changes the speed, not the result
    if settings.language is None:  # runs from before there was such a setting can be resumed
        del values["language"]
    return {"corpus": [path.name, path.stat().st_size if path.exists() else 0], "teacher": digest.hexdigest(), **values}


def _words(sentence: str, settings: ExtractionSettings) -> list[Word]:
    words = word_finder(settings.language)(sentence)
    return words if settings.cased else [Word(w.text.lower(), w.start, w.end) for w in words]


def _shards(sentences: Iterator[str]) -> Iterator[list[str]]:
    shard: list[str] = []
    for sentence in sentences:
        shard.append(sentence)
        if len(shard) == _SHARD:
            yield shard
            shard = []
    if shard:
        yield shard


class _State:
    """The running sums, and how far they have come. On disk they change together or not at all."""

    def __init__(self, work_dir: Path, words: int, dimension: int) -> None:
        self.work_dir = work_dir
        self.path = work_dir / "sums.safetensors"
        self.shards_done = 0
        self.sums = np.zeros((words, dimension), np.float32)
        self.used = np.zeros(words, np.int32)
        self.teacher_vectors = np.zeros((0, 0), np.float16)
        if self.path.exists():
            tensors, metadata = read_tensors(self.path)
            self.sums, self.used = np.array(tensors["sums"]), np.array(tensors["used"])
            self.shards_done = int(metadata["shards_done"])

    def save(self, number: int) -> None:
        """Finish shard `number`. Its vectors go first: without the sums they do not count yet."""
        write_tensors(_shard_path(self.work_dir, number), {"teacher_vectors": self.teacher_vectors})
        self.shards_done = number + 1
        tensors = {"sums": self.sums, "used": self.used}
        write_tensors(self.path, tensors, {"shards_done": str(self.shards_done)})


def _shard_path(work_dir: Path, number: int) -> Path:
    return work_dir / f"teacher-{number:05d}.safetensors"


def _encode_shard(
    teacher: SentenceTransformer,
    shard: list[str],
    number_of: dict[str, int],
    state: _State,
    settings: ExtractionSettings,
    progress: Progress,
) -> None:
    """Add the words of `shard` to the sums and set the shard's sentence vectors."""
    order = sorted(range(len(shard)), key=lambda i: (len(shard[i]), i))  # equal lengths together: little padding
    batches = [order[i : i + settings.batch_size] for i in range(0, len(order), settings.batch_size)]
    vectors = np.zeros((len(shard), teacher.get_embedding_dimension()), np.float16)

    def read(rows: list[int]) -> tuple[npt.NDArray[np.float32], WordVectors]:
        texts = [shard[i] for i in rows]
        sentence_vectors, token_vectors, offsets = forward(teacher, texts, settings.prompt)
        words = [_words(text, settings) for text in texts]
        return sentence_vectors, word_vectors(texts, words, token_vectors, offsets, number_of)

    with one_thread_a_batch(teacher) as workers:
        for rows, (sentence_vectors, (word_rows, found)) in zip(batches, workers.map(read, batches)):
            vectors[rows] = sentence_vectors
            _add_at_most(state, word_rows, found, settings.occurrences)
            progress.advance(len(rows))
    state.teacher_vectors = vectors


def _add_at_most(state: _State, rows: npt.NDArray[np.int64], vectors: npt.NDArray[np.float32], limit: int) -> None:
    """Add each vector to its word's sum while the word has had fewer than `limit`."""
    order = np.argsort(rows, kind="stable")
    ranked = rows[order]
    first = np.concatenate([[True], ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, bool)
    start = np.maximum.accumulate(np.where(first, np.arange(len(ranked)), 0))
    rank = np.arange(len(ranked)) - start  # how many of the same word came before it in this batch
    taken = order[state.used[ranked] + rank < limit]
    np.add.at(state.sums, rows[taken], vectors[taken])
    np.add.at(state.used, rows[taken], 1)
