"""A static model as the stock folder that sentence-transformers and model2vec open without us.

Those two know token ids and rows, not our rule for words out of the vocabulary (exact, lower case, prefix). So the
rule is applied when the folder is written: every string it finds a row for gets a token id of its own, and `mapping`
sends the id to the row. Strings nobody thought of stay unknown there, and are found here as ever.

A vocabulary that cuts scripts without spaces is written as a WordPiece tokenizer, whose rule, the longest known piece
from the left, is ours: its words get a second id for where they do not begin a stretch of such script, and a character
that is only part of words gets ids that count for nothing, since one unknown piece makes a whole stretch unknown there.
Phrases have ids that only text with "▁" itself reaches: no tokenizer of theirs joins words.

Rows keep the vocabulary's order, with one zero row at the end for what counts for nothing, so that the table on disk
is the table in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel, WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.errors import InputError, ModelFolderError
from pellucid.store import is_sound, read_json, read_regular, read_tensors, write_json, write_tensors, writing
from pellucid.untrusted import MAX_TOKENIZER, parse_tokenizer
from pellucid.words import UNSPACED, Vocabulary, is_phrase, split_words, unspaced_run, well_formed

DTYPES = ("float32", "float16", "int8")
STOCK_CONFIG = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "max_length": None}
"""What model2vec reads from the top of `config.json`; `max_length` null keeps it from cutting long texts."""

LARGEST = 1e30
"""No number of a table is larger: the sum of any text's vectors stays within float32."""

