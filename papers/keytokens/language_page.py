"""Tables and claims of key tokens of a language model, from what papers/keytokens/language_model.py measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from papers.kit import (
    Claim,
    Figure,
    Interval,
    Table,
    Verdict,
    bootstrap,
    by_claim,
    interval_of,
    interval_of_means,
    wrapped,
)
from papers.retrieval_sets import TITLES

Values = Mapping[str, Any]
PLAIN, TUNED = "as it is", "tuned"
_NAMES = {"weighted_mean": "weighted mean", "prompt_eol": "PromptEOL"}
POOLINGS = ("mean", "weighted mean", "last", "PromptEOL")
_DRAWS = 2000
_TUNING_SEEDS = 1
"""Trainings of the tuned model: what tuning does is not decided by one."""


def interval(rate: float, error: float) -> str:
    """Write a rate in percent with half of its 95 % interval."""
    return f"{100 * rate:.1f} ± {196 * error:.1f}"


def hit_error(row: Mapping[str, Any]) -> float:
    """Return the standard error of Hit@K, a share of the texts."""
    return float(np.sqrt(row["hit"] * (1 - row["hit"]) / row["texts"]))


def rate_rows(values: Values) -> dict[str, dict[str, Any]]:
    """Return all rates: model, pooling and adjustment -> rates."""
    found = {}
    for row in values["rates"]:
        for kind, one in row["rates"].items():
            name = f"{row['name']}, {_NAMES.get(row['pooling'], row['pooling'])}, {kind}"
            found[name.replace(", plain", "")] = one
    return found


def rates_table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return rates with their intervals."""
    columns = ["embedding", "Hit@10", "LAR", "GAR", "weighted LAR", "in the text", "same stem", "different tokens"]
    lines = []
    for name, row in rows.items():
        cells = [interval(row["hit"], hit_error(row)), interval(row["lar"], row["lar_error"])]
        rates = (100 * row[rate] for rate in ("gar", "weighted_lar", "literal", "stem"))
        lines.append([name, *cells, *rates, f"{row['distinct']:,}"])
    return Table(columns, lines)


def lar_gain(one: Mapping[str, Any], other: Mapping[str, Any]) -> Interval:
    """Return how much the first LAR is above the second, with its interval over the texts."""
    return interval_of_means(one["lar"] - other["lar"], one["lar_error"], other["lar_error"])


def both(one: bool | None, other: bool | None) -> Verdict:
    """Return the verdict on two claims together."""
    return Verdict.from_truth(False if one is False or other is False else True if one and other else None)


def share(part: Any, whole: Any) -> Interval:
    """Return the share of one mean in another, in percent, and its bootstrap interval over queries."""

    def shares(queries: Any) -> Any:
        ones, others = queries[..., 0].sum(axis=-1), queries[..., 1].sum(axis=-1)
        return 100 * ones / np.maximum(others, 1e-9)

    return interval_of(bootstrap(np.stack([part, whole], axis=-1), shares, _DRAWS))


def said_share(part: Any, whole: Any) -> str:
    """Write a share with its interval."""
    return "{:.0f}% [{:.0f}, {:.0f}]".format(*share(part, whole))


def cell(found: Mapping[str, Any], k: int, m: int) -> Any:
    """Return nDCG@10 of each query at K and M."""
    return next(one["each"] for one in found["grid"] if (one["k"], one["m"]) == (k, m))


# --- Claims -----------------------------------------------------------------------------------------------------------


def alignment_claims(values: Values) -> Iterator[Claim]:
    """Yield what holds of section 3."""
    rows = rate_rows(values)
    mean, centred = rows[f"{PLAIN}, mean"], rows[f"{PLAIN}, mean, centred"]
    other, control = rows[f"{PLAIN}, mean, of another text"], rows[f"{PLAIN}, mean, centred, of another text"]
    for name, own, another in (("", mean, other), (", centred", centred, control)):
        errors = hit_error(own), hit_error(another)
        yield Claim(
            f"The first ten tokens hold one of the text (Figure 2), more often than of another text (control){name}",
            both(interval_of_means(own["hit"] - another["hit"], *errors).above(), lar_gain(own, another).above()),
            f"Hit@10 {interval(own['hit'], errors[0])} against {interval(another['hit'], errors[1])}; LAR "
            f"{interval(own['lar'], own['lar_error'])} against {interval(another['lar'], another['lar_error'])}",
            "-" if name else "high for all but LLaMA; a figure without numbers, no control",
        )
    yield from tuning_claims(rows)
    yield Claim(
        "Without any tuning, subtracting the mean embedding raises GAR (ours)",
        Verdict.NO_INTERVAL,
        f"{_change('gar', mean, centred)}, weighted LAR {_change('weighted_lar', mean, centred, '')}",
    )


