"""How good the clusters of a vocabulary are, in figures and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pellucid.lexicon.clusters import Clusters


class ClusterReport:
    """How good clusters are: sizes, dead ones, those named by shards alone, and examples."""

    def __init__(self, clusters: Clusters, explained: float | None) -> None:
        """Take the clusters and the share of the rows' variance that they explain, None where rows are not known."""
        self._clusters = clusters
        sizes = clusters.sizes
        self.k = len(clusters)
        self.tokens = int(sizes.sum())
        self.outside = int((clusters.assignment < 0).sum())
        self.dead = np.flatnonzero(sizes == 0).tolist()
        self.singles = int((sizes == 1).sum())
        self.median_size = float(np.median(sizes)) if self.k else 0.0
        self.largest = np.argsort(-sizes, kind="stable")[:5].tolist()
        self.shards_only = [n for n, words in enumerate(clusters.words) if words and words[0].startswith("…")]
        self.explained = explained

    def examples(self, count: int = 10, *, seed: int = 0) -> list[tuple[str, ...]]:
        """Return the words of `count` clusters of two tokens or more, drawn at random."""
        several = np.flatnonzero(self._clusters.sizes > 1)
        drawn = np.random.default_rng(seed).permutation(several)[:count]
        return [self._clusters.words[number] for number in sorted(drawn)]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __str__(self) -> str:
        """Return the figures as lines of text, with the largest clusters and ten examples."""
        sizes, words = self._clusters.sizes, self._clusters.words
        lines = [
            f"{self.k:,} clusters of {self.tokens:,} tokens; {self.outside:,} tokens are in none",
            f"size: median {self.median_size:g}, largest {int(sizes.max(initial=0)):,}; of one token: {self.singles:,}",
            f"dead (no token): {len(self.dead):,}; named by shards alone: {len(self.shards_only):,}",
        ]
        if self.explained is not None:
            lines.append(f"variance of the rows explained: {self.explained:.1%}")
        lines += [f"largest: {int(sizes[n]):,} tokens: {', '.join(words[n][:8])}" for n in self.largest]
        return "\n".join([*lines, *(f"example: {', '.join(example[:8])}" for example in self.examples())])
