"""How good a model is: MTEB on local data or the hub's, and how well translations are found."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.evaluation.bitext import (
        MinedPairs as MinedPairs,
        TranslationScores as TranslationScores,
        f1_in_all as f1_in_all,
        mine_pairs as mine_pairs,
        mining_f1 as mining_f1,
        translation_scores as translation_scores,
    )
    from pellucid.evaluation.evaluating import (
        Results as Results,
        TaskScore as TaskScore,
        default_cache as default_cache,
        evaluate as evaluate,
        cache_key as cache_key,
        open_any as open_any,
        sts_spearman as sts_spearman,
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