def _change(rate: str, before: Mapping[str, Any], after: Mapping[str, Any], name: str = "GAR ") -> str:
    """Write how a rate changes, in percent."""
    return f"{name}{100 * before[rate]:.1f} to {100 * after[rate]:.1f}"


_LOWERED = {"PromptEOL": "section 3.3, of prompted models"}
"""Poolings of which the paper says that tuning lowers LAR; of the others it says that LAR is low and GAR rises."""


def tuning_claims(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Claim]:
    """Yield what tuning does to the rates, for each pooling."""
    for pooling in POOLINGS:
        before, after = (rows[f"{model}, {pooling}"] for model in (PLAIN, TUNED))
        yield Claim(
            "Tuning for embedding raises GAR (section 3.3)",
            Verdict.NO_INTERVAL,
            _change("gar", before, after),
            "for all eight embedders",
            pooling,
        )
        yield Claim(
            f"Tuning for embedding lowers LAR ({_LOWERED.get(pooling, 'ours')})",
            lar_gain(before, after)._replace(n_seeds=_TUNING_SEEDS).verdict(),
            f"LAR {interval(before['lar'], before['lar_error'])} to {interval(after['lar'], after['lar_error'])}",
            "lower, for OPT and LLaMA" if pooling in _LOWERED else "low for all, no direction",
            pooling,
        )


def spectrum_claims(values: Values) -> Iterator[Claim]:
    """Yield what holds of section 4."""
    found, moved = values["spectrum"], values["adjusted"]
    yield Claim(
        "What tuning changes is mainly the first principal component (Observation 1): more than half "
        "of the squared length of v",
        Verdict.NO_INTERVAL,
        f"v_1 {found['first']:+.2f}, {found['dominance']:.0%} of v",
        "v_1 = -50.02, GPT-Neo 1.3B to SGPT-nli",
    )
    first, rest = moved["parts"]["first component"], moved["parts"]["rest"]
    yield Claim(
        "The first component gives tokens without meaning (Observation 2): less weighted LAR than the rest",
        Verdict.NO_INTERVAL,
        f"weighted LAR {100 * first['weighted_lar']:.1f}, {first['distinct']} different tokens; the rest "
        f"{100 * rest['weighted_lar']:.1f}, {rest['distinct']:,}",
        "one text",
    )
    before, after = moved["steps"]["0"], moved["steps"]["1"]
    yield Claim(
        "Changing the first component alone, by v_1, brings key tokens to the top (Hypothesis 1): GAR and weighted LAR "
        "rise",
        Verdict.NO_INTERVAL,
        f"{_change('gar', before, after)}, weighted LAR {_change('weighted_lar', before, after, '')}",
        "one text",
    )


def retrieval_claims(values: Values, fixed: tuple[int, int]) -> Iterator[Claim]:
    """Yield what holds of section 5.1, for each set and model."""
    for name, lines in retrieval(values).items():
        for model in (PLAIN, TUNED):
            own, random = lines[model, "own"], lines[model, "random"]
            parts = [cell(one, fixed[0], m) for m in (fixed[1], 0) for one in (own, random)]
            kept, drawn, literal, nothing = (said_share(part, whole(own)) for part in parts)
            where = f"{name}, {model}"
            gains = [share(np.subtract(parts[n], parts[n + 1]), whole(own)).verdict() for n in (0, 2)]
            yield Claim(
                "Sparse retrieval keeps 80 % of the dense score (Table 3)",
                share(parts[0], whole(own)).verdict(80),
                f"{kept} at K {fixed[0]:,}, M {fixed[1]}",
                "76 to 89 %, best of the grid",
                where,
            )
            yield Claim(
                "Sparse retrieval finds more by key tokens than with random rows (control, ours)",
                gains[0],
                f"{kept}; random rows {drawn}",
                where=where,
            )
            yield Claim(
                "The query's own tokens alone (M = 0) find documents by their key tokens (ours)",
                gains[1],
                f"{literal} of the dense score; with random rows {nothing}",
                where=where,
            )


