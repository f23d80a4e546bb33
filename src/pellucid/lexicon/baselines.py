"""What the LENS paper measures itself against, on any backbone and with the same interface (sections 2 and 3.1).

    splade            log(1 + relu(logit)), max over the text's tokens, one dimension a token (Formal et al.)
    echo              the same on a text that is given twice, of which the second is pooled, so that a model that reads
                      from left to right has seen all of it (Mistral-SPLADE, Doshi et al., after Springer et al.)
    promptreps        the logits of the next word after a prompt that asks for one word (Zhuang et al.)
    promptreps_dense  its dense half: the state these logits come from
    dense             the state at the last position, or the mean of the text's own tokens

None of them is trained here: the papers' SPLADE and Mistral-SPLADE are, and train on from these with `train_lexicon`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pellucid.base import Embedder
from pellucid.errors import InputError
from pellucid.lexicon.clusters import Clusters, cluster_vocabulary
from pellucid.lexicon.dense import DenseEmbedder
from pellucid.lexicon.embedder import LexiconEmbedder
from pellucid.transformer.attention import is_causal_lm
from pellucid.transformer.backbone import Backbone, open_backbone, read_transformer_config
from pellucid.transformer.reading import Settings

ECHO_SETTINGS = Settings(
    template="Document: {text}\nDocument again: {text}",
    query_template="Query: {text}\nQuery again: {text}",
    instructed_template="Instruct: {instruction},\nQuery: {text}\nQuery again: {text}",
)
"""The templates of "Repetition Improves Language Model Embeddings", with the space that their tokenizer puts in."""

_SYSTEM = "You are an AI assistant that can understand human language."
_ASKED = (
    '{kind}: "{{text}}". Use one most important word to represent the {noun} in retrieval task. '
    "Make sure your word is in lowercase."
)
_ANSWER = 'The word is: "'
_MOST_WORDS = 128  # tokens of a text that PromptReps keeps


def splade(backbone: Backbone, settings: Settings | None = None) -> LexiconEmbedder:
    """Return a model with one dimension for each token of the vocabulary: a lexicon model without clusters.

    Args:
        backbone: an encoder, as in SPLADE, or a causal language model.
        settings: None takes the defaults. As everywhere here, special tokens are not pooled; SPLADE pools them.
    """
    return LexiconEmbedder(backbone, _unclustered(backbone), settings)


def echo(backbone: Backbone, clusters: Clusters | None = None, *, settings: Settings | None = None) -> LexiconEmbedder:
    """Return a model that is given each text twice and pools the second time.

    Args:
        backbone: a causal language model with attention="causal"; where attention looks both ways the first time is
            of no use.
        clusters: its head; None takes each token on its own, as Mistral-SPLADE does.
        settings: None takes `ECHO_SETTINGS`. A text may have half the tokens of `max_length`.

    Raises:
        InputError: a template of the settings holds the text once only.
    """
    chosen = settings or ECHO_SETTINGS
    for template in (chosen.template, chosen.query_template or chosen.template, chosen.instructed_template):
        if template.count("{text}") < 2:
            raise InputError(f"echo needs templates that hold {{text}} twice, got {template!r:.80}")
    return LexiconEmbedder(backbone, clusters or _unclustered(backbone), chosen)


def promptreps(backbone: Backbone, *, max_length: int | None = None) -> LexiconEmbedder:
    """Return PromptReps' sparse half: a text weighs its own words by how likely they are the one word asked for.

    Kept are the tokens of the text's own words (`Settings.own_words`), at most 128. Unlike in the published code the
    weights are not rounded to whole hundredths, and the score is the cosine, not the product. Queries are asked about
    as a query, documents as a passage; an instruction is not told.

    Args:
        backbone: a causal language model with attention="causal", best one that follows instructions: its chat
            template is used where the tokenizer has one.
        max_length: tokens read at most, with the prompt; None is what the model can read, at most 512.

    Raises:
        InputError: the backbone is no causal language model, or attention looks both ways.
    """
    return LexiconEmbedder(backbone, _unclustered(backbone), _asking(backbone, max_length))


def promptreps_dense(backbone: Backbone, *, max_length: int | None = None) -> DenseEmbedder:
    """Return PromptReps' dense half: the last state at the position that predicts the word.

    Args:
        backbone: as of `promptreps`.
        max_length: as there.

    Raises:
        InputError: as there.
    """
    return DenseEmbedder(backbone, _asking(backbone, max_length), pooling="last")


BASELINES: dict[str, Callable[[Backbone], Embedder]] = {
    "splade": splade,
    "echo": echo,
    "promptreps": promptreps,
    "promptreps-dense": promptreps_dense,
    "dense-last": partial(DenseEmbedder, pooling="last"),
    "dense-mean": partial(DenseEmbedder, pooling="mean"),
}
"""Name -> what makes the baseline of a backbone."""


def open_baseline(spec: str) -> Embedder:
    """Open a transformer and make a baseline of it.

    Args:
        spec: a name of `BASELINES`, a colon, and a folder or hub id, as "echo:mistralai/Mistral-7B-v0.1". Causal
            language models keep their causal attention.

    Raises:
        InputError: there is no such baseline, or it cannot be made of this model.
        ModelFolderError: no transformer is there.
        MissingExtraError: torch or transformers is not installed.
    """
    name, _, place = spec.partition(":")
    if name not in BASELINES or not place:
        raise InputError(f"no baseline {spec!r}: give NAME:FOLDER_OR_ID, the name one of {', '.join(BASELINES)}")
    causal = is_causal_lm(read_transformer_config(place))
    return BASELINES[name](open_backbone(place, attention="causal" if causal else "bidirectional"))


def _unclustered(backbone: Backbone) -> Clusters:
    return cluster_vocabulary(backbone.head, backbone.tokenizer, None)


def _asking(backbone: Backbone, max_length: int | None) -> Settings:
    """Return settings that ask for one word and pool at the position that predicts it."""
    if not backbone.predicts_next or backbone.attention != "causal":
        problem = (
            "reads in both directions: open it with attention='causal'" if backbone.predicts_next else "predicts none"
        )
        raise InputError(f"PromptReps asks a causal language model for the next word; this backbone {problem}")
    document, query = (_prompt(backbone.tokenizer, kind) for kind in ("Passage", "Query"))
    settings = Settings("last", shift=True, end_token=False, template=document, query_template=query)
    return replace(
        settings, instructed_template=query, max_length=max_length, max_active_dims=_MOST_WORDS, own_words=True
    )


def _prompt(tokenizer: Any, kind: str) -> str:
    """Return the published prompt around `{text}`, in the tokenizer's chat format where it has one."""
    asked = _ASKED.format(kind=kind, noun=kind.lower())
    if not getattr(tokenizer, "chat_template", None):
        return f"{_SYSTEM} {asked} {_ANSWER}"
    from jinja2 import TemplateError

    answer = {"role": "assistant", "content": _ANSWER}
    told = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": asked}, answer]
    try:
        prompt = _rendered(tokenizer, told)
    except TemplateError:  # no system's turn in this format; the published prompt for Mistral does the same
        prompt = _rendered(tokenizer, [{"role": "user", "content": f"{_SYSTEM} {asked}"}, answer])
    return prompt.removeprefix(tokenizer.bos_token or "")  # the reader puts it there


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True))
