"""Candidates for anchors: which texts of a corpus a person can read, kept on disk with their vectors.

Farthest point sampling looks for what is unlike everything else, and in a raw corpus that is garbage: the anchors
published with the paper hold a bare shop link, Russian beside a code snippet, mojibake and lines broken in the middle.
So every candidate must be one readable sentence with content. A
corpus of other texts, such as titles or key words in lower case, is recognised by its first texts.

An interrupted run resumes after its last 16,384 texts; other methods and numbers of anchors need not encode again.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from pellucid.core.fingerprint import record_model
from pellucid.dense.vectors import unit_vectors
from pellucid.errors import CorpusError, InputError, importing
from pellucid.loading import load
from pellucid.persistence.checkpoints import WorkFolder
from pellucid.progress import Progress
from pellucid.settings import Limits, Settings
from pellucid.text.function_words import content_words
from pellucid.text.tables import Corpus, is_path, read_texts
from pellucid.text.unicode import canonicalize

_RULES = 4  # version of the rules, kept with candidates on disk: raise it with any change of what passes
_MAX_CHARS = 2_000  # a longer text is not looked at closely
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
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'”\u2019»)])\s+|\n+")
_Rule = Callable[[str], bool]
_N_PROBED_TEXTS = 1_000  # that show whether a corpus has sentences
_MIN_SENTENCE_SHARE = 0.2  # of these texts
_MIN_CONTENT_WORDS = 2  # different ones; see `text.content_words`
_SHARD_TEXTS = 16_384  # between two checkpoints


@dataclass(frozen=True)
class CandidateSettings(Settings):
    """Which texts may become anchors.

    Attributes:
        language: ISO 639-1 code of the language a text must be in, as py3langid sees it; None takes any.
        words: fewest and most words, counted at spaces; of a longer text each sentence is a candidate. None takes any
            number and divides no text, for languages without spaces.
        readable: whether texts must be readable and say something: no web address, e-mail address or phone number; no
            tags, entities, code characters, runs of punctuation, loose punctuation, speaker or heading before a colon,
            doubled words, control characters or line breaks; no text decoded with the wrong table (ftfy's badness); two
            different content words; a sentence (see `is_sentence`), unless fewer than one in five of the first 1,000
            texts looks like one; of texts that are equal but for case, punctuation and digits the first alone, and no
            anchor with a cosine above 0.9 to another. False drops equal texts alone.
        max_candidates: at most this many, the first that pass; shuffle an ordered corpus.
    """

    language: str | None = "en"
    words: tuple[int, int] | None = (3, 30)
    readable: bool = True
    max_candidates: Annotated[int | None, Limits(1)] = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a value is out of range.
        """
        super().__post_init__()
        if self.words is not None and not 1 <= self.words[0] <= self.words[1]:
            raise InputError(f"words is {self.words}; give the fewest and the most, such as (3, 60), or None")


@dataclass
class Filtered:
    """How many texts were read, and how many each rule dropped; a text counts for the first rule that drops it.

    Attributes:
        read: texts read; of a divided text, its sentences.
        dropped: texts by rule, in the order of the rules.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def n_left(self) -> int:
        """How many texts are left."""
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        """Say it in one line."""
        rules = ", ".join(f"{count:,} {rule}" for rule, count in self.dropped.items() if count)
        return f"{self.n_left:,} of {self.read:,} texts left" + (f" (dropped: {rules})" if rules else "")


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of a corpus and their vectors, in a folder; made by `prepare_candidates`.

    Attributes:
        vectors: float16 [N, d], rows of length 1 (or 0), mapped from disk.
        filtered: what the rules dropped.
        path: of the file with their texts.
    """

    vectors: npt.NDArray[np.float16]
    filtered: Filtered
    path: Path

    def texts(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the texts of some rows, in the order of `rows`; reads the list of candidates once."""
        row_ids = set(rows.tolist())
        text_by_row = {row: text for row, text in enumerate(read_texts(self.path)) if row in row_ids}
        return [text_by_row[row] for row in rows.tolist()]


def prepare_candidates(
    encoder: Any, corpus: Corpus, settings: CandidateSettings, folder: Path, *, show_progress_bar: bool = True
) -> Candidates:
    """Filter `corpus` and encode what is left into `folder`; an interrupted run resumes after its last 16,384 texts.

    A resume reads the corpus again, as far as the run had read it, and refuses other texts; an iterator, which can be
    read only once, is not checked. The encoder must be the same one.

    Raises:
        CorpusError: the corpus cannot be read, or no text is left.
        InputError: `folder` is of another corpus, encoder or other settings, or a run is at work in it.
        ModelFolderError: what is in `folder` is damaged.
        WritingError: no space or no permission.
    """
    with WorkFolder(folder) as work:
        work.bind_settings({**asdict(settings), "rules": _RULES})
        filtered = _filtered(corpus, settings, work, show_progress_bar)
        if not filtered.n_left:
            raise CorpusError(f"no candidate for an anchor: {filtered}. Add texts, or loosen `settings`")
        _encode(encoder, work, filtered.n_left, show_progress_bar)
        filtered.dropped["encoded to zero"] = work.metadata["zeros"]
        return Candidates(work.array("vectors"), filtered, work.file("candidates"))


def _filtered(corpus: Corpus, settings: CandidateSettings, work: WorkFolder, show_progress_bar: bool) -> Filtered:
    """Write the texts that pass into the folder, once, and return what was dropped."""
    name = str(corpus) if is_path(corpus) else "the corpus"
    if "candidates" in work:
        if is_path(corpus) or iter(corpus) is not corpus:  # type: ignore[arg-type]
            work.check_texts("corpus", read_texts(corpus), name)
        return Filtered(work.metadata["read"], dict(work.metadata["dropped"]))
    filtered = Filtered()
    with Progress("choosing candidates", enabled=show_progress_bar) as progress:

        def passing() -> Iterator[str]:
            for text in candidate_texts(work.texts("corpus", read_texts(corpus), name), settings, filtered):
                progress.advance()
                yield text

        work.save_texts("candidates", passing())
    if filtered.n_left:
        work.commit({"read": filtered.read, "dropped": filtered.dropped, "zeros": 0})
    return filtered


def _encode(encoder: Any, work: WorkFolder, n_candidates: int, show_progress_bar: bool) -> None:
    """Append to the vectors until there are all."""
    path = work.file("candidates")
    done, dimension = work.array("vectors").shape if "vectors" in work else (0, None)
    encoder = load(encoder)
    record_model(work.metadata, encoder, work.path)
    texts = islice(read_texts(path), done, None)
    with Progress("encoding candidates", total=n_candidates, enabled=show_progress_bar) as progress:
        progress.advance(done)
        while shard := list(islice(texts, _SHARD_TEXTS)):
            rows = unit_vectors(encoder, shard, dimension=dimension)
            dimension = rows.shape[1]
            work.append("vectors", rows.astype(np.float16))
            work.commit({"zeros": work.metadata["zeros"] + int((~rows.any(axis=1)).sum())})
            progress.advance(len(rows))


def candidate_texts(
    corpus: Corpus, settings: CandidateSettings | None = None, filtered: Filtered | None = None
) -> Iterator[str]:
    """Yield the texts of `corpus` that may become anchors, stripped of outer spaces; counts them in `filtered`."""
    filtered = Filtered() if filtered is None else filtered
    settings = CandidateSettings() if settings is None else settings
    stripped_texts = map(str.strip, map(canonicalize, read_texts(corpus)))
    max_words = None if settings.words is None else settings.words[1]
    texts = (  # those of too many words a sentence at a time
        part
        for text in stripped_texts
        for part in (
            [text]
            if max_words is None or len(text.split()) <= max_words
            else filter(None, map(str.strip, _SENTENCE_END.split(text)))
        )
    )
    first = list(islice(texts, _N_PROBED_TEXTS)) if settings.readable else []
    rules = _rules(settings, has_sentences=sum(map(is_sentence, first)) >= _MIN_SENTENCE_SHARE * len(first))
    filtered.dropped.update({rule: filtered.dropped.get(rule, 0) for rule in rules})
    n_passed = 0
    for text in chain(first, texts):
        filtered.read += 1
        broken = next((rule for rule, breaks in rules.items() if breaks(text)), None)
        if broken is not None:
            filtered.dropped[broken] += 1
            continue
        yield text
        n_passed += 1
        if n_passed == settings.max_candidates:
            return


def _rules(settings: CandidateSettings, *, has_sentences: bool) -> dict[str, _Rule]:
    """Return what drops a text, by name; the cheap ones first, the language last."""
    rules: dict[str, _Rule] = {
        "empty": lambda text: not text,
        "too long": lambda text: len(text) > _MAX_CHARS,
    }
    if settings.words is not None:
        min_words, max_words = settings.words
        rules["words"] = lambda text: not min_words <= len(text.split()) <= max_words
    if settings.readable:
        rules |= {
            "control characters": lambda text: _CONTROL.search(text) is not None,
            "link": lambda text: _LINK.search(text) is not None,
            "no sentence": lambda text: has_sentences and not is_sentence(text),
            "markup": lambda text: _MARKUP.search(text) is not None,
            "says little": lambda text: len(content_words(text)) < _MIN_CONTENT_WORDS,
        }
    rules["duplicate"] = _seen_before(settings.readable)
    if settings.readable:
        with importing("anchors", "ftfy"):
            from ftfy.badness import is_bad
        rules["mojibake"] = lambda text: not text.isascii() and bool(is_bad(text))
    if settings.language is not None:
        with importing("anchors", "py3langid"):
            from py3langid import classify, rank
        languages = {label for label, _ in rank("")}
        if settings.language not in languages:
            raise InputError(
                f"py3langid does not know the language {settings.language!r}; it knows {', '.join(sorted(languages))}"
            )
        rules["language"] = lambda text: bool(classify(text)[0] != settings.language)
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


def _seen_before(ignores_form: bool) -> _Rule:
    """Return a rule that drops repeated texts; `ignores_form` compares letters in any case, and all numbers as one."""
    seen: set[int] = set()  # 8 bytes a text

    def breaks(text: str) -> bool:
        if ignores_form:
            text = unicodedata.normalize("NFKC", text).casefold() if not text.isascii() else text.lower()
            text = re.sub(r"\d+", "0", re.sub(r"[^\w]|_", "", text))
        digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        is_repeated = digest in seen
        seen.add(digest)
        return is_repeated

    return breaks
