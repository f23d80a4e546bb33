r"""Ways to train an embedder, five seeds each: GritLM's exception, LLM2Vec's two steps, similarity and relatedness.

    python -m papers.keytokens.paradigms FOLDER --layers 4 --data shared/data --work-dir WORK --write

FOLDER holds a causal language model. Each way of Table 1 tunes it anew, and what came of it is measured as in Figures 2
and 3 and Table 5 of "A Text is Worth Several Tokens". Adapters of the last layers are trained; those below do not
change, and their states are computed once. Every seed has the same texts, in another order and with other adapters.
Figures are kept in WORK, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from papers.keytokens import tuning
from papers.keytokens.rates import EmbeddedTexts, literal_tokens, measure
from papers.keytokens.spectrum import variation
from papers.kit import Cell, Figure, Kept, Table, experiment, mean_interval, run_script, written
from papers.spectra import level
from papers.vector_cache import Vectors, unit_rows
from pellucid.core.pca import spectrum_of
from pellucid.keytokens.head import TokenHead
from pellucid.progress import length_batches
from pellucid.text.tables import read_texts
from pellucid.transformer.attention import set_attention

THINGS = (
    "apples", "dogs", "winter", "jazz", "football", "coffee", "my job", "this book", "the city", "old films", "math",
    "cooking", "the new phone", "rain", "spiders", "his paintings", "fast cars", "the teacher", "long walks", "cheese",
    "this song", "airports", "the sea", "poetry", "crowds", "chess", "her voice", "the government", "hospitals",
    "video games", "mushrooms", "public transport", "snow", "the hotel", "swimming", "silence", "garlic", "weddings",
    "the museum", "loud music",
)  # fmt: skip
STEPS, RATE, WARM_UP, BATCH, PREDICTED = 48, 2e-3, 10, 16, 16  # pairs a step, and texts of which tokens are predicted
HIDDEN = 0.2  # share of the tokens that MNTP masks
SENTENCES, LENGTH = 500, 48  # measured, and how many tokens of each


class Way(NamedTuple):
    """How an embedder is made of a language model.

    Attributes:
        causal: whether a token sees only what is before it.
        pairs: what is contrasted, in turn: "sentences" with themselves, "questions" with their answers; or nothing.
        masked: whether masked tokens are predicted first (MNTP).
        next_token: whether the next token is predicted beside the contrast, under causal attention (NTP).
    """

    causal: bool
    pairs: tuple[str, ...] = ()
    masked: bool = False
    next_token: bool = False


AS_IS, BOTH_SIDES = "as it is", "bidirectional, as it is"
SIMILARITY, RELATEDNESS = "causal, SCL on sentences", "causal, SCL on questions"
SCL, GRITLM, LLM2VEC = "bidirectional, SCL", "bidirectional, SCL and NTP", "bidirectional, MNTP, then SCL"
WAYS = {
    AS_IS: Way(causal=True),
    BOTH_SIDES: Way(causal=False),
    SCL: Way(causal=False, pairs=("sentences", "questions")),
    GRITLM: Way(causal=False, pairs=("sentences", "questions"), next_token=True),
    LLM2VEC: Way(causal=False, pairs=("sentences", "questions"), masked=True),
    RELATEDNESS: Way(causal=True, pairs=("questions",)),
    SIMILARITY: Way(causal=True, pairs=("sentences",)),
}
SEEDS = 5


class Read(NamedTuple):
    """Texts as the trained layers get them.

    Attributes:
        ids: of each text the start token and its own.
        states: of each text what the layers below make of it, [tokens, d].
        asked: of each text the places that are to be predicted.
    """

    ids: list[list[int]]
    states: list[torch.Tensor]
    asked: list[list[int]]


class Bench:
    """A language model cut in two, and the texts that it reads."""

    def __init__(self, folder: Path, data: Path, layers: int) -> None:
        """Open the model.

        Args:
            folder: of the language model.
            data: where the texts are.
            layers: how many last layers are trained, of a model with `layers` and `norm` as Llama has them.
        """
        from transformers import AutoTokenizer

        self.data, self.layers = data, layers
        self.tokenizer, self.model = AutoTokenizer.from_pretrained(folder), tuning.loaded(folder).eval()
        set_attention(self.model, "bidirectional")  # so that `states` decides it
        self.head = TokenHead(self.model.get_output_embeddings().weight.detach().float().numpy().copy(), self.tokenizer)
        base = self.model.base_model
        self.below = deepcopy(base)
        self.below.layers, self.below.norm = base.layers[:-layers], torch.nn.Identity()
        base.layers, self.model.config.num_hidden_layers = base.layers[-layers:], layers
        self._read = dict[tuple[str, bool, bool], Read]()

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """What is read, by name; no sentence that is measured trains anything."""
        count = STEPS * BATCH
        given = list(islice(read_texts(self.data / "raw_english/open_licence.txt.xz"), count + SENTENCES))
        questions, answers = zip(*tuning.questions(self.data)[:count])
        liked, disliked = ([f"I {verb} {thing}." for thing in THINGS] for verb in ("like", "dislike"))
        texts = {"sentences": given[:count], "measured": given[count:], "liked": liked, "disliked": disliked}
        return {**texts, "questions": list(questions), "answers": list(answers)}

    def read(self, name: str, *, causal: bool, masked: bool = False) -> Read:
        """Return texts as the trained layers get them, computed once."""
        key = name, causal, masked
        if key not in self._read:
            start, drawn = self.tokenizer.bos_token_id, np.random.default_rng(0)
            length = LENGTH if name == "measured" else tuning.LENGTH
            ids = [
                [start, *self.tokenizer.encode(text, add_special_tokens=False)[:length]] for text in self.texts[name]
            ]
            asked = [[n for n in range(1, len(row)) if not masked or drawn.random() < HIDDEN] for row in ids]
            mask = self.tokenizer.encode("_", add_special_tokens=False)[0]  # LLM2Vec's choice where none exists
            shown = [
                [mask if masked and n in hidden else token for n, token in enumerate(row)]
                for row, hidden in zip(ids, asked)
            ]
            self._read[key] = Read(ids, self._below(shown, causal), asked)
        return self._read[key]

    def _below(self, ids: list[list[int]], causal: bool) -> list[torch.Tensor]:
        table, found = self.model.get_input_embeddings(), dict[int, torch.Tensor]()
        with torch.no_grad():
            for batch in length_batches([len(row) for row in ids], BATCH):
                rows = [table(torch.tensor(ids[n])) for n in batch]
                states = layer_states(self.below, rows, causal)
                found |= {n: state[: len(row)].clone() for n, state, row in zip(batch, states, rows)}
        return [found[n] for n in range(len(ids))]

    def embed(self, model: Any, name: str, *, causal: bool) -> Vectors:
        """Return the mean states of texts, float32 [n, d]."""
        states = self.read(name, causal=causal).states
        found = np.zeros((len(states), states[0].shape[1]), np.float32)
        with torch.inference_mode():
            for batch in length_batches([len(row) for row in states], BATCH):
                found[batch] = mean_states(model, [states[n] for n in batch], causal).numpy()
        return found

    @cached_property
    def base(self) -> Vectors:
        """The embeddings of the sentences that are measured, by the model as it is."""
        return self.embed(self.model, "measured", causal=True)

    def trained(self, way: Way, seed: int) -> Any:
        """Return the model, trained."""
        torch.manual_seed(seed)
        model = tuning.with_adapters(deepcopy(self.model), self.layers)
        order = np.random.default_rng(seed).permutation(STEPS * BATCH).reshape(STEPS, BATCH)

        def predict(step: int, masked: bool) -> torch.Tensor:
            return self.prediction_loss(
                model, self.read("sentences", causal=not masked, masked=masked), order[step, :PREDICTED], not masked
            )

        def contrast(step: int) -> torch.Tensor:
            kind = way.pairs[step % len(way.pairs)]
            sides = ("questions", "answers") if kind == "questions" else ("sentences", "sentences")
            states = [self.read(side, causal=way.causal).states for side in sides]
            loss = tuning.contrastive(
                *(mean_states(model, [rows[n] for n in order[step]], way.causal) for rows in states)
            )
            return loss + predict(step, masked=False) if way.next_token else loss

        if way.masked:
            tuning.train(model, lambda step: predict(step, masked=True), STEPS, "MNTP", rate=RATE, warm_up=WARM_UP)
        if way.pairs:
            tuning.train(model, contrast, STEPS, str(way), rate=RATE, warm_up=WARM_UP)
        return model.eval()

    def prediction_loss(self, model: Any, read: Read, batch: Iterable[int], causal: bool) -> torch.Tensor:
        """Return the cross-entropy of the tokens asked for, each told from the state before its place."""
        hidden = layer_states(tuning.transformer_of(model), [read.states[n] for n in batch], causal)
        before = torch.cat([row[[place - 1 for place in read.asked[n]]] for row, n in zip(hidden, batch)])
        wanted = torch.tensor([read.ids[n][place] for n in batch for place in read.asked[n]])
        head = self.model.get_output_embeddings().weight.detach()
        return torch.nn.functional.cross_entropy((before @ head.T).float(), wanted)


def layer_states(transformer: Any, rows: list[torch.Tensor], causal: bool) -> torch.Tensor:
    """Return the states of texts, [n, longest, d], whatever way the model's attention looks by itself."""
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    places = torch.arange(padded.shape[1])
    seen = (places < torch.tensor([len(row) for row in rows])[:, None])[:, None, None, :]
    seen = seen & (places[:, None] >= places) if causal else seen.expand(-1, -1, len(places), -1)
    mask = torch.where(seen, 0.0, torch.finfo(padded.dtype).min).to(padded.dtype)
    states: torch.Tensor = transformer(inputs_embeds=padded, attention_mask=mask, use_cache=False).last_hidden_state
    return states