_BLOCK = 8192  # rows converted at a time
_MAX_WORDS_BYTES = 1 << 30
_SEARCHED_BYTES = 1 << 26  # a float table up to this size is searched for NaN; a larger one would be read whole
_LONGEST_PIECE = 200  # characters; WordPiece takes the square of it, and calls what is longer unknown
_UNKNOWN = "[UNK]"  # the pre-tokenizer cuts the brackets off, so no text holds this word
_MODULES = [
    {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
    {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
]


class Table(NamedTuple):
    """A vocabulary and its vectors as they lie on disk; `scales` belongs to int8 `vectors` alone."""

    vocabulary: Vocabulary
    vectors: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None


def write_static(folder: Path, table: Table, *, dtype: str | None = None, extra_words: Iterable[str] = ()) -> None:
    """Write the tensors, the words and the tokenizers of a static model into `folder`.

    Args:
        folder: an existing folder.
        table: the model; its vectors may be memory-mapped.
        dtype: "float32", "float16" or "int8" (one scale a row); None keeps what the table has.
        extra_words: strings to resolve for readers that do not know our rule for unknown words.

    Raises:
        InputError: an unknown dtype, a word that cannot be written as one line, or values the dtype cannot hold.
    """
    words = table.vocabulary.words
    check_writable(words)
    vectors, scales = convert(table, dtype or str(table.vectors.dtype))
    tokens, mapping = _token_ids(table.vocabulary, extra_words)
    inside = _inside_mark(tokens) if table.vocabulary.cuts_scripts else None
    if inside is not None:
        tokens, mapping = _with_pieces(table.vocabulary, tokens, mapping, inside)
    tensors: dict[str, npt.NDArray[Any]] = {"embeddings": vectors}
    if not np.array_equal(mapping, np.arange(len(vectors))):
        tensors["mapping"] = mapping
    if scales is not None:
        tensors["weights"] = np.concatenate([scales, scales[mapping[len(scales) :]]])
    elif vectors.dtype == np.float16:  # with weights sentence-transformers computes in float32; without, NaN for ""
        tensors["weights"] = np.ones(len(mapping), np.float32)
    write_tensors(folder / "model.safetensors", tensors)
    with writing(folder / "words.txt") as aside:
        aside.write_bytes("".join(f"{word}\n" for word in words).encode("utf-8"))
    _write_tokenizer(folder / "tokenizer.json", _word_tokenizer(tokens, len(words), not table.vocabulary.cased, inside))
    if table.vocabulary.subwords is not None:
        _write_tokenizer(folder / "subwords.json", table.vocabulary.subwords)
    write_json(folder / "modules.json", _MODULES)


def _word_tokenizer(tokens: list[str], unknown: int, lower: bool, inside: str | None) -> Tokenizer:
    """Return the tokenizer whose ids are places in `tokens`; the token at `unknown` stands for all others."""
    ids = {token: i for i, token in enumerate(tokens)}
    if inside is None:
        tokenizer = Tokenizer(WordLevel(ids, unk_token=tokens[unknown]))
        tokenizer.pre_tokenizer = BertPreTokenizer()
    else:
        unk, longest = tokens[unknown], max(_LONGEST_PIECE, *map(len, tokens))
        pieces = WordPiece(ids, unk_token=unk, max_input_chars_per_word=longest, continuing_subword_prefix=inside)
        tokenizer = Tokenizer(pieces)
        known = "".join(sorted({c for token in tokens if unspaced_run.fullmatch(token) for c in token}))
        others = UNSPACED.encode().decode("unicode_escape")
        runs = pre_tokenizers.Split(Regex(f"[{known}]+|[{others}]"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([BertPreTokenizer(), runs])
    if lower:
        tokenizer.normalizer = Lowercase()
    return tokenizer


def _inside_mark(words: Sequence[str]) -> str:
    """Return what a piece that does not begin its stretch starts with: BERT's mark, or more of it."""
    mark = "##"
    while any(word.startswith(mark) for word in words):
        mark += "#"
    return mark


def _with_pieces(
    vocabulary: Vocabulary, tokens: list[str], mapping: npt.NDArray[np.int64], inside: str
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the tokens and their rows with those that cutting unspaced script needs."""
    runs = [(row, word) for row, word in enumerate(vocabulary.words) if unspaced_run.fullmatch(word)]
    rows = {inside + word: row for row, word in runs}
    for character in sorted({character for _, word in runs for character in word}):
        for token in (character, inside + character):
            if token not in vocabulary:
                rows.setdefault(token, len(vocabulary))
    for token in tokens:
        rows.pop(token, None)
    return [*tokens, *rows], np.concatenate([mapping, np.fromiter(rows.values(), np.int64, len(rows))])


def _write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Write a tokenizer without padding and truncation, which would count for words that are not there."""
    described = json.loads(tokenizer.to_str())
    described["padding"] = described["truncation"] = None
    with writing(path) as aside:
        aside.write_text(json.dumps(described, ensure_ascii=False), encoding="utf-8")


def check_writable(words: Sequence[str]) -> None:
    """Refuse words that one line of UTF-8 cannot hold.

    Raises:
        InputError: a word holds a line break or a lone surrogate.
    """
    joined = "".join(words)
    if "\n" in joined or "\r" in joined:
        broken = next(word for word in words if "\n" in word or "\r" in word)
        raise InputError(f"the word {broken!r} holds a line break; words.txt has one word a line. Leave the word out")
    try:
        joined.encode("utf-8")
    except UnicodeEncodeError as error:
        broken = next(word for word in words if word != well_formed(word))
        raise InputError(f"the word {broken!r} holds a lone surrogate; UTF-8 has none. Leave it out") from error


def convert(table: Table, dtype: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
    """Return the vectors as `dtype` with a zero row appended, and for int8 their scales (also one more).

    Raises:
        InputError: an unknown dtype, vectors that are not finite, or too large for float16.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; known are {', '.join(DTYPES)}")
    vectors, scales = table.vectors, table.scales
    rows, dimension = vectors.shape
    converted = np.zeros((rows + 1, dimension), dtype)
    new_scales = np.zeros(rows + 1, np.float32) if dtype == "int8" else None
    for start in range(0, rows, _BLOCK):
        part = slice(start, min(start + _BLOCK, rows))
        if vectors.dtype == np.int8 and new_scales is not None and scales is not None:
            converted[part], new_scales[part] = vectors[part], scales[part]  # rounding twice would lose precision
            continue
        block = vectors[part].astype(np.float32)
        if scales is not None:
            block *= scales[part][:, None]
        if new_scales is not None:
            converted[part], new_scales[part] = quantize(block)
        else:
            with np.errstate(over="ignore"):
                converted[part] = block
        if not (is_sound(block, LARGEST) and is_sound(converted[part])):
            raise InputError(
                f"the vectors of words {start} to {part.stop} are not finite as {dtype}, or beyond {LARGEST:g}; "
                "nothing is saved"
            )
    return converted, new_scales


def quantize(block: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Return `block` as int8 with one scale a row, so that row = scale * integers; a zero row gets scale 0."""
    scales = np.abs(block).max(axis=1, initial=0) / np.float32(127)
    known = np.isfinite(scales) & (scales > 0)
    steps = np.divide(block, scales[:, None], out=np.zeros_like(block), where=known[:, None])
    return np.clip(np.rint(steps), -127, 127).astype(np.int8), scales  # a scale near 0 is itself rounded


def _token_ids(vocabulary: Vocabulary, extra_words: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the token strings in id order and the row each is sent to; ids below len(vocabulary) are the rows."""
    nothing = len(vocabulary)
    unknown = _UNKNOWN
    while unknown in vocabulary:
        unknown = f"[{unknown}]"
    tokens = [*vocabulary.words, unknown]
    # Punctuation is dropped from texts before words are looked up: its ids must add nothing.
    rows = [nothing if len(w) == 1 and not split_words(w) else row for row, w in enumerate(vocabulary.words)]
    rows.append(nothing)
    seen = {unknown}
    for spelling, word in _likely_spellings(vocabulary, extra_words):
        if vocabulary.cuts_scripts and unspaced_run.search(spelling):
            continue  # several words
        if spelling not in vocabulary and spelling not in seen and spelling == well_formed(spelling):
            row = vocabulary.row(word)
            if row >= 0:
                seen.add(spelling)
                tokens.append(spelling)
                rows.append(row)
    return tokens, np.array(rows, np.int64)


def _likely_spellings(vocabulary: Vocabulary, extra_words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield strings that texts are likely to hold, as the stock normaliser leaves them, and the word each is."""
    if not vocabulary.cased:
        yield from ((word.lower(), word) for word in extra_words)
        # That normaliser lowers letter by letter; Python's lower() knows the other sigma at the end of a word.
        yield from ((f"{word[:-1]}\u03c3", word) for word in vocabulary.words if word.endswith("\u03c2"))
        return
    for word in chain((word for word in vocabulary.words if not is_phrase(word)), extra_words):
        yield from ((spelling, spelling) for spelling in (word, word.lower(), word.capitalize(), word.upper()))


def written_out(folder: Path) -> list[str]:
    """Return the strings beside the vocabulary that `write_static` looked up for a folder; none if it is gone."""
    try:
        described = read_json(folder / "tokenizer.json", max_bytes=MAX_TOKENIZER)
        words = len(_read_words(folder / "words.txt"))
        return [token for token, number in described["model"]["vocab"].items() if number > words and token[:2] != "##"]
    except (ModelFolderError, KeyError, TypeError, AttributeError):
        return []


def read_static(folder: Path) -> Table:
    """Open the folder that `write_static` wrote; the vectors are mapped, the teacher's tokenizer waits until needed.

    Raises:
        ModelFolderError: a file is missing, broken, or does not fit the others.
    """
    path = folder / "model.safetensors"
    tensors, _ = read_tensors(path)
    words = _read_words(folder / "words.txt")
    embeddings = tensors.get("embeddings")
    if embeddings is None or embeddings.ndim != 2 or str(embeddings.dtype) not in DTYPES or not embeddings.shape[1]:
        raise ModelFolderError(f"{path} holds no table 'embeddings' [rows, dimension] of {', '.join(DTYPES)}")
    if len(embeddings) != len(words) + 1:
        raise ModelFolderError(
            f"{folder}: words.txt has {len(words)} words, model.safetensors {len(embeddings)} rows, expected one more "
            "than words; the files are of different models"
        )
    weights = _checked_weights(tensors, path, len(words))
    if embeddings.dtype != np.int8 and embeddings.nbytes <= _SEARCHED_BYTES and not is_sound(embeddings, LARGEST):
        raise ModelFolderError(
            f"{path} holds vectors that are NaN or infinite, or beyond {LARGEST:g}; make or download the model again"
        )
    subwords = folder / "subwords.json"
    try:
        vocabulary = Vocabulary(words, _later(subwords) if subwords.exists() else None)
    except InputError as error:
        raise ModelFolderError(f"{folder / 'words.txt'}: {error}") from error
    scales = weights[: len(words)] if weights is not None and embeddings.dtype == np.int8 else None
    return Table(vocabulary, embeddings[: len(words)], scales)


def _read_words(path: Path) -> list[str]:
    """Return the lines of `words.txt`."""
    try:
        text = read_regular(path, _MAX_WORDS_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{path} is not UTF-8: {error}") from error
    if text and not text.endswith("\n"):
        raise ModelFolderError(f"{path} does not end with a line end; it is truncated")
    return text.replace("\r\n", "\n").split("\n")[:-1]


def _checked_weights(tensors: dict[str, npt.NDArray[Any]], path: Path, words: int) -> npt.NDArray[np.float32] | None:
    """Return the weights of the token ids after checking them and the mapping; an int8 table must have them."""
    weights, mapping, embeddings = tensors.get("weights"), tensors.get("mapping"), tensors["embeddings"]
    ids = len(embeddings) if mapping is None else mapping.size
    if mapping is not None:
        if mapping.ndim != 1 or mapping.dtype.kind != "i" or ids <= words:
            raise ModelFolderError(f"{path}: 'mapping' must be integers, more than the {words} words")
        if mapping.min() < 0 or mapping.max() >= len(embeddings):
            raise ModelFolderError(f"{path}: 'mapping' points outside the {len(embeddings)} rows")
    if weights is None and embeddings.dtype == np.int8:
        raise ModelFolderError(f"{path} holds int8 vectors without 'weights', their scales")
    if weights is not None:
        if weights.shape != (ids,) or weights.dtype != np.float32:
            found = f"{weights.dtype} {list(weights.shape)}"
            raise ModelFolderError(f"{path}: 'weights' is {found}, expected float32 [{ids}]")
        if not is_sound(weights, LARGEST / 127) or weights.min() < 0:
            raise ModelFolderError(
                f"{path}: 'weights' holds negative or non-finite numbers, or such beyond {LARGEST / 127:.0e}; it was "
                "tampered with"
            )
    return weights


def is_known_sound(vectors: npt.NDArray[Any], scales: npt.NDArray[np.float32] | None) -> bool:
    """Whether the numbers of a table are finite and can be added up; False where one of float32 is too large to say."""
    if scales is not None:
        return is_sound(scales, LARGEST / 127)
    searched = vectors.nbytes <= _SEARCHED_BYTES or vectors.dtype == np.float16
    return searched and is_sound(vectors, LARGEST)


def _later(path: Path) -> Callable[[], Tokenizer]:
    """Read the teacher's tokenizer, whose folder may be gone when it is needed, and leave the parsing for then."""
    return partial(parse_tokenizer, read_regular(path, MAX_TOKENIZER), path)


def not_finite(text: str) -> InputError:
    """Return the error for a text whose words' vectors add up to no number."""
    return InputError(
        f"the vectors of the words of {text!r:.60} are NaN or infinite, or too large to add up. The model's table is "
        "broken: see what `pellucid verify` says of its folder, and make or download it again"
    )