def instruction_claims(values: Values) -> Iterator[Claim]:
    """Yield what holds of section 5.2."""
    for key, found in values.items():
        if not key.startswith("table 4 | "):
            continue
        said = [f"{rows[0][1]:.3f} and {rows[0][2]:.3f}" for rows in found["cosines"]]
        yield Claim(
            "An instruction on emotions makes the happy text 3 nearer to 1 than the unhappy 2 is, and the first tokens "
            "tell them apart (Table 4, three texts)",
            Verdict.NO_INTERVAL,
            f"cosines of 1 with 2 and 3: {said[0]}; instructed {said[1]}, first tokens {', '.join(found['first'])}",
            "0.821 and 0.718; instructed 0.814 and 0.829, Joy, sad, joy",
            key.removeprefix("table 4 | "),
        )


# --- The tables -------------------------------------------------------------------------------------------------------


def retrieval(values: Values) -> dict[str, dict[tuple[str, str], Any]]:
    """Return set -> (model, rows of the head) -> what was found."""
    found: dict[str, dict[tuple[str, str], Any]] = {}
    for one in values["table 3"]:
        found.setdefault(TITLES.get(one["task"], one["task"]), {})[one["model"], one["head"]] = one
    return found


def whole(found: Mapping[str, Any]) -> Any:
    """Return nDCG@10 of each query by the dense model, centred or not, whichever finds more."""
    return max(found["dense"], found["plain"], key=sum)


def claims_of(values: Values, fixed: tuple[int, int]) -> list[Claim]:
    """Return all claims, those of one text beside each other."""
    parts = [alignment_claims(values), spectrum_claims(values), retrieval_claims(values, fixed)]
    every = by_claim(claim for part in [*parts, instruction_claims(values)] for claim in part)
    return [claim for tests in every.values() for claim in tests]


def claims_table(claims: Sequence[Claim]) -> Table:
    """Return the claims with what was measured."""
    lines = [
        [f"{one.text}; {one.where}" if one.where else one.text, one.measured, one.paper, one.verdict] for one in claims
    ]
    return Table(["claim", "measured here, in percent", "the paper", "verdict"], lines, 4)


def retrieval_table(values: Values, fixed: tuple[int, int]) -> Table:
    """Return retrieval, dense and sparse."""
    lines: list[list[Any]] = []
    for name, found in retrieval(values).items():
        for (model, rows), one in found.items():
            label = f"{name}, {model}" + (", random rows" if rows == "random" else "")
            if rows == "own":
                lines.append([f"**{name}, {model}, dense**", float(np.mean(one["plain"])), None, None])
                lines.append([f"**{name}, {model}, dense, centred**", float(np.mean(one["dense"])), None, None])
            best = max(one["grid"], key=lambda each: float(each["ndcg"]))
            most = f"{best['ndcg']:.1f} ({share(best['each'], whole(one))[0]:.0f}%)"
            for m, said, last in ((fixed[1], label, most), (0, f"{label}, M = 0", None)):
                each = cell(one, fixed[0], m)
                lines.append([said, float(np.mean(each)), said_share(each, whole(one)), last])
    return Table(["", "nDCG@10", "share of the better dense", "best of the grid"], lines)


def figures(values: Values, fixed: tuple[int, int]) -> Iterator[tuple[str, Figure]]:
    """Yield what the page shows.

    Args:
        values: what was measured, by name.
        fixed: K and M of Table 3.
    """
    near, found, moved = values["precision"], values["spectrum"], values["adjusted"]
    said = (
        f"bfloat16 against float32, {near['texts']:,} sentences, centred: {near['shared']:.1%} of the first ten tokens "
        f"and {near['first']:.1%} of the first tokens are the same; the least cosine of two embeddings is "
        f"{near['cosine']:.4f}."
    )
    yield "precision", wrapped(said)
    yield "claims", claims_table(claims_of(values, fixed))
    yield "rates", rates_table(rate_rows(values))
    lines = [[name.replace("_", " "), f"`{tokens}`"] for name, tokens in values["table 2"].items()]
    yield "tokens", Table(["embedding", "first 10 tokens"], lines, 2)
    yield "shares", ", ".join(f"{100 * one:.1f}" for one in found["shares"])
    yield "changes", Table(**found["table"])
    yield "component-rates", rates_table(moved["parts"])
    yield "sweep", Table(**moved["table"])
    yield "retrieval", retrieval_table(values, fixed)
    told = [four for key, four in values.items() if key.startswith("table 4 | ")]
    for n, four in enumerate(told, 1):
        yield f"instructions-{n}", Table(**four["tokens"])
        yield f"cosines-{n}", four["lines"]
    yield "likes", Table(**values["table 5"]["tokens"])
    yield "like-cosines", values["table 5"]["lines"]
