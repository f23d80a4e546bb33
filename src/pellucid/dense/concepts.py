"""Concepts of any encoder: a few named directions that a text's vector is a sum of, with weights that are not negative.

    c = sum over concepts of  a_k d_k  + rest,    a_k >= 0, at most `most` of them not 0

c is the encoder's vector less the mean of all texts, d_k the direction (of length 1) of a word, a phrase or any text.
Of the concepts nearest to c they are chosen greedily, each time the one nearest to what is left of c, and weighted anew
by least squares: orthogonal matching pursuit without negative weights. (SpLiCE takes images apart by words, with a
penalty on the weights.) Of near-synonyms one is chosen, perhaps not the one that a person would take, and the encoder
may find words alike that only look alike.

Directions are those of words, of texts of your own, or learned from a corpus so that few are enough for each of its
texts, with names that were tested (`learning.py`).

In a score, a concept is one row: what the concepts leave of both texts is the remainder,

    c . c' = sum over concepts of  d_k . (a_k (c' - s'/2) + a'_k (c - s/2))  + rest . rest',    s = sum of the a_k d_k
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Embedder, Vectors
from pellucid.core.fingerprint import check_same, fingerprint
from pellucid.core.query import Floats, Terms
from pellucid.dense.learning import code_matrix, learned_directions, name_concepts, sparse_codes
from pellucid.dense.reasons import Parts, Reasons
from pellucid.dense.vectors import at_length_1, checked_vectors, unit_vectors
from pellucid.dense.words import MAX_FIT_TEXTS, MIN_FIT_TEXTS, WordReasons, mean_vector, table_for
from pellucid.errors import InputError, ModelFolderError, check_integer, check_seed, require, shown
from pellucid.explain.rows import DIMENSION, Row
from pellucid.explain.views.parts import AnyPart, Heading, Note, TablePart, counted, signed
from pellucid.explain.views.report import Report
from pellucid.persistence.folder import check_family, read_config, saving
from pellucid.persistence.store import is_sound, read_json, read_tensors, write_json, write_tensors
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.corpus import Corpus, read_texts
from pellucid.text.function_words import content_words, differ_by_ending
from pellucid.text.inputs import check_texts
from pellucid.text.unicode import canonicalize

_WORDS = 8_000  # of a table that are tried as concepts, the commonest
_SAME, _ALIKE = 0.9, 0.6  # cosines of words that are one concept; the second where they begin alike
_95_PERCENT = 1.959963984540054
_HELD_OUT_EVERY = 4  # one text in so many is not learned from, but tests the names
_MIN_TEXTS_PER_CONCEPT = 6  # to learn from
_MAX_STORED = 1e15  # of a number in saved reasons


class ConceptFit(NamedTuple):
    """What learning concepts found.

    Attributes:
        texts: learned from, those held out included.
        explained: share of the variance of the vectors of texts held out that the concepts explain (R2).
        aucs: of each concept, how often a text held out that has it is nearer to its best name than one that has not;
            None where too few texts have it to tell. Below 0.9 the name is not used.
    """

    texts: int
    explained: float
    aucs: tuple[float | None, ...]


class ConceptReasons(Reasons):
    """Named directions in the space of one encoder.

    Attributes:
        names: of the concepts.
        directions: theirs, float32 [concepts, dimension], of length 1.
        common: the mean vector of texts at length 1.
        most: how many concepts a text may have.
        fit: how well they were learned; None for concepts that were not.
        fingerprint: of the encoder; None where that is not known, and they cannot be saved.
    """

    kind: ClassVar[str] = "concepts"

    def __init__(
        self, names: Sequence[str], directions: Any, common: Floats, *, most: int = 16, fit: ConceptFit | None = None,
        fingerprint: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Take distinct names, directions of any length but 0, [concepts, dimension], and the mean vector of texts.

        Raises:
            InputError: two names are equal or one is blank, a direction has no length, or `most` is below 1.
        """
        self.names, self.common, self.most = list(map(canonicalize, names)), np.asarray(common, np.float64), most
        self.directions = at_length_1(checked_vectors(directions, self.names, "concepts", len(self.common)))
        self.fit, self.fingerprint = fit, fingerprint
        self._number = {name: number for number, name in enumerate(self.names)}
        lengths = np.abs(self.directions).sum(axis=1)
        if not self.names:
            raise InputError("no concept is given; name some")
        if len(self._number) < len(self.names) or not all(map(str.strip, self.names)):
            name = next(
                name for number, name in enumerate(self.names) if self._number[name] != number or not name.strip()
            )
            raise InputError(f"the concept {shown(name, 80)} is given twice or blank; names must differ")
        if not lengths.all():
            raise InputError(f"the concept {self.names[int(lengths.argmin())]!r:.80} has a vector without length")
        if most < 1:
            raise InputError(f"most is {shown(most)}; a text needs at least 1 concept")

    @classmethod
    def from_words(
        cls, encoder: Embedder, words: WordReasons, *, concepts: int = _WORDS, most: int = 16
    ) -> ConceptReasons:
        """Return concepts that are words of word reasons' table: the commonest that carry content, one of each meaning.

        Words are left out that are no letters, that say little on their own ("more", "Tuesday"), and that another,
        commoner one represents: a cosine above 0.9, or above 0.6 and the same beginning ("bank", "banking").

        Args:
            encoder: the encoder; it is not asked.
            words: its word reasons.
            concepts: how many words are tried.
            most: how many concepts a text may have.
        """
        vocabulary = words.table.vocabulary.forms
        rows = [row for row, word in enumerate(vocabulary) if content_words(word) == {word}][:concepts]
        directions = at_length_1((words.table.word_vectors(rows) @ words.arrays["map"]).astype(np.float32))
        names = [vocabulary[row] for row in rows]
        selected = _distinct(names, directions)
        if not selected:
            raise InputError(
                f"no word of the table {words.table!r:.60} can be a concept: none of three letters carries content; "
                "give concepts of your own: ConceptReasons.from_texts(model, names)"
            )
        return cls(
            [names[index] for index in selected],
            directions[selected],
            words.common,
            most=most,
            fingerprint=words.fingerprint,
        )

    @classmethod
    def from_texts(
        cls,
        encoder: Embedder,
        concepts: Iterable[str] | Mapping[str, str],
        texts: Iterable[str] | None = None,
        *,
        most: int = 16,
    ) -> ConceptReasons:
        """Return concepts of your own: words, phrases, the names of a taxonomy, anchor texts.

        Args:
            encoder: the encoder, which reads them.
            concepts: their texts, or a mapping from names to texts.
            texts: texts whose mean vector is what all have in common; None for some that come with the package.
            most: how many concepts a text may have.

        Raises:
            InputError: none is given, or a name twice, or a text whose vector has no length.
        """
        if isinstance(concepts, Mapping):
            names, read = check_texts(list(concepts)), check_texts(list(concepts.values()))
        else:
            names = read = check_texts(concepts)
        common = mean_vector(encoder, texts)
        directions = unit_vectors(encoder, read) - common
        return cls(names, directions, common, most=most, fingerprint=fingerprint(encoder))

    @classmethod
    def learned(
        cls, encoder: Embedder, texts: Corpus, vectors: Any = None, *, concepts: int = 1024, most: int = 8,
        table: StaticEmbedder | None = None, seed: int = 0, show_progress_bar: bool = True,
    ) -> ConceptReasons:  # fmt: skip
        """Return concepts learned from your texts: directions of which a few are enough for each text.

        A name is up to three words of a static model. It is tested on a quarter of the texts, held out: those that have
        the concept must be nearer to it, by the static model alone, than those that have not. A concept whose name
        fails is called by its number. The same texts and seed give the same concepts.

        Args:
            encoder: the encoder; it reads each text once unless `vectors` are given.
            texts: a file or an iterable of texts like those that will be compared, best 10,000 or more.
            vectors: the encoder's vectors of them, [texts, dimension], of any length.
            concepts: how many to learn, at most one for six texts that are not held out.
            most: how many a text may have.
            table: a static model whose words are names; None takes static-en or static-multi, whichever knows more of
                the texts.
            seed: of the texts that concepts begin as.
            show_progress_bar: show a bar once the work has lasted two seconds.

        Raises:
            InputError: fewer than 200 texts, other vectors than texts, or a count below 1.
            MissingExtraError: SciPy is not installed.
        """
        require("scipy", "sparse")
        check_integer("concepts", concepts)
        check_integer("most", most)
        check_seed(seed)
        corpus = check_texts(islice(read_texts(texts), MAX_FIT_TEXTS))
        if len(corpus) < MIN_FIT_TEXTS:
            raise InputError(f"{len(corpus)} texts are too few to learn concepts from; give at least {MIN_FIT_TEXTS}")
        if vectors is None:
            rows = unit_vectors(encoder, corpus, show_progress_bar=show_progress_bar)
        else:
            rows = at_length_1(checked_vectors(vectors, corpus, "vectors", None))
        held_out = np.arange(len(corpus)) % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
        common = rows[~held_out].mean(axis=0, dtype=np.float64)
        centred = rows - common.astype(np.float32)
        count = min(concepts, int((~held_out).sum()) // _MIN_TEXTS_PER_CONCEPT)
        directions = learned_directions(centred[~held_out], count, most, seed, show=show_progress_bar)
        weights = code_matrix(centred, directions, most)
        labels, aucs = name_concepts(table or table_for(corpus), corpus, weights, held_out)
        unexplained = np.square(centred - weights @ directions)[held_out].sum() / np.square(centred[held_out]).sum()
        fit = ConceptFit(len(corpus), 1 - float(unexplained), tuple(aucs))
        names = _unique_names(labels)
        return cls(names, directions, common, most=most, fit=fit, fingerprint=fingerprint(encoder))

    def save_pretrained(self, path: str | Path) -> None:
        """Write the concepts to folder `path`, whole or not at all; `with_reasons(Path(path))` opens them.

        Raises:
            InputError: `path` holds something else, or the encoder is not known.
            WritingError: it cannot be written.
        """
        if self.fingerprint is None:
            raise InputError(
                "these concepts were made of arrays, so that their encoder is not known: give fingerprint="
            )
        config = {"way": self.kind, "encoder": dict(self.fingerprint), "most": self.most}
        with saving(path, "reasons", config, has_card=False) as folder:
            write_tensors(folder / "concepts.safetensors", {"directions": self.directions, "common": self.common})
            fit = None if self.fit is None else self.fit._asdict()
            write_json(folder / "concepts.json", {"names": self.names, "fit": fit})

    @staticmethod
    def are_in(folder: Path) -> bool:
        """Whether a folder holds saved concepts, as far as its `config.json` says."""
        try:
            return bool(read_config(folder).get("way") == ConceptReasons.kind)
        except ModelFolderError:
            return False

    @classmethod
    def from_pretrained(cls, path: str | Path, encoder: Embedder) -> ConceptReasons:
        """Open concepts that were saved.

        Args:
            path: the folder.
            encoder: the encoder that they are of.

        Raises:
            ModelFolderError: nothing whole is there, or they are of another encoder.
        """
        folder = Path(path)
        config = check_family(folder, "reasons")
        check_same(f"{encoder!r}, for the concepts in {folder},", fingerprint(encoder), config.get("encoder"),
                   "Make them for this one: ConceptReasons.learned")  # fmt: skip
        try:
            arrays, _ = read_tensors(folder / "concepts.safetensors")
            stored = read_json(folder / "concepts.json")
            names, directions, common = list(map(str, stored["names"])), arrays["directions"], arrays["common"]
            fit = stored["fit"] and ConceptFit(
                int(stored["fit"]["texts"]), float(stored["fit"]["explained"]),
                tuple(None if auc is None else float(auc) for auc in stored["fit"]["aucs"]),
            )  # fmt: skip
            if not is_sound(directions, _MAX_STORED) or not is_sound(common, _MAX_STORED):
                raise ModelFolderError(f"{folder / 'concepts.safetensors'} holds NaN, infinity or too large numbers")
            if common.shape != (encoder.get_embedding_dimension(),):
                raise ModelFolderError(f"{folder / 'concepts.safetensors'} has the wrong shape {common.shape}")
            check_integer("most", config["most"])
            return cls(names, directions, common, most=config["most"], fit=fit or None, fingerprint=config["encoder"])
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise ModelFolderError(f"{folder} holds no whole concepts: {error}") from error

    def __repr__(self) -> str:
        """Return one line: how many concepts there are and, if learned, have names; how many a text may have."""
        named = "" if self.fit is None else f", {sum(map(self.is_named, range(len(self.names)))):,} named"
        return f"ConceptReasons({len(self.names):,} concepts{named}, {self.most} a text)"

    def is_named(self, concept: int) -> bool:
        """Whether a concept, by its number, has a name: all but learned ones whose name failed its test."""
        return not self.names[concept].endswith(_UNNAMED_SUFFIX)

    def parts(self, text: str, role: Role, vector: Floats) -> Parts:
        """Return a part for each concept of the text."""
        centred = vector - self.common
        numbers, weights = (codes[0] for codes in sparse_codes(centred[None], self.directions, self.most))
        numbers, weights = numbers[weights > 0], weights[weights > 0]

        def row(part: int) -> Row:
            name = self.names[int(numbers[part])]
            return Row(name, (name,), 0.0, 0.0, key=(name,), kind=DIMENSION)

        return Parts(weights[:, None] * self.directions[numbers], row, centred)

    def products(self, first: Parts, second: Parts) -> Terms:
        """Return what each concept of one text or both adds to the product of two texts' vectors."""
        contributions: dict[str, float] = {}
        rows: dict[str, Row] = {}
        for text_parts, compared in ((first, second), (second, first)):
            total = compared.total if compared.total is not None else compared.vectors.sum(axis=0)
            pulls = text_parts.vectors @ (total - compared.vectors.sum(axis=0) / 2)
            for part, pull in enumerate(pulls.tolist()):
                row = text_parts.row(part)
                contributions[row.name] = contributions.get(row.name, 0.0) + pull
                rows[row.name] = row
        return Terms(np.array(list(contributions.values())), list(rows.values()).__getitem__)

    def weights(self, vectors: Any) -> Any:
        """Return the weights of the concepts of many texts.

        Args:
            vectors: the encoder's vectors of them, as they are kept in an index, [texts, dimension], of any length.

        Returns:
            float32 CSR [texts, concepts], with at most `most` numbers in a row, none negative.

        Raises:
            InputError: the vectors have another dimension, or are not finite.
            MissingExtraError: SciPy is not installed.
        """
        require("scipy", "sparse")
        rows = self._checked(vectors)
        has_length = np.any(rows != 0, axis=1, keepdims=True)  # nothing is made of nothing
        return code_matrix((rows - self.common.astype(np.float32)) * has_length, self.directions, self.most)

    def removed(self, vectors: Any, *concepts: str) -> Vectors:
        """Return vectors without their parts of some concepts, at length 1: a search over them does without these.

        Args:
            vectors: as for `weights`; those of queries are to be changed too.
            concepts: their names.

        Returns:
            float32 [texts, dimension].

        Raises:
            InputError: no concept has such a name, or as `weights`.
        """
        removed = [self.number(name) for name in concepts]
        rows = self._checked(vectors)
        return at_length_1(rows - self.weights(rows)[:, removed] @ self.directions[removed])

    def number(self, name: str) -> int:
        """Return the number of a concept.

        Raises:
            InputError: no concept has this name; the message names the nearest.
        """
        if name not in self._number:
            close = get_close_matches(str(name), self.names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r:.80}?" if close else f"the first is {self.names[0]!r:.80}"
            raise InputError(f"no concept is called {shown(name, 80)}; {hint}")
        return self._number[name]

    def drift(self, before: Any, after: Any, top_k: int = 20) -> ConceptDrift:
        """Compare what two collections of texts are made of, such as the questions of this month and of the last.

        Args:
            before: vectors of the first, as for `weights`.
            after: vectors of the second.
            top_k: how many concepts are shown, those whose mean weights differ most.

        Raises:
            InputError: one has fewer than 2 texts, or as `weights`.
        """
        (mean1, error1, count1), (mean2, error2, count2) = map(self._means, (before, after))
        change = mean2 - mean1
        reach = _95_PERCENT * np.sqrt(error1 + error2)
        chosen = np.argsort(-np.abs(change), kind="stable")[:top_k].tolist()
        rows = [
            Drift(
                self.names[n], *(float(values[n]) for values in (mean1, mean2, change, change - reach, change + reach))
            )
            for n in chosen
            if change[n]
        ]
        return ConceptDrift(count1, count2, len(self.names), tuple(rows))

    def _means(self, vectors: Any) -> tuple[Floats, Floats, int]:
        """Return the mean weight of each concept, its squared standard error, and the number of texts."""
        weights = self.weights(vectors).astype(np.float64)
        count = weights.shape[0]
        if count < 2:
            raise InputError(f"drift compares means of 2 texts or more, got {count}")
        mean = np.asarray(weights.mean(axis=0)).ravel()
        squares = np.asarray(weights.multiply(weights).mean(axis=0)).ravel()
        return mean, (squares - mean**2).clip(min=0) / (count - 1), count

    def _checked(self, vectors: Any) -> Vectors:
        """Return vectors at length 1, float32 [texts, dimension]."""
        rows = np.asarray(vectors.toarray() if hasattr(vectors, "toarray") else vectors)
        return at_length_1(checked_vectors(rows, [""] * len(rows), "stored vectors", len(self.common)))


_UNNAMED_SUFFIX = " (no name passed)"


def _unique_names(labels: Sequence[str | None]) -> list[str]:
    """Return distinct names, with its number for a concept without."""
    counts: dict[str, int] = {}
    names = []
    for number, label in enumerate(labels):
        name = label or f"concept {number}{_UNNAMED_SUFFIX}"
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return names


def _distinct(names: Sequence[str], directions: Vectors) -> list[int]:
    """Return the indices of the words that no earlier one represents."""
    is_kept = np.ones(len(names), np.bool_)
    for start in range(0, len(names), 1_000):
        cosines = directions[start : start + 1_000] @ directions[: start + 1_000].T
        for line, earlier in np.argwhere(cosines > _ALIKE).tolist():
            index = start + line
            if earlier < index and is_kept[earlier] and is_kept[index]:
                is_kept[index] = cosines[line, earlier] <= _SAME and not differ_by_ending(names[index], names[earlier])
    return np.flatnonzero(is_kept).tolist()


class Drift(NamedTuple):
    """How a concept's mean weight changed."""

    concept: str
    before: float  # mean weight in the first texts
    after: float  # and in the second
    change: float  # the second less the first
    low: float  # the 95 % confidence interval of the change, of this concept alone
    high: float


@dataclass(frozen=True, repr=False)
class ConceptDrift(Report):
    """How two collections of texts differ in what they are made of."""

    kind: ClassVar[str] = "concept drift"
    table: ClassVar[str] = "rows"

    before: int  # texts of the first collection
    after: int  # texts of the second
    concepts: int  # that were compared
    rows: tuple[Drift, ...]  # by falling size of the change

    def _parts(self) -> Iterator[AnyPart]:
        sizes = f"{counted(self.before, 'text')} before, {self.after:,} after, {self.concepts:,} concepts"
        yield Heading("Drift of concepts", counted(len(self.rows), "change"), sizes)
        columns = [
            ("before", "number"),
            ("after", "number"),
            ("change", "number"),
            "95 % interval",
            ("", "bar"),
            "concept",
        ]
        yield TablePart.of(
            "Largest changes of the mean weight",
            columns,
            [
                (f"{row.before:.4f}", f"{row.after:.4f}", signed(row.change, 4),
                 f"{signed(row.low, 4)} to {signed(row.high, 4)}", row.change, row.concept)
                for row in self.rows
            ],
        )  # fmt: skip
        if self.concepts > len(self.rows):
            yield Note("An interval is of its concept alone; the largest of many changes are partly chance.")
