"""Candidates for anchors: which texts of a corpus a person can read, and their vectors on disk.

Farthest point sampling looks for what is unlike everything else, and in a raw corpus that is garbage: the anchors
published with the paper hold a bare shop link, Russian beside a code snippet, mojibake and lines broken in the middle.
So every candidate must be one readable sentence. Each rule of `CandidateSettings` can be switched off.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pellucid.corpus import Corpus, is_path, read_texts
from pellucid.errors import CorpusError, InputError, missing_extra
from pellucid.progress import Progress
from pellucid.store import read_json, write_json, writing
from pellucid.words import well_formed

_SHARD = 16_384  # texts between two checkpoints
_NOTHING_DONE = {"encoded": 0, "zeros": 0, "dimension": None}
_PROBES = 8  # texts encoded again when a run is resumed, to see that it is the same encoder
_ROUNDING = 0.02  # what an encoder's vectors may differ by from run to run, in bfloat16 for instance
_LONGEST = 2_000  # characters; a longer text is not looked at closely

# Beyond newlines and other control characters: invisible marks, text direction, the replacement character.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffc\ufffd]")
_LINK = re.compile(
    r"https?:|www\.|\w@\w|\b[\w-]+\.(?:com|org|net|edu|gov|info|io|co|uk|de|fr|ru|html?|php|aspx?|pdf|jpe?g|png)\b"
    r"|\b\d{3}[-. ]\d{4}\b",
    re.I,
)
_MARKUP = re.compile(
    r"[<>{}\[\]|\\^~_=#*@`+]|&\w+;|--|\.\.|//|!!|\?\?|\s[,.;:!?)]|\(\s|\w[.!?][A-Z][a-z]|  "
    r"|\s\"\s|[\w,.]\"\w|\w'\w{3,}'|\d - \w|^\w+: |\b(\w+ \w+) \1\b"
)
_CUT_OFF = re.compile(r"(?:\b\w|\b(?:Mr|Mrs|Ms|Dr|St|Prof|Gen|Col|Lt|Capt|Rev|Hon|vs|No|Fig))\.$")
_CLOSING = "\"'”\u2019»)"
_OPENING = "\"'“\u2018«(¿¡"
_ENDS = (".", "?", "!", "。", "\uff01", "\uff1f", "؟", "।", "…")  # the escapes: full-width marks
_PAIRS = (("(", ")"), ("“", "”"), ("«", "»"))


@dataclass(frozen=True)
class CandidateSettings:
    """Which texts may become anchors.

    Attributes:
        language: ISO 639-1 code of the language a text must be in, as py3langid sees it; None takes any.
        words: fewest and most words, counted at spaces; None takes any number, for languages without spaces.
        links: whether texts with a web address, e-mail address or phone number stay.
        mojibake: whether texts stay that were decoded with the wrong table (ftfy's badness).
        markup: whether texts stay with tags, entities, code characters, runs of punctuation, loose punctuation, a
            speaker or heading before a colon, doubled words, control characters or line breaks.
        fragments: whether texts stay that do not look like a sentence: a capital, digit or quotation mark first,
            `.`, `?` or `!` last (a closing quotation mark may follow, an abbreviation may not stand before), brackets
            and quotation marks in pairs, mostly letters and mostly lower case.
        near_duplicates: None keeps them. Otherwise of texts that are equal but for case, punctuation and digits the
            first stays, and no anchor has a greater cosine than this to another.
        max_candidates: at most this many, the first that pass; shuffle an ordered corpus.
    """

    language: str | None = "en"
    words: tuple[int, int] | None = (3, 60)
    links: bool = False
    mojibake: bool = False
    markup: bool = False
    fragments: bool = False
    near_duplicates: float | None = 0.9
    max_candidates: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a value is out of range.
        """
        if self.words is not None and not 1 <= self.words[0] <= self.words[1]:
            raise InputError(f"words is {self.words}; give the fewest and the most, such as (3, 60), or None")
        if self.near_duplicates is not None and not 0 < self.near_duplicates <= 1:
            raise InputError(f"near_duplicates is {self.near_duplicates}; give a cosine in (0, 1], or None")
        if self.max_candidates is not None and self.max_candidates < 1:
            raise InputError(f"max_candidates is {self.max_candidates}; give a number from 1 up, or None")


@dataclass
class Filtered:
    """How many texts were read, and how many each rule dropped; a text counts for the first rule that drops it.

    Attributes:
        read: texts read.
        dropped: texts by rule, in the order of the rules.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """How many texts are left."""
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        """Say it in one line."""
        rules = ", ".join(f"{count:,} {rule}" for rule, count in self.dropped.items() if count)
        return f"{self.kept:,} of {self.read:,} texts left" + (f" (dropped: {rules})" if rules else "")


_Rule = Callable[[str], bool]


def candidate_texts(
    corpus: Corpus, settings: CandidateSettings | None = None, filtered: Filtered | None = None
) -> Iterator[str]:
    """Yield the texts of `corpus` that may become anchors, stripped of outer spaces, each once.

    Args:
        corpus: a path or an iterable of texts, see `corpus.read_texts`.
        settings: the rules; None for all of them.
        filtered: counted up on the way.

    Raises:
        CorpusError: the corpus cannot be read.
        InputError: py3langid does not know the language.
        MissingExtraError: ftfy or py3langid is not installed and its rule is on.
    """
    filtered = Filtered() if filtered is None else filtered
    settings = CandidateSettings() if settings is None else settings
    rules = _rules(settings)
    filtered.dropped.update({rule: filtered.dropped.get(rule, 0) for rule in rules})
    kept = 0
    for text in read_texts(corpus):
        text = well_formed(text).strip()
        filtered.read += 1
        broken = next((rule for rule, breaks in rules.items() if breaks(text)), None)
        if broken is not None:
            filtered.dropped[broken] += 1
            continue
        yield text
        kept += 1
        if kept == settings.max_candidates:
            return


def _rules(settings: CandidateSettings) -> dict[str, _Rule]:
    """Return what drops a text, by name; the cheap ones first, the language last."""
    rules: dict[str, _Rule] = {"empty": lambda text: not text, "too long": lambda text: len(text) > _LONGEST}
    if settings.words is not None:
        fewest, most = settings.words
        rules["words"] = lambda text: not fewest <= len(text.split()) <= most
    if not settings.markup:
        rules["control characters"] = lambda text: _CONTROL.search(text) is not None
    if not settings.links:
        rules["link"] = lambda text: _LINK.search(text) is not None
    if not settings.fragments:
        rules["no sentence"] = lambda text: not is_sentence(text)
    if not settings.markup:
        rules["markup"] = lambda text: _MARKUP.search(text) is not None
    rules["duplicate"] = _seen_before(_key if settings.near_duplicates is not None else str)
    if not settings.mojibake:
        rules["mojibake"] = _mojibake_rule()
    if settings.language is not None:
        rules["language"] = _language_rule(settings.language)
    return rules


def is_sentence(text: str) -> bool:
    """Whether `text` has the shape of a sentence: begins and ends like one, closes what it opens, is mostly words."""
    start = text.lstrip(_OPENING)[:1]
    starts = start.isupper() or start.isdigit() or unicodedata.category(start or " ") == "Lo"
    if not starts or not text.rstrip(_CLOSING).endswith(_ENDS) or _CUT_OFF.search(text):
        return False
    if text.count('"') % 2 or any(text.count(opening) != text.count(closing) for opening, closing in _PAIRS):
        return False
    letters = sum(map(str.isalpha, text))
    capitals = sum(map(str.isupper, text))
    return 3 * letters >= 2 * (len(text) - text.count(" ")) and 2 * capitals <= max(letters, 2)


def _key(text: str) -> str:
    """What near-duplicates share: letters in one case, every number the same."""
    folded = unicodedata.normalize("NFKC", text).casefold() if not text.isascii() else text.lower()
    return re.sub(r"\d+", "0", re.sub(r"[^\w]|_", "", folded))


def _seen_before(key: Callable[[str], str]) -> _Rule:
    """Return a rule that breaks from the second text of each key on; it remembers 8 bytes a text."""
    seen: set[int] = set()

    def breaks(text: str) -> bool:
        digest = int.from_bytes(hashlib.blake2b(key(text).encode(), digest_size=8).digest(), "little")
        known = digest in seen
        seen.add(digest)
        return known

    return breaks


def _mojibake_rule() -> _Rule:
    try:
        from ftfy.badness import is_bad
    except ImportError as error:
        raise missing_extra("ftfy", "anchors") from error
    return lambda text: not text.isascii() and bool(is_bad(text))


def _language_rule(language: str) -> _Rule:
    try:
        from py3langid import classify, rank
    except ImportError as error:
        raise missing_extra("py3langid", "anchors") from error
    known = {label for label, _ in rank("")}
    if language not in known:
        raise InputError(f"py3langid does not know the language {language!r}; it knows {', '.join(sorted(known))}")
    return lambda text: bool(classify(text)[0] != language)


# --- Vectors on disk --------------------------------------------------------------------------------------------------


class Candidates:
    """The candidates of a corpus and their vectors, in a folder; made by `prepare_candidates`.

    Attributes:
        vectors: float16 [N, d], rows of length 1 (or 0), mapped from disk.
        filtered: what the rules dropped.
    """

    def __init__(self, folder: Path, filtered: Filtered) -> None:
        """Open a finished folder."""
        self.vectors: npt.NDArray[np.float16] = np.load(folder / "vectors.npy", mmap_mode="r")
        self.filtered = filtered
        self._path = folder / "candidates.jsonl"

    def texts(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the texts of some rows, in the order of `rows`; reads the list of candidates once."""
        wanted = set(rows.tolist())
        found = {row: text for row, text in enumerate(read_texts(self._path)) if row in wanted}
        return [found[row] for row in rows.tolist()]


def prepare_candidates(
    encoder: Any, corpus: Corpus, settings: CandidateSettings, folder: Path, *, show_progress_bar: bool = True
) -> Candidates:
    """Filter `corpus` and encode what is left into `folder`; a killed run goes on after its last 16,384 texts.

    Files: `candidates.jsonl` (a text a line), `vectors.npy` (float16 [N, d]), `state.json` (what was asked for, what
    was dropped, how many vectors are done).

    Raises:
        CorpusError: the corpus cannot be read, or no text is left.
        InputError: `folder` holds the candidates of another corpus, encoder or other settings.
        WritingError: no space or no permission.
    """
    folder.mkdir(parents=True, exist_ok=True)
    origin = _origin(corpus, settings)
    state_path = folder / "state.json"
    if not state_path.exists():
        filtered = _spool(corpus, settings, folder / "candidates.jsonl", show_progress_bar)
        write_json(state_path, {"origin": origin, "read": filtered.read, "dropped": filtered.dropped, **_NOTHING_DONE})
    state = read_json(state_path)
    if state["origin"] != origin:
        differing = sorted(key for key in origin if origin[key] != state["origin"].get(key))
        raise InputError(
            f"{folder} holds the candidates of another run (different: {', '.join(differing)}); "
            "give the same arguments to resume it, or another work_dir"
        )
    filtered = Filtered(state["read"], state["dropped"])
    if not filtered.kept:
        raise CorpusError(f"no candidate for an anchor: {filtered}. Switch rules off in CandidateSettings")
    filtered.dropped["encoded to zero"] = _encode(encoder, folder, state, filtered.kept, show_progress_bar)
    return Candidates(folder, filtered)


def _origin(corpus: Corpus, settings: CandidateSettings) -> dict[str, Any]:
    """What a resumed run must share with the run it goes on from."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    if is_path(corpus):
        path = Path(corpus)  # type: ignore[arg-type]
        return {"corpus": [path.name, path.stat().st_size if path.exists() else 0], **values}
    if isinstance(corpus, (list, tuple)):
        digest = hashlib.blake2b("\0".join(map(str, corpus)).encode("utf-8", "replace"), digest_size=16)
        return {"corpus": [digest.hexdigest(), len(corpus)], **values}
    return {"corpus": ["iterator", 0], **values}


def _spool(corpus: Corpus, settings: CandidateSettings, path: Path, show_progress_bar: bool) -> Filtered:
    filtered = Filtered()
    with writing(path) as aside, open(aside, "w", encoding="utf-8") as file:
        with Progress("choosing candidates", enabled=show_progress_bar) as progress:
            for text in candidate_texts(corpus, settings, filtered):
                file.write(json.dumps(text, ensure_ascii=False) + "\n")
                progress.advance()
    return filtered


def _encode(encoder: Any, folder: Path, state: dict[str, Any], count: int, show_progress_bar: bool) -> int:
    """Append to `vectors.npy` until it holds all, and return how many are zero.

    `state.json` says after each shard how far the file is whole; what is beyond is written again.
    """
    from pellucid.encoders import encode_with

    texts = read_texts(folder / "candidates.jsonl")
    done, zeros, dimension = state["encoded"], state["zeros"], state["dimension"]
    if done:
        _check_encoder(encoder, folder, dimension)
    with Progress("encoding candidates", total=count, enabled=show_progress_bar) as progress:
        progress.advance(sum(1 for _ in islice(texts, done)))
        while shard := list(islice(texts, _SHARD)):
            rows = encode_with(encoder, shard, dimension=dimension)
            dimension = rows.shape[1]
            _write_rows(folder / "vectors.npy", rows.astype(np.float16), done, (count, dimension))
            done += len(rows)
            zeros += int((~rows.any(axis=1)).sum())
            write_json(folder / "state.json", {**state, "encoded": done, "zeros": zeros, "dimension": dimension})
            progress.advance(len(rows))
    return int(zeros)


def _write_rows(path: Path, rows: npt.NDArray[np.float16], first: int, shape: tuple[int, int]) -> None:
    """Write rows from `first` on into an .npy file of `shape` that may not be finished yet."""
    header = {"descr": "<f2", "fortran_order": False, "shape": shape}
    with open(path, "r+b" if first else "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.seek(first * shape[1] * 2, os.SEEK_CUR)
        file.write(np.ascontiguousarray(rows, "<f2").data)
        file.flush()
        os.fsync(file.fileno())


def _check_encoder(encoder: Any, folder: Path, dimension: int) -> None:
    """Refuse to go on with another encoder than the one that made the first vectors."""
    from pellucid.encoders import encode_with

    again = encode_with(encoder, list(islice(read_texts(folder / "candidates.jsonl"), _PROBES)))
    with open(folder / "vectors.npy", "rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        stored = np.fromfile(file, "<f2", len(again) * dimension).astype(np.float32)
    if again.shape[1] != dimension or np.abs(stored - again.ravel()).max() > _ROUNDING:
        raise InputError(
            f"{folder} holds vectors of another encoder; give the encoder it was begun with, or another work_dir"
        )
