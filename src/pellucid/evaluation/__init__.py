"""How good a model is: MTEB on local data or the hub's."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.evaluation.evaluating import (
        MtebEncoder as MtebEncoder,
        Results as Results,
        TaskScore as TaskScore,
        cache_key as cache_key,
        default_cache as default_cache,
        evaluate as evaluate,
    )
    from pellucid.evaluation.tasks import (
        LocalTask as LocalTask,
        ScoredPairs as ScoredPairs,
        find_tasks as find_tasks,
        make_task as make_task,
        quiet as quiet,
        read_records as read_records,
        read_sts as read_sts,
        read_table as read_table,
    )
else:
    __getattr__, __dir__, __all__ = lazy(__name__, __file__)
