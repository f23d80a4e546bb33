"""A static model on disk, as sentence-transformers and model2vec open it; word2vec and GloVe text files.

Those two know token ids and rows, not our rule for words out of the vocabulary (exact, lower case, prefix). So the
rule is applied when the folder is written: every string it finds a row for gets a token id of its own, and `mapping`
sends the id to the row. Other strings stay unknown there; here they are found by the rule.

Rows keep the vocabulary's order, with one zero row at the end for what counts for nothing, so that the table on disk
is the table in memory. An int4 table, and a vocabulary that cuts scripts without spaces, are not for them: such a
folder has no tokenizer of theirs, and is not marked as one of model2vec.

Word vectors as text, one word a line: the form of word2vec, GloVe, fastText (.vec) and the SWE authors' files.

A first line of two whole numbers ("count dimension") is optional. Words may hold spaces, as some of GloVe's do: the
last `dimension` fields of a line are the vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordLevel
from tokenizers.normalizers import NFC, Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer

from pellucid.errors import CorpusError, InputError, ModelFolderError, warn
from pellucid.persistence.store import (
    is_sound,
    read_regular,
    read_tensors,
    write_json,
    write_tensors,
    writing,
)
from pellucid.persistence.untrusted import MAX_TOKENIZER, StoredTokenizer
from pellucid.static.precision import MAX_ABS_VALUE, MAX_NAN_CHECK_BYTES, PackedRows, StoredTable, convert, pack
from pellucid.text.lines import read_lines
from pellucid.text.unicode import well_formed
from pellucid.text.words import Vocabulary, split_words

STOCK_CONFIG = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "max_length": None}
"""What model2vec reads from the top of `config.json`; `max_length` null keeps it from cutting long texts."""

_STOCK_DTYPES = ("float32", "float16", "int8")
_MAX_WORDS_BYTES = 1 << 30
_TENSORS = "model.safetensors"
SPELLING = "spelling.safetensors"
"""The file of the weights of n-grams, of a model with spelling."""

_DIMENSION = "dimension"  # what the metadata of packed vectors call it
_UNKNOWN = "[UNK]"  # the pre-tokenizer cuts the brackets off, so no text holds this word
_MODULES = [
    {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
    {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def is_stock_vocabulary(vocabulary: Vocabulary, dtype: str) -> bool:
    """Whether other libraries can open a model of this vocabulary, saved as `dtype`."""
    return dtype != "int4" and not vocabulary.cuts_scripts


def write_static(folder: Path, table: StoredTable, *, extra_words: Iterable[str] = ()) -> None:
    """Write the tensors, the words and the tokenizers of a static model into `folder`."""
    # `extra_words` are resolved for readers that do not know our rule for unknown words.
    check_writable(table.vocabulary.words)
    vectors, scales = convert(table.vectors, table.scales, table.dtype)
    write_vocabulary(folder, table.vocabulary)
    if table.dtype == "int4" and scales is not None:
        metadata = {_DIMENSION: str(vectors.shape[1])}
        write_tensors(folder / _TENSORS, {"packed": pack(vectors), "scales": scales}, metadata)
    else:
        _write_stock(folder, table._replace(vectors=vectors, scales=scales), extra_words)


def _write_stock(folder: Path, table: StoredTable, extra_words: Iterable[str]) -> None:
    """Write the tensors and the tokenizer of a table that is not int4, in the form that other libraries open."""
    words, (vectors, scales) = len(table.vocabulary), table[1:3]
    tokens, mapping = _token_ids(table.vocabulary, extra_words)
    vectors = np.concatenate([vectors, np.zeros((1, vectors.shape[1]), vectors.dtype)])
    tensors: dict[str, npt.NDArray[Any]] = {"embeddings": vectors}
    if not np.array_equal(mapping, np.arange(len(vectors))):
        tensors["mapping"] = mapping
    if scales is not None:
        tensors["weights"] = np.append(scales, np.float32(0))[np.r_[: words + 1, mapping[words + 1 :]]]
    elif vectors.dtype == np.float16:  # with weights sentence-transformers computes in float32; without, NaN for ""
        tensors["weights"] = np.ones(len(mapping), np.float32)
    write_tensors(folder / _TENSORS, tensors)
    if is_stock_vocabulary(table.vocabulary, table.dtype):
        tokenizer = Tokenizer(WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=tokens[words]))
        tokenizer.pre_tokenizer = BertPreTokenizer()
        tokenizer.normalizer = normalizers.Sequence([NFC(), *[Lowercase()] * (not table.vocabulary.cased)])
        _write_tokenizer(folder / "tokenizer.json", tokenizer)
        write_json(folder / "modules.json", _MODULES)


def write_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    """Write `words.txt`, one word a line, and the tokenizer that finds prefixes, if there is one."""
    check_writable(vocabulary.words)
    with writing(folder / "words.txt", max_bytes=_MAX_WORDS_BYTES) as tmp_path:
        tmp_path.write_bytes("".join(f"{word}\n" for word in vocabulary.words).encode("utf-8"))
    if vocabulary.subwords is not None:
        _write_tokenizer(folder / "subwords.json", vocabulary.subwords)


def _write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Write a tokenizer without padding and truncation, which would count as words."""
    described = json.loads(tokenizer.to_str())
    described["padding"] = described["truncation"] = None
    with writing(path, max_bytes=MAX_TOKENIZER) as tmp_path:
        tmp_path.write_text(json.dumps(described, ensure_ascii=False), encoding="utf-8")


