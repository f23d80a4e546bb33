"""Texts and tables from files of any kind, size and encoding: lines, cells, JSON, Parquet and workbooks as rows."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.files.corpus_file import CorpusFile as CorpusFile
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
