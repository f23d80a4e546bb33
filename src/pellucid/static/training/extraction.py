"""Word vectors from a sentence transformer, in one pass over a corpus (SWE paper, equation 1).

A word's vector is the mean, over at most N of its occurrences, of the teacher's last hidden states at its tokens. The
paper's N counts sentences; here a sentence that holds a word twice counts twice. Each sentence is encoded once and
serves every word in it; the published code encodes a sentence anew for each word, up to 15 million times. The same
forward pass gives the sentence vector that distillation (section 3.3) needs.

Tokens are matched to words by character spans, so any fast tokenizer will do. A word that truncation cuts in two does
not count. The state is saved after each shard of sentences, so an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt

from pellucid.core.embedder import Vectors
from pellucid.core.fingerprint import fingerprint
from pellucid.dense.embedder import EncoderEmbedder
from pellucid.errors import CorpusError, InputError
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.persistence.untrusted import one_thread
from pellucid.progress import Progress
from pellucid.settings import Limits, Settings
from pellucid.static.training.segmentation import word_finder
from pellucid.text.tables import Corpus, is_path, read_texts
from pellucid.text.unicode import canonicalize, lowercase
from pellucid.text.words import Word

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


WordVectors = tuple[npt.NDArray[np.int64], Vectors]
"""Vocabulary rows [n] and vectors [n, d] of the whole words in a batch."""

_SHARD = 16_384  # sentences between two checkpoints: about a minute of a small teacher on two cores
_TOKENIZING = threading.RLock()


@dataclass(frozen=True)
class ExtractionSettings(Settings):
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
        prompt: put before each sentence for the teacher; its own pieces are never part of a word. An empty one stands
            for the teacher's default prompt, if it has one.
        language: code of the corpus's language, for those written without spaces; None cuts at spaces and punctuation.
        batch_size: sentences in one forward pass of the teacher.
    """

    max_vocabulary: Annotated[int, Limits(1)] = 150_000
    min_count: Annotated[int, Limits(1)] = 1
    occurrences: Annotated[int, Limits(1)] = 100
    cased: bool = False
    sentence_words: tuple[int, int] = (2, 40)
    enough: Annotated[int | None, Limits(1)] = None
    max_sentences: Annotated[int | None, Limits(1)] = None
    prompt: str = ""
    language: str | None = None
    batch_size: Annotated[int, Limits(1)] = 64


@dataclass(frozen=True)
class Extraction:
    """What one pass over the corpus left."""

    words: Sequence[str]  # most frequent first
    counts: npt.NDArray[np.int64]  # [words] occurrences in the usable sentences
    vectors: npt.NDArray[np.float32]  # [words, hidden size]; a zero row where the teacher saw no whole occurrence
    sentences: Sequence[str]  # the usable ones, in order of the corpus, or some of them
    # [sentences, teacher dimension], each of length 1; not needed to join languages
    teacher_vectors: npt.NDArray[np.float16] = field(default_factory=lambda: np.zeros((0, 0), np.float16))


def extract(
    teacher: SentenceTransformer,
    corpus: Corpus,
    work_dir: Path,
    settings: ExtractionSettings,
    *,
    show_progress_bar: bool = True,
) -> Extraction:
    """Run or resume the pass of `teacher` over `corpus`, keeping its state in `work_dir`."""
    settings = prompted(settings, teacher)
    with WorkFolder(work_dir) as work:
        corpus = spool(corpus, work)
        words, total = count_words(teacher, corpus, work, settings, show_progress_bar)
        row_by_word = {word: row for row, word in enumerate(words)}
        sums = np.zeros((len(words), int(teacher[0].get_embedding_dimension())), np.float32)
        used = np.zeros(len(words), np.int32)
        if "sums" in work:
            tensors = work.load("sums")
            sums, used = np.array(tensors["sums"]), np.array(tensors["used"])
        sentences: list[str] = []
        with Progress("teacher", total=total, unit="sentences", enabled=show_progress_bar) as progress:
            for shard, done in shards(corpus, work, settings, _SHARD):
                sentences.extend(shard)
                if done:
                    progress.advance(len(shard))
                    continue
                work.append("teacher", _encode_shard(teacher, shard, row_by_word, (sums, used), settings, progress))
                work.save("sums", {"sums": sums, "used": used})
        return Extraction(
            words=words,
            counts=work.array("counts"),
            vectors=np.divide(sums, np.maximum(used, 1)[:, None], dtype=np.float32),
            sentences=sentences,
            teacher_vectors=work.array("teacher"),
        )


