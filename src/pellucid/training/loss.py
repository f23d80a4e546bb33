"""What a lexicon model is trained for: its queries' texts near, all others far, and a teacher's opinion shared.

After the LENS paper, section 3.3, but for habits of its code: a text that belongs to a query is never counted against
it because another row of the batch holds it too, negatives are not repeated where a row has few, a teacher's scores
count for every type of row, and which types have the batch's texts as negatives is the paper's rule (`TrainingSet`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pellucid.distillation.refinement import similarity_loss
from pellucid.errors import missing_extra

try:
    import torch
    from sentence_transformers.base.losses.gradcache import CachedLossMixin
    from sentence_transformers.util.distributed import all_gather, all_gather_with_grad, get_rank, get_world_size
    from torch.nn import functional
except ImportError as error:
    raise missing_extra(error.name or "torch", "torch") from error

_OUT = -1e9  # a logit that is left out; -inf would make 0 * inf of what the teacher leaves out as well


class Candidates(NamedTuple):
    """What is known of a batch's candidates, of which row i owns i * G to i * G + G, its positive first.

    Attributes:
        excluded: bool [B, N], candidates that are no negatives of a row: they belong to it, or only fill its group.
        scores: float32 [B, G], a teacher's scores of each row's own candidates; NaN where there are none.
    """

    excluded: torch.Tensor
    scores: torch.Tensor


def excluded_candidates(
    texts: torch.Tensor, fillers: torch.Tensor, positives: torch.Tensor, own: torch.Tensor
) -> torch.Tensor:
    """Return bool [B, N], which candidates are no negatives of a row.

    Args:
        texts: int64 [N], one number for each text.
        fillers: bool [N], candidates that only fill a group.
        positives: int64 [B, P], the numbers of the texts that belong to each row, padded by repeating one.
        own: int64 [B], where each row's own positive stands, which is not excluded.
    """
    known = torch.stack([torch.isin(texts, row) for row in positives]) | fillers
    return known.scatter(1, own[:, None], False)


def candidate_loss(
    queries: torch.Tensor,
    texts: torch.Tensor,
    candidates: Candidates,
    *,
    temperature: float,
    in_batch: bool,
    distillation: float,
    first: int = 0,
) -> torch.Tensor:
    """Return InfoNCE over cosines, plus `distillation` times the divergence from the teacher.

        contrast      mean_i  -log softmax_n(cos(q_i, c_n) / temperature) at the row's positive
        distillation  mean_i  KL(softmax_j(score_ij) || softmax_j(cos(q_i, c_j) / temperature)) over own candidates

    The published code uses the teacher's cross-entropy, which differs by a constant and has the same gradient.

    Args:
        queries: [B, k], of length 1.
        texts: [N, k], of length 1.
        candidates: which of them count for which row, and the teacher's scores.
        temperature: what cosines are divided by.
        in_batch: compare with all candidates; False: with the row's own.
        distillation: weight of the teacher; a row without scores adds nothing.
        first: the number of the first row's group among the candidates, where they are of several devices.
    """
    group = candidates.scores.shape[1]
    cosines = queries @ texts.t() / temperature
    cosines = cosines.masked_fill(candidates.excluded, _OUT)
    rows = torch.arange(first, first + len(queries), device=queries.device)
    own = rows[:, None] * group + torch.arange(group, device=queries.device)
    own_cosines = cosines.gather(1, own)
    if in_batch:
        loss = functional.cross_entropy(cosines, own[:, 0])
    else:
        loss = functional.cross_entropy(own_cosines, torch.zeros_like(rows))
    out = candidates.excluded.gather(1, own)
    scored = (torch.isfinite(candidates.scores) | out).all(dim=1) & ((~out).sum(dim=1) > 1)
    if distillation and bool(scored.any()):
        teacher = candidates.scores.masked_fill(out, _OUT)[scored].log_softmax(dim=1)
        student = own_cosines[scored].log_softmax(dim=1)
        loss = loss + distillation * functional.kl_div(student, teacher, reduction="sum", log_target=True) / len(
            queries
        )
    return loss


class _Cached(CachedLossMixin, torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A loss over embeddings that are made at once, or `chunk` texts at a time with cached gradients."""

    def __init__(self, model: Any, chunk: int | None) -> None:
        super().__init__()
        self.model = model
        self.uses_gradient_cache = chunk is not None
        self.mini_batch_size = chunk or 0

    def _over(self, features: list[dict[str, Any]], facts: Any) -> torch.Tensor:
        if self.uses_gradient_cache:
            loss: torch.Tensor = self.forward_cached(features, facts)
            return loss
        return self.calculate_loss([[self.model(feature)["sentence_embedding"]] for feature in features], facts)

    def calculate_loss(
        self, reps: list[list[torch.Tensor]], labels: Any = None, *, with_backward: bool = False
    ) -> torch.Tensor:
        """Return the loss of embeddings, in float32 whatever autocast wants; a cosine over 0.02 needs it."""
        with torch.autocast(reps[0][0].device.type, enabled=False):
            loss = self.value([torch.cat(parts).float() for parts in reps], labels)
        if with_backward:
            loss.backward()
            loss = loss.detach()
        return loss

    def value(self, embeddings: list[torch.Tensor], facts: Any) -> torch.Tensor:
        """Return the loss of whole columns of embeddings."""
        raise NotImplementedError


class CandidateLoss(_Cached):
    """`candidate_loss` for the trainer of sentence-transformers; negatives come from all devices."""

    def __init__(
        self, model: Any, *, temperature: float, in_batch: bool, distillation: float, chunk: int | None
    ) -> None:
        """Take the model and what `candidate_loss` takes; `chunk` texts are embedded at once, None for all."""
        super().__init__(model, chunk)
        self.temperature, self.in_batch, self.distillation = temperature, in_batch, distillation

    def forward(self, sentence_features: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch as the collator makes it: queries, candidates, and teacher scores as labels."""
        queries, texts = list(sentence_features)
        return self._over([queries, texts], (labels, queries["positives"], texts["number"], texts["filler"]))

    def value(self, embeddings: list[torch.Tensor], facts: Any) -> torch.Tensor:
        """Return `candidate_loss` of query and candidate embeddings."""
        (queries, texts), (scores, positives, numbers, fillers) = embeddings, facts
        first = 0
        if get_world_size() > 1 and self.in_batch:
            first = get_rank() * len(queries)
            texts = all_gather_with_grad(texts)
            numbers, fillers = all_gather(numbers), all_gather(fillers)
        own = (torch.arange(len(queries), device=queries.device) + first) * scores.shape[1]
        return candidate_loss(
            queries,
            texts,
            Candidates(excluded_candidates(numbers, fillers, positives, own), scores),
            temperature=self.temperature,
            in_batch=self.in_batch,
            distillation=self.distillation,
            first=first,
        )


class SimilarityLoss(_Cached):
    """Draws the cosines among a batch of texts to those of a teacher's vectors, for text without labels."""

    def __init__(self, model: Any, *, temperature: float, chunk: int | None) -> None:
        """Take the model, what cosines of both are divided by, and how many texts are embedded at once."""
        super().__init__(model, chunk)
        self.temperature = temperature

    def forward(self, sentence_features: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch: texts, and the teacher's vectors [B, d] as labels."""
        return self._over(list(sentence_features), labels)

    def value(self, embeddings: list[torch.Tensor], facts: Any) -> torch.Tensor:
        """Return the cross-entropy between rows of the two cosine matrices, diagonals left out."""
        return similarity_loss(embeddings[0], functional.normalize(facts.float(), dim=1), self.temperature)
