"""A teacher's forward pass, read twice: the sentence's vector, and one vector for every whole word in it.

The pieces of any fast tokenizer are matched to words by character spans, so that it does not matter how it marks the
beginning of a word. A word that truncation cuts in two does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pellucid.base import Vectors
from pellucid.errors import InputError
from pellucid.words import Word

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

WordVectors = tuple[npt.NDArray[np.int64], Vectors]
"""Vocabulary rows [n] and vectors [n, d] of the whole words in a batch."""

_TOKENIZING = Lock()


@contextmanager
def one_thread_a_batch(teacher: SentenceTransformer) -> Iterator[ThreadPoolExecutor]:
    """Yield workers for whole batches: on a CPU several batches side by side beat several threads on one batch."""
    import torch

    threads = torch.get_num_threads()
    on_cpu = teacher.device.type == "cpu"
    if on_cpu:
        torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads if on_cpu else 1) as workers:
            yield workers
    finally:
        torch.set_num_threads(threads)


def forward(
    teacher: SentenceTransformer, texts: Sequence[str], prompt: str
) -> tuple[Vectors, Vectors, npt.NDArray[np.int64]]:
    """Encode `texts` once.

    Returns:
        sentence vectors [B, d] of length 1, last hidden states [B, L, d], and each piece's character span in its text
        [B, L, 2] (empty or negative for padding, special tokens and the prompt).
    """
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
        out = teacher({k: v.to(teacher.device) if hasattr(v, "to") else v for k, v in features.items()})
    sentence_vectors = torch.nn.functional.normalize(out["sentence_embedding"].float(), dim=1)
    offsets = np.asarray(encoded["offset_mapping"]) - len(prompt)
    return sentence_vectors.cpu().numpy(), out["token_embeddings"].float().cpu().numpy(), offsets


def word_vectors(
    texts: Sequence[str],
    words: Sequence[Sequence[Word]],
    token_vectors: Vectors,
    offsets: npt.NDArray[np.int64],
    number_of: dict[str, int],
) -> WordVectors:
    """Return the vocabulary row [n] and the vector [n, d] of every whole word occurrence in the batch."""
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    occurrence_at = np.full(starts[-1], -1, np.int64)  # character of the batch -> word occurrence
    rows: list[int] = []
    for text_start, text_words, spans in zip(starts, words, offsets):
        seen_to = spans[:, 1].max()  # a truncated text ends here; a word cut in two does not count
        for word in text_words:
            row = number_of.get(word.text, -1)
            if row >= 0 and word.end <= seen_to:
                occurrence_at[text_start + word.start : text_start + word.end] = len(rows)
                rows.append(row)
    # A piece belongs to the word its last character stands in: byte-level tokenizers count a leading space in.
    batch, position = np.nonzero((offsets[..., 1] > offsets[..., 0]) & (offsets[..., 1] > 0))
    occurrence = occurrence_at[starts[batch] + offsets[batch, position, 1] - 1]
    inside = occurrence >= 0
    batch, position, occurrence = batch[inside], position[inside], occurrence[inside]
    sums = np.zeros((len(rows), token_vectors.shape[2]), np.float32)
    np.add.at(sums, occurrence, token_vectors[batch, position])
    pieces = np.bincount(occurrence, minlength=len(rows))
    whole = pieces > 0
    means: Vectors = (sums[whole] / pieces[whole, None]).astype(np.float32)
    return np.array(rows, np.int64)[whole], means