def prompted(settings: ExtractionSettings, teacher: SentenceTransformer) -> ExtractionSettings:
    """Return `settings` with the teacher's default prompt where they name none."""
    default = (teacher.prompts or {}).get(teacher.default_prompt_name or "") or ""
    return replace(settings, prompt=settings.prompt or default)


def usable_sentences(corpus: Corpus, settings: ExtractionSettings) -> Iterator[str]:
    """Yield the sentences of `corpus` that `settings` takes, in order; the same at every call."""
    shortest, longest = settings.sentence_words
    n_usable = 0
    occurrences: Counter[str] = Counter()
    for text in read_texts(corpus):
        if n_usable == settings.max_sentences:
            return
        if len(text) > longest * 100:
            continue
        words = [word.text for word in _words(text, settings)]
        if not shortest <= len(words) <= longest:
            continue
        if settings.enough is not None:
            if all(occurrences[word] >= settings.enough for word in words):
                continue
            occurrences.update(words)
        n_usable += 1
        yield canonicalize(text)


def shards(
    corpus: Corpus, work: WorkFolder, settings: ExtractionSettings, size: int
) -> Iterator[tuple[list[str], bool]]:
    """Yield the usable sentences of a corpus, `size` at a time, and whether an earlier run has done them."""
    # What was appended and saved for a shard is committed when the next one is asked for.
    sentences = usable_sentences(work.texts("corpus", read_texts(corpus), str(corpus)), settings)
    for index, shard in enumerate(iter(lambda: list(islice(sentences, size)), [])):
        done = index < work.metadata.get("shards_done", 0)
        yield shard, done
        if not done:
            work.commit({"shards_done": index + 1})


def spool(corpus: Corpus, work: WorkFolder) -> Corpus:
    """Return the file of a corpus; an iterable is written into `work` once, which counts from the next commit on."""
    if is_path(corpus):
        return corpus
    texts = map(canonicalize, read_texts(corpus))
    if "corpus" not in work:
        work.save_texts("corpus", work.texts("corpus", texts, "the corpus"))
    elif iter(corpus) is not corpus:  # type: ignore[arg-type]  # an iterator cannot be checked: it is read only once
        work.check_texts("corpus", texts, "the corpus")
    return work.file("corpus")


def count_words(
    teacher: SentenceTransformer,
    corpus: Corpus,
    work: WorkFolder,
    settings: ExtractionSettings,
    show_progress_bar: bool,
) -> tuple[list[str], int]:
    """Return the words of a spooled `corpus`, most frequent first, and its usable sentences, counted once in `work`."""
    options = asdict(settings)
    del options["batch_size"]  # changes the speed, not the result
    work.bind_settings({"teacher": fingerprint(EncoderEmbedder(teacher))["stored"], **options})
    if "words" in work:
        return list(read_texts(work.file("words"))), work.metadata["sentences"]
    counter: Counter[str] = Counter()
    total = 0
    with Progress("counting words", unit="sentences", enabled=show_progress_bar) as progress:
        for sentence in usable_sentences(work.texts("corpus", read_texts(corpus), str(corpus)), settings):
            counter.update(word.text for word in _words(sentence, settings))
            total += 1
            progress.advance()
    if not total:
        raise CorpusError(
            f"the corpus has no usable sentence: none has {settings.sentence_words[0]} to "
            f"{settings.sentence_words[1]} words; give sentences of that length, one a row"
        )
    ranked = sorted(counter.items(), key=lambda item: (-item[1], item[0]))[: settings.max_vocabulary]
    frequent = [(word, count) for word, count in ranked if count >= settings.min_count]
    if not frequent:
        raise CorpusError(f"no word occurs {settings.min_count} times in the corpus; lower min_count")
    words = [word for word, _ in frequent]
    work.save_texts("words", words)
    work.append("counts", np.array([count for _, count in frequent], np.int64))
    work.commit({"sentences": total})
    return words, total


def _words(sentence: str, settings: ExtractionSettings) -> list[Word]:
    """Return the words of a sentence, in lower case unless case is kept."""
    words = word_finder(settings.language)(sentence)
    return words if settings.cased else [Word(lowercase(w.text), w.start, w.end) for w in words]


