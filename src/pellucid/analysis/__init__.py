"""Questions to a model of any family: audit, cards, comparison, ranking, contrast, deletion test, frequencies."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.analysis.auditing import Audit as Audit, Finding as Finding, Thresholds as Thresholds, audit as audit
    from pellucid.analysis.comparing import Comparison as Comparison, compare as compare
    from pellucid.analysis.coordinates import Frequencies as Frequencies, document_frequencies as document_frequencies
    from pellucid.analysis.deletion import DeletionTest as DeletionTest, deletion_test as deletion_test
    from pellucid.analysis.dimension_cards import Card as Card, Cards as Cards, cards as cards
    from pellucid.analysis.groups import Contrast as Contrast, Contrasts as Contrasts, contrast as contrast
    from pellucid.analysis.ranking import Ranking as Ranking, rank as rank
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
