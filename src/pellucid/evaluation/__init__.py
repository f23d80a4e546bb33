"""How good a model is: MTEB on local data or the hub's."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.evaluation.evaluating import MtebEncoder as MtebEncoder, evaluate as evaluate
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.evaluation.evaluating": "MtebEncoder evaluate",
        },
    )