def mean_states(model: Any, rows: list[torch.Tensor], causal: bool) -> torch.Tensor:
    """Return the mean state of each text behind its start token, float32 [n, d]."""
    states = layer_states(tuning.transformer_of(model), rows, causal).float()
    return torch.stack([state[1 : max(len(row), 2)].mean(dim=0) for state, row in zip(states, rows)])


def grid() -> Iterator[dict[str, Any]]:
    """Yield the settings of each row: all seeds of what is trained, attention to both sides first."""
    yield from ({"way": name, "seed": 0} for name in (AS_IS, BOTH_SIDES))
    for causal, seed, (name, way) in product((False, True), range(SEEDS), WAYS.items()):
        if way.pairs and way.causal == causal:
            yield {"way": name, "seed": seed}


@experiment(*grid())
def ways(bench: Bench, seed: int, way: str) -> dict[str, Any]:
    """Return the rates of Figure 2, the components of Figure 3 and the cosines of Table 5."""
    chosen, texts = WAYS[way], bench.texts["measured"]
    model = bench.trained(chosen, seed)
    rows, liked, disliked = (
        bench.embed(model, name, causal=chosen.causal) for name in ("measured", "liked", "disliked")
    )
    own, found = literal_tokens(bench.tokenizer, texts), dict[str, Any]()
    centred = rows - rows.mean(axis=0)
    for name, given in (("plain", rows), ("centred", centred), ("another", np.roll(centred, -1, axis=0))):
        one = measure(name, EmbeddedTexts(texts, given, own, bench.head.weight, bench.head.tokens), stems=None)
        found |= {f"{name} {rate}": 100 * getattr(one, rate) for rate in ("hit", "lar", "gar", "weighted_lar")}
    moved = variation(bench.base, rows)
    found |= {"v1": moved.components[0].variation, "dominance": 100 * moved.dominance}
    found["level"] = level(spectrum_of(bench.base))
    liked, disliked = (unit_rows(side - rows.mean(axis=0)) for side in (liked, disliked))
    found["opposite"] = 100 * float((liked * disliked).sum(axis=1).mean())
    return found | {"other": 100 * float((liked * np.roll(liked, -1, axis=0)).sum(axis=1).mean())}