def _encode_shard(
    teacher: SentenceTransformer,
    shard: list[str],
    row_by_word: dict[str, int],
    sums: tuple[Vectors, npt.NDArray[np.int32]],
    settings: ExtractionSettings,
    progress: Progress,
) -> npt.NDArray[np.float16]:
    """Add the words of `shard` to the sums of their vectors and the counts of these; return the sentences' vectors."""
    order = sorted(range(len(shard)), key=lambda i: (len(shard[i]), i))  # equal lengths together: little padding
    batches = [order[i : i + settings.batch_size] for i in range(0, len(order), settings.batch_size)]
    vectors = np.zeros((len(shard), teacher.get_embedding_dimension()), np.float16)

    def read(rows: list[int]) -> tuple[npt.NDArray[np.float32], WordVectors]:
        texts = [shard[i] for i in rows]
        sentence_vectors, token_vectors, offsets = forward(teacher, texts, settings.prompt)
        words = [_words(text, settings) for text in texts]
        return sentence_vectors, word_vectors(texts, words, token_vectors, offsets, row_by_word)

    # on a CPU, one thread a batch is faster than several threads on one batch
    one_a_batch = one_thread() if teacher.device.type == "cpu" else nullcontext(1)
    with one_a_batch as threads, ThreadPoolExecutor(threads) as workers:
        for rows, (sentence_vectors, (word_rows, occurrence_vectors)) in zip(batches, workers.map(read, batches)):
            vectors[rows] = sentence_vectors
            _add_at_most(*sums, word_rows, occurrence_vectors, settings.occurrences)
            progress.advance(len(rows))
    return vectors


def forward(
    teacher: SentenceTransformer, texts: Sequence[str], prompt: str
) -> tuple[Vectors, Vectors, npt.NDArray[np.int64]]:
    """Return unit sentence vectors [B, d], last hidden states [B, L, d], and each piece's characters [B, L, 2]."""
    # The characters of padding, special tokens and the prompt are an empty or negative range.
    import torch

    with _TOKENIZING:  # a fast tokenizer refuses two threads at once
        features = teacher.preprocess(list(texts), prompt=prompt or None)
        encoded = teacher.tokenizer(
            [prompt + text for text in texts],
            padding=True,
            truncation=True,
            max_length=teacher.max_seq_length,
            return_offsets_mapping=True,
            return_tensors="np",
        )
    if encoded["input_ids"].shape != tuple(features["input_ids"].shape):
        raise InputError(
            "the teacher changes its texts before tokenising them (a chat template, perhaps), "
            "so its pieces cannot be matched to words; use a teacher without one"
        )
    with torch.inference_mode():
        output = teacher({k: v.to(teacher.device) if hasattr(v, "to") else v for k, v in features.items()})
    sentence_vectors = torch.nn.functional.normalize(output["sentence_embedding"].float(), dim=1)
    offsets = np.asarray(encoded["offset_mapping"]) - len(prompt)
    return sentence_vectors.cpu().numpy(), output["token_embeddings"].float().cpu().numpy(), offsets


def word_vectors(
    texts: Sequence[str],
    words: Sequence[Sequence[Word]],
    token_vectors: Vectors,
    offsets: npt.NDArray[np.int64],
    row_by_word: dict[str, int],
) -> WordVectors:
    """Return the vocabulary row [n] and the vector [n, d] of every whole word occurrence in the batch."""
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    occurrence_at = np.full(starts[-1], -1, np.int64)  # character of the batch -> word occurrence
    rows: list[int] = []
    for text_start, text_words, spans in zip(starts, words, offsets):
        seen_to = spans[:, 1].max()  # a truncated text ends here; a word cut in two does not count
        for word in text_words:
            row = row_by_word.get(word.text, -1)
            if row >= 0 and word.end <= seen_to:
                occurrence_at[text_start + word.start : text_start + word.end] = len(rows)
                rows.append(row)
    # A token belongs to the word of its last character: byte-level tokenizers count a leading space as part of it.
    batch, position = np.nonzero((offsets[..., 1] > offsets[..., 0]) & (offsets[..., 1] > 0))
    occurrence = occurrence_at[starts[batch] + offsets[batch, position, 1] - 1]
    inside = occurrence >= 0
    batch, position, occurrence = batch[inside], position[inside], occurrence[inside]
    sums = np.zeros((len(rows), token_vectors.shape[2]), np.float32)
    np.add.at(sums, occurrence, token_vectors[batch, position])
    pieces = np.bincount(occurrence, minlength=len(rows))
    has_pieces = pieces > 0
    means: Vectors = (sums[has_pieces] / pieces[has_pieces, None]).astype(np.float32)
    return np.array(rows, np.int64)[has_pieces], means


def _add_at_most(
    sums: Vectors, used: npt.NDArray[np.int32], rows: npt.NDArray[np.int64], vectors: Vectors, limit: int
) -> None:
    """Add each vector to its word's sum while the word has had fewer than `limit`."""
    order = np.argsort(rows, kind="stable")
    ranked = rows[order]
    rank = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)  # how many of the same word came before it
    selected = order[used[ranked] + rank < limit]
    np.add.at(sums, rows[selected], vectors[selected])
    np.add.at(used, rows[selected], 1)
