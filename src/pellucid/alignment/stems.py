"""Which words are forms of one another: stems by snowballstemmer, lemmas by simplemma."""

from __future__ import annotations

from typing import Any

from pellucid.errors import InputError, missing_extra

LANGUAGES = {
    "da": "danish",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "nb": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "tr": "turkish",
}
"""Language code of simplemma -> name of snowballstemmer's algorithm."""


class Stems:
    """The forms under which a word is compared with others, each word looked up once."""

    def __init__(self, language: str = "en") -> None:
        """Open the stemmer.

        Args:
            language: one of `LANGUAGES`.

        Raises:
            InputError: it is none of them.
            MissingExtraError: snowballstemmer or simplemma is not installed.
        """
        if language not in LANGUAGES:
            raise InputError(f"language is {language!r:.40}; it must be one of {', '.join(LANGUAGES)}")
        try:
            import simplemma
            import snowballstemmer
        except ImportError as error:
            raise missing_extra(error.name or "simplemma", "align") from error
        self.language = language
        self._lemmatize: Any = simplemma.lemmatize
        self._stemmer: Any = snowballstemmer.stemmer(LANGUAGES[language])
        self._known: dict[str, frozenset[tuple[str, str]]] = {}

    def forms(self, word: str) -> frozenset[tuple[str, str]]:
        """Return a word's stem and lemma, in lower case; nothing for what holds no letter and no digit.

        Two words are of one stem or lemma where their forms have an element in common.
        """
        if word not in self._known:
            self._known[word] = self._forms(word)
        return self._known[word]

    def _forms(self, word: str) -> frozenset[tuple[str, str]]:
        lower = word.strip().casefold()
        if not any(map(str.isalnum, lower)):
            return frozenset()
        lemma = self._lemmatize(lower, lang=self.language)
        return frozenset({("stem", self._stemmer.stemWord(lower)), ("lemma", lemma.casefold())})