# --- The page ---------------------------------------------------------------------------------------------------------

Side = tuple[str, str]
"""A way and a figure of its rows."""

CLAIMS: list[tuple[str, Side, Side, str]] = [
    ("SCL lowers the first component (Observation 1)", (AS_IS, "v1"), (SCL, "v1"), "all but LLaMA-EOL and GritLM"),
    ("MNTP, then SCL lowers it (LLM2Vec)", (AS_IS, "v1"), (LLM2VEC, "v1"), "a decrease"),
    ("SCL and NTP together raise it (GritLM)", (GRITLM, "v1"), (AS_IS, "v1"), "a small increase"),
    ("NTP beside SCL keeps it higher than SCL alone", (GRITLM, "v1"), (SCL, "v1"), "the cause that is supposed"),
    ("SCL lowers it, beside the same attention (ours)", (BOTH_SIDES, "v1"), (SCL, "v1"), "-"),
    ("SCL and NTP raise it, beside the same attention (ours)", (GRITLM, "v1"), (BOTH_SIDES, "v1"), "-"),
    ("SCL raises GAR (Figure 2)", (SCL, "plain gar"), (AS_IS, "plain gar"), "for all eight embedders"),
    ("SCL and NTP raise GAR (Figure 2)", (GRITLM, "plain gar"), (AS_IS, "plain gar"), "for all eight embedders"),
    ("MNTP, then SCL raises GAR (Figure 2)", (LLM2VEC, "plain gar"), (AS_IS, "plain gar"), "for all eight embedders"),
    ("SCL raises GAR, beside the same attention (ours)", (SCL, "plain gar"), (BOTH_SIDES, "plain gar"), "-"),
    (
        "MNTP, then SCL raises GAR, beside the same attention (ours)",
        (LLM2VEC, "plain gar"),
        (BOTH_SIDES, "plain gar"),
        "-",
    ),
    ("MNTP before SCL: a higher GAR than SCL alone (ours)", (LLM2VEC, "plain gar"), (SCL, "plain gar"), "-"),
    (
        "MNTP, then SCL: centred, the first ten tokens hold one of the text more often than of another text (control)",
        (LLM2VEC, "centred hit"),
        (LLM2VEC, "another hit"),
        "a high Hit@10, no control",
    ),
    (
        "Liking and disliking are nearer when tuned for relatedness than for similarity (Table 5)",
        (RELATEDNESS, "opposite"),
        (SIMILARITY, "opposite"),
        "0.816 and 0.419",
    ),
    ("The same, beside two things liked", (RELATEDNESS, "beside"), (SIMILARITY, "beside"), "-"),
]
"""What is claimed: that the first side is above the second, and what the paper has."""