def check_writable(words: Sequence[str]) -> None:
    """Check that each word can be written as one line of UTF-8."""
    joined = "".join(words)
    if "\n" in joined or "\r" in joined:
        broken = next(word for word in words if "\n" in word or "\r" in word)
        raise InputError(f"the word {broken!r} holds a line break; words.txt has one word a line. Leave the word out")
    try:
        joined.encode("utf-8")
    except UnicodeEncodeError as error:
        broken = next(word for word in words if word != well_formed(word))
        raise InputError(f"the word {broken!r} holds a lone surrogate; UTF-8 has none. Leave it out") from error


def _token_ids(vocabulary: Vocabulary, extra_words: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the token strings in id order, and the row each is sent to; ids below len(vocabulary) are the rows."""
    nothing = len(vocabulary)
    unknown = _UNKNOWN
    while unknown in vocabulary:
        unknown = f"[{unknown}]"
    tokens = [*vocabulary.words, unknown]
    # Punctuation is dropped from texts before words are looked up: its ids must add nothing.
    rows = [nothing if len(w) == 1 and not split_words(w) else row for row, w in enumerate(vocabulary.words)]
    rows.append(nothing)
    forms = [(row, form) for row, form in enumerate(vocabulary.forms) if form != vocabulary.words[row]]
    tokens += [form for _, form in forms]
    rows += [row for row, _ in forms]
    seen = {unknown}
    for spelling, word in _likely_spellings(vocabulary, extra_words):
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
    for word in chain(vocabulary.words, extra_words):
        yield from ((spelling, spelling) for spelling in (word, word.lower(), word.capitalize(), word.upper()))


def read_static(folder: Path) -> StoredTable:
    """Return what `write_static` wrote, mapped; it is not trusted."""
    path, vocabulary = folder / _TENSORS, read_vocabulary(folder)
    words = len(vocabulary)
    tensors, metadata = read_tensors(path)
    if "packed" in tensors:
        return StoredTable(vocabulary, *_packed(path, words, tensors, metadata), "int4")
    vectors = tensors.get("embeddings")
    if vectors is None or vectors.ndim != 2 or str(vectors.dtype) not in _STOCK_DTYPES or not vectors.shape[1]:
        raise ModelFolderError(f"{path} holds no table 'embeddings' [rows, dimension] of {', '.join(_STOCK_DTYPES)}")
    if vectors.dtype != np.int8 and vectors.nbytes <= MAX_NAN_CHECK_BYTES and not is_sound(vectors, MAX_ABS_VALUE):
        raise ModelFolderError(
            f"{path} holds vectors that are NaN or infinite, or beyond {MAX_ABS_VALUE:g}; make or download the model "
            "again"
        )
    if len(vectors) != words + 1:
        raise _unfit(path, words, f"{len(vectors)} rows, expected one more than words")
    weights, mapping = tensors.get("weights"), tensors.get("mapping")
    ids = len(vectors) if mapping is None else mapping.size
    if mapping is not None:
        if mapping.ndim != 1 or mapping.dtype.kind != "i" or ids <= words:
            raise ModelFolderError(f"{path}: 'mapping' must be integers, more than the {words} words")
        if mapping.min() < 0 or mapping.max() >= len(vectors):
            raise ModelFolderError(f"{path}: 'mapping' points outside the {len(vectors)} rows")
    if weights is not None:
        _check_scales(weights, path, "weights", ids)
    scales = weights[:words].copy() if weights is not None and vectors.dtype == np.int8 else None
    return StoredTable(vocabulary, vectors[:words], scales, str(vectors.dtype))


def _packed(
    path: Path, words: int, tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> tuple[PackedRows, npt.NDArray[np.float32]]:
    """Return the table in 4 bits among the tensors of `path`, and its scales."""
    packed, scales, dimension = tensors["packed"], tensors.get("scales"), metadata.get(_DIMENSION, "")
    if packed.dtype != np.uint8 or packed.ndim != 2 or not packed.shape[1]:
        raise ModelFolderError(
            f"{path}: 'packed' is {packed.dtype} {list(packed.shape)}, expected uint8 [words, bytes]"
        )
    if len(packed) != words:
        raise _unfit(path, words, f"{len(packed)} rows, expected as many as words")
    possible = (2 * packed.shape[1] - 1, 2 * packed.shape[1])
    if dimension not in map(str, possible):
        raise ModelFolderError(
            f"{path}: the dimension is {dimension!r:.40}, expected one of {possible} in its metadata"
        )
    if scales is None:
        raise ModelFolderError(f"{path} holds 'packed' vectors without 'scales'")
    _check_scales(scales, path, "scales", words)
    return PackedRows(packed, int(dimension)), scales.copy()


def _unfit(path: Path, words: int, contents: str) -> ModelFolderError:
    """Return the error for words and tensors that are not of one model."""
    return ModelFolderError(
        f"{path.parent}: words.txt has {words} words, {path.name} {contents}; the files are of different models"
    )


def read_vocabulary(folder: Path) -> Vocabulary:
    """Read what `write_vocabulary` wrote; the tokenizer is not parsed until it is needed."""
    words, path = _read_words(folder / "words.txt"), folder / "subwords.json"
    tokenizer = None
    if path.exists():  # read now, since the folder may be deleted; parsed when it is needed
        tokenizer = StoredTokenizer(read_regular(path, MAX_TOKENIZER), path)
    return Vocabulary(words, tokenizer)


def read_spelling(folder: Path) -> npt.NDArray[np.uint8] | None:
    """Return the weights of n-grams of a model with spelling, None without."""
    path = folder / SPELLING
    if not path.exists():
        return None
    return read_tensors(path)[0].get("weights", np.zeros(0)).copy()  # which `StaticEmbedder` checks


def _read_words(path: Path) -> list[str]:
    """Return the lines of `words.txt`."""
    try:
        text = read_regular(path, _MAX_WORDS_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{path} is not UTF-8: {error}") from error
    if text and not text.endswith("\n"):
        raise ModelFolderError(f"{path} does not end with a line end; it is truncated")
    return text.replace("\r\n", "\n").split("\n")[:-1]


def _check_scales(scales: npt.NDArray[Any], path: Path, name: str, count: int) -> None:
    """Check that scales, or weights of token ids, are `count` numbers from 0 on."""
    if scales.shape != (count,) or scales.dtype != np.float32:
        actual = f"{scales.dtype} {list(scales.shape)}"
        raise ModelFolderError(f"{path}: {name!r} is {actual}, expected float32 [{count}]")
    if not is_sound(scales, MAX_ABS_VALUE / 127) or scales.min(initial=0) < 0:
        raise ModelFolderError(
            f"{path}: {name!r} holds negative or non-finite numbers, or such beyond {MAX_ABS_VALUE / 127:.0e}; it was "
            "tampered with"
        )


def not_finite(text: str) -> InputError:
    """Return the error for a text whose words' vectors add up to no number."""
    return InputError(
        f"the vectors of the words of {text!r:.60} are NaN or infinite, or too large to add up. The model's table is "
        "broken: run `pellucid doctor -m` on its folder, and make or download it again"
    )


_MAX_DIMENSIONS = 1 << 16


def read_text_vectors(path: Path) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Read word vectors as text, plain or compressed: the words, and float32 [words, dimension]."""
    # A word that is blank or occurs again is skipped with a warning: of the latter the first vector counts.
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    dimension, promised, skipped, first_skipped = 0, -1, 0, ""
    try:
        for number, line in enumerate(read_lines(path), 1):
            if number == 1:
                fields = line.split()
                is_header = len(fields) == 2 and all(field.isdecimal() and len(field) < 16 for field in fields)
                promised, dimension = map(int, fields) if is_header else (-1, len(fields) - (not line[:1].isspace()))
                if not 1 <= dimension <= _MAX_DIMENSIONS:
                    break
                if is_header:
                    continue
            fields = line.rsplit(None, dimension)  # a word may hold spaces
            try:
                word, *numbers = fields if len(fields) > dimension or not line[:1].isspace() else ["", *fields]
                with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused
                    vector = np.array(list(map(float, numbers)), np.float32)
            except ValueError:
                vector = np.zeros(0, np.float32)
            if len(vector) != dimension or not np.isfinite(vector).all():
                expected = f"expected a word and {dimension} finite numbers"
                raise ModelFolderError(f"{path}, line {number}: {expected}, got {line[:60]!r}")
            if not word or word.isspace() or word in vectors:
                skipped += 1
                first_skipped = first_skipped or f"{number} ({word!r})"
            else:
                vectors[word] = vector
    except CorpusError as error:
        raise ModelFolderError(str(error)) from error
    if vectors and promised not in (-1, len(vectors) + skipped):
        raise ModelFolderError(
            f"{path}: line 1 says {promised} words, the file holds {len(vectors) + skipped}; is it truncated?"
        )
    if not vectors:
        raise ModelFolderError(
            f"{path} holds no word vectors: line 1 must be 'count dimension', or a word and its numbers. "
            "A model is expected here; give a file of texts as the input"
        )
    if skipped:
        warn(f"{path}: {skipped} lines repeat a word or have a blank one, the first is line {first_skipped}; left out")
    return list(vectors), np.array(list(vectors.values()))
