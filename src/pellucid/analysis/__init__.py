"""What a model of any family does: audit, bias, report, cards, citations, comparison, topics."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.analysis.auditing import Thresholds as Thresholds, audit as audit
    from pellucid.analysis.bias_audit import bias as bias, report as report
    from pellucid.analysis.citing import (
        Citation as Citation,
        Citations as Citations,
        Support as Support,
        cite as cite,
    )
    from pellucid.analysis.clustering import topics as topics
    from pellucid.analysis.comparing import compare as compare
    from pellucid.analysis.dimension_cards import cards as cards
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.analysis.auditing": "Thresholds audit",
            "pellucid.analysis.bias_audit": "bias report",
            "pellucid.analysis.citing": "Citation Citations Support cite",
            "pellucid.analysis.clustering": "topics",
            "pellucid.analysis.comparing": "compare",
            "pellucid.analysis.dimension_cards": "cards",
        },
    )