def values_of(rows: Sequence[Mapping[str, Any]], side: Side) -> Vectors:
    """Return a figure of a way, one a seed."""
    return np.array([row[side[1]] for row in rows if row["way"] == side[0]], np.float32)


def figures(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows of Table 1 and Table 5; a claim whose ways were not all measured is left out."""
    rates = {
        "Hit@10": "plain hit", "LAR": "plain lar", "GAR": "plain gar", "weighted LAR": "plain weighted_lar",
        "GAR, centred": "centred gar", "v1": "v1", "v1's share of v": "dominance",
    }  # fmt: skip
    cosines = {"like and dislike": "opposite", "two things liked": "other"}
    rows = [{**row, "beside": row["opposite"] - row["other"]} for row in rows]
    for of_table5, columns, label in ((False, rates, "claims"), (True, cosines, "opposites")):
        chosen = [row for row in rows if (row["way"] in (RELATEDNESS, SIMILARITY)) == of_table5]
        if chosen:
            yield "tunings" if of_table5 else "ways", table_of(chosen, columns)
            heads = ["claim", "measured here", "difference", "the paper", "verdict"]
            yield label, Table(heads, list(claims_of(chosen)), len(heads))
    yield "level", f"{rows[0]['level']:.1f}"


def table_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    """Return the mean of each way over seeds, and half of its 95 % interval."""
    lines = []
    for name in dict.fromkeys(row["way"] for row in rows):
        found = [mean_interval(values_of(rows, (name, figure))) for figure in columns.values()]
        lines.append(
            [name, *(f"{i.value:.1f}" + f" ± {(i.high - i.low) / 2:.1f}" * bool(WAYS[name].pairs) for i in found)]
        )
    return Table(["", *columns], lines)


def claims_of(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Cell]]:
    """Yield what came of each claim."""
    names = {row["way"] for row in rows}
    for text, above, below, paper in CLAIMS:
        if {above[0], below[0]} <= names:
            sides = values_of(rows, above), values_of(rows, below)
            gain = mean_interval(sides[0] - sides[1], n_seeds=max(map(len, sides)))
            means = " and ".join(f"{side.mean():.1f}" for side in sides)
            yield [text, means, gain.signed(), paper, gain.difference_verdict()]


def run(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is missing and yield what the page shows."""
    bench = Bench(options.model, options.data, options.layers)
    kept = Kept(options.work_dir / f"paradigms-{options.model.name}-.jsonl")
    chosen = [row for row in ways.grid if row["way"] in options.only]
    yield from figures(replace(ways, grid=chosen).rows(kept, bench))
    yield "tuning", f"{STEPS} steps of {BATCH} pairs, adapters of the last {options.layers} layers at a rate of {RATE}"
    yield "written", written("torch", "peft")


if __name__ == "__main__":
    run_script(
        run,
        {
            "model": {"type": Path, "help": "folder of a causal language model"},
            "--layers": {"type": int, "required": True, "help": "train adapters of so many last layers"},
        },
        data="raw_english/ and retrieval_train/",
        work_dir="figures",
        only=WAYS,
        threads=1,
    )
