"""Text: words and their forms, sentences, and the texts and tables of files of any kind, size and encoding."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.text.tables import CorpusFile as CorpusFile
    from pellucid.text.words import Coverage as Coverage, split_words as split_words
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.text.tables": "CorpusFile",
            "pellucid.text.words": "Coverage split_words",
        },
    )
