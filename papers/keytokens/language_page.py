"""Writes the page of key tokens of a language model from what papers/keytokens/language_model.py measured.

Every verdict follows from the figures by a rule that is written beside it.
"""

from __future__ import annotations

import argparse
import datetime
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from papers.keytokens.retrieval_page import PAPER as PAPER_3
from papers.keytokens.retrieval_page import SETS
from papers.keytokens.tables import PAPER_2, PAPER_4, PAPER_5
from papers.kit import VERDICTS, Interval, bootstrap, interval_of, interval_of_means, markdown_table, processor, wrapped

Values = Mapping[str, Any]
PLAIN, TUNED = "as it is", "tuned"
_NAMES = {"weighted_mean": "weighted mean", "prompt_eol": "PromptEOL"}
POOLINGS = ("mean", "weighted mean", "last", "PromptEOL")
_DRAWS = 2000

_HEAD = """# Results: key tokens of a language model

Written by `papers/keytokens/language_model.py` on {date}; {processor}, one thread, no GPU;
`--texts {texts} --prompted {prompted} --swept {swept} --skip {skip} --words {words}`.

The findings of *A Text is Worth Several Tokens* (Nie et al.) on **{model}**, {size}, unpacked
from 4 bits and read in bfloat16. The paper's models have 1.3 to 7 billion parameters and published fine-tunings; its
texts are 10,000 of Wikipedia. Here the texts are {texts:,} sentences of all kinds under open licences ({prompted:,} for
PromptEOL), which no tuning read.
{tuned} Directions can be compared, sizes of figures cannot.

{precision}

Intervals are 95 %: of rates from the standard error over texts, of retrieval by bootstrap over queries. GAR, weighted
LAR and the spectrum are one figure of all texts: their verdicts compare the figures alone, without an interval.
"""


_RULES = """The rules by which a claim holds were made stricter after the first figures, of 2,000 sentences and
Cranfield, had been seen (controls with another text, "undecided", the row with M = 0, first tokens in Table 4). They
were not changed for what came after: 10,000 sentences, the other sets and the other poolings.

"""
_BELOW = """
If another text's embedding reaches the same rate, the tokens are common to all texts, such as stop words. If random
rows find as much, the search rests on the angle between embeddings and not on the tokens; M = 0 is the test of key
tokens.

"""


class Verdict(NamedTuple):
    """A claim, what was measured, whether it holds here (None: undecided), and what the paper prints for it."""

    claim: str
    measured: str
    holds: bool | None
    paper: str = "-"


def interval(rate: float, error: float) -> str:
    """Write a rate in percent with half of its 95 % interval."""
    return f"{100 * rate:.1f} ± {196 * error:.1f}"


def hit_error(row: Mapping[str, Any]) -> float:
    """Return the standard error of Hit@K, a share of the texts."""
    return float(np.sqrt(row["hit"] * (1 - row["hit"]) / row["texts"]))


def rate_rows(values: Values) -> dict[str, dict[str, Any]]:
    """Return all rates: model, pooling and adjustment -> rates."""
    found = {}
    for key, rows in values.items():
        if key.startswith("rates | "):
            _, model, pooling, _ = key.split(" | ")
            for kind, row in rows.items():
                found[f"{model}, {_NAMES.get(pooling, pooling)}, {kind}".replace(", plain", "")] = row
    return found


def rates_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return rates with their intervals."""
    header = ["embedding", "Hit@10", "LAR", "GAR", "weighted LAR", "in the text", "same stem", "different tokens"]
    lines = (
        (
            name,
            interval(row["hit"], hit_error(row)),
            interval(row["lar"], row["lar_error"]),
            *(100 * row[rate] for rate in ("gar", "weighted_lar", "literal", "stem")),
            f"{row['distinct']:,}",
        )
        for name, row in rows.items()
    )
    return markdown_table(header, lines)


def higher(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Return whether the first LAR is above the second; None: undecided."""
    return interval_of_means(one["lar"] - other["lar"], one["lar_error"], other["lar_error"]).above()


def both(one: bool | None, other: bool | None) -> bool | None:
    """Return whether two claims hold together."""
    return False if one is False or other is False else True if one and other else None


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


# --- Verdicts ---------------------------------------------------------------------------------------------------------


def alignment_verdicts(values: Values) -> Iterator[Verdict]:
    """Yield what holds of section 3."""
    rows = rate_rows(values)
    mean, other = rows.get(f"{PLAIN}, mean"), rows.get(f"{PLAIN}, mean, of another text")
    centred, control = rows.get(f"{PLAIN}, mean, centred"), rows.get(f"{PLAIN}, mean, centred, of another text")
    if not (mean and other and centred and control):
        return
    for name, own, another in (("", mean, other), (", centred", centred, control)):
        errors = hit_error(own), hit_error(another)
        yield Verdict(
            f"The first ten tokens hold one of the text (Figure 2), more often than of another text (control){name}",
            f"Hit@10 {interval(own['hit'], errors[0])} against {interval(another['hit'], errors[1])}; LAR "
            f"{interval(own['lar'], own['lar_error'])} against {interval(another['lar'], another['lar_error'])}",
            both(interval_of_means(own["hit"] - another["hit"], *errors).above(), higher(own, another)),
            "-" if name else "high for all but LLaMA; a figure without numbers, no control",
        )
    yield from tuning_verdicts(rows)
    yield Verdict(
        "Without any tuning, subtracting the mean embedding raises GAR (ours)",
        f"GAR {100 * mean['gar']:.1f} to {100 * centred['gar']:.1f}, weighted LAR {100 * mean['weighted_lar']:.1f} to "
        f"{100 * centred['weighted_lar']:.1f}",
        centred["gar"] > mean["gar"],
    )


_LOWERED = {"PromptEOL": "section 3.3, of prompted models"}
"""Poolings of which the paper says that tuning lowers LAR; of the others it says that LAR is low and GAR rises."""


def tuning_verdicts(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Verdict]:
    """Yield what tuning does to the rates, for each pooling."""
    for pooling in POOLINGS:
        before, after = (rows.get(f"{model}, {pooling}") for model in (PLAIN, TUNED))
        if before and after:
            yield Verdict(
                f"Tuning for embedding raises GAR (section 3.3); {pooling}",
                f"GAR {100 * before['gar']:.1f} to {100 * after['gar']:.1f}",
                after["gar"] > before["gar"],
                "for all eight embedders",
            )
            yield Verdict(
                f"Tuning for embedding lowers LAR ({_LOWERED.get(pooling, 'ours')}); {pooling}",
                f"LAR {interval(before['lar'], before['lar_error'])} to {interval(after['lar'], after['lar_error'])}",
                higher(before, after),
                "lower, for OPT and LLaMA" if pooling in _LOWERED else "low for all, no direction",
            )


def spectrum_verdicts(values: Values) -> Iterator[Verdict]:
    """Yield what holds of section 4."""
    found = section(values, "spectrum | ")
    if found and any(key.startswith(f"rates | {TUNED}") for key in values):
        yield Verdict(
            "What tuning changes is mainly the first principal component (Observation 1): more than half "
            "of the squared length of v",
            f"v_1 {found['first']:+.2f}, {found['dominance']:.0%} of v",
            found["dominance"] > 0.5,
            "v_1 = -50.02, GPT-Neo 1.3B to SGPT-nli",
        )
    moved = section(values, "adjusted | ")
    if not moved:
        return
    first, rest = moved["parts"]["first component"], moved["parts"]["rest"]
    yield Verdict(
        "The first component gives tokens without meaning (Observation 2): less weighted LAR than the rest",
        f"weighted LAR {100 * first['weighted_lar']:.1f}, {first['distinct']} different tokens; the rest "
        f"{100 * rest['weighted_lar']:.1f}, {rest['distinct']:,}",
        first["weighted_lar"] < rest["weighted_lar"],
        "one text",
    )
    before, after = moved["steps"]["0"], moved["steps"]["1"]
    yield Verdict(
        "Changing the first component alone, by v_1, brings key tokens to the top (Hypothesis 1): GAR and weighted LAR "
        "rise",
        f"GAR {100 * before['gar']:.1f} to {100 * after['gar']:.1f}, weighted LAR {100 * before['weighted_lar']:.1f} "
        f"to {100 * after['weighted_lar']:.1f}",
        after["gar"] > before["gar"] and after["weighted_lar"] > before["weighted_lar"],
        "one text",
    )


def retrieval_verdicts(values: Values, fixed: tuple[int, int]) -> Iterator[Verdict]:
    """Yield what holds of section 5.1, for each set and model."""
    for name, lines in retrieval(values).items():
        for model in (PLAIN, TUNED):
            own, random = lines.get((model, "own")), lines.get((model, "random"))
            if not own or not random:
                continue
            parts = [cell(one, fixed[0], m) for m in (fixed[1], 0) for one in (own, random)]
            kept, drawn, literal, nothing = (said_share(part, whole(own)) for part in parts)
            yield Verdict(
                f"Sparse retrieval keeps 80 % of the dense score (Table 3); {name}, {model}",
                f"{kept} at K {fixed[0]:,}, M {fixed[1]}",
                share(parts[0], whole(own)).above(80),
                "76 to 89 %, best of the grid",
            )
            gain = share(np.asarray(parts[0]) - np.asarray(parts[1]), whole(own))
            yield Verdict(
                f"Sparse retrieval finds more by key tokens than with random rows (control, ours); {name}, {model}",
                f"{kept}; random rows {drawn}",
                gain.above(),
            )
            gain = share(np.asarray(parts[2]) - np.asarray(parts[3]), whole(own))
            yield Verdict(
                f"The query's own tokens alone (M = 0) find documents by their key tokens (ours); {name}, {model}",
                f"{literal} of the dense score; with random rows {nothing}",
                gain.above(),
            )


def instruction_verdicts(values: Values) -> Iterator[Verdict]:
    """Yield what holds of section 5.2."""
    for key, found in values.items():
        if not key.startswith("table 4 | "):
            continue
        model = key.removeprefix("table 4 | ")
        without, told = (one for one in found["cosines"].values())
        said = [f"{rows[0][1]:.3f} and {rows[0][2]:.3f}" for rows in (without, told)]
        first = list(found["first"].values())[1]
        yield Verdict(
            "An instruction on emotions makes the happy text 3 nearer to 1 than the unhappy 2 is, and the first tokens "
            f"tell them apart (Table 4, three texts); {model}",
            f"cosines of 1 with 2 and 3: {said[0]}; instructed {said[1]}, first tokens {', '.join(first)}",
            without[0][1] > without[0][2] and told[0][1] < told[0][2] and len(set(first)) > 1,
            "0.821 and 0.718; instructed 0.814 and 0.829, Joy, sad, joy",
        )


# --- Sections ---------------------------------------------------------------------------------------------------------


def section(values: Values, start: str) -> Any:
    """Return the last figures whose name begins so, or None."""
    return next((found for key, found in reversed(values.items()) if key.startswith(start)), None)


def retrieval(values: Values) -> dict[str, dict[tuple[str, str], Any]]:
    """Return set -> (model, rows of the head) -> what was found."""
    found: dict[str, dict[tuple[str, str], Any]] = {}
    for key, one in values.items():
        if key.startswith("table 3 | "):
            _, name, model, _, rows = key.split(" | ")
            found.setdefault(SETS.get(name, name), {})[model, rows] = one
    return found


def whole(found: Mapping[str, Any]) -> Any:
    """Return nDCG@10 of each query by the dense model, centred or not, whichever finds more."""
    return max(found["dense"], found["plain"], key=sum)


def verdicts(values: Values, fixed: tuple[int, int]) -> str:
    """Return the claims with what was measured: in short for those tested more than once, then all."""
    found: dict[str, list[Verdict]] = {}
    sections = [alignment_verdicts(values), spectrum_verdicts(values)]
    sections += [retrieval_verdicts(values, fixed), instruction_verdicts(values)]
    for parts in sections:
        for one in parts:
            found.setdefault(one.claim.partition("; ")[0], []).append(one)
    words = {holds: word if holds is None else f"**{word}**" for holds, word in VERDICTS.items()}
    lines = ((*one[:2], one.paper, words[one.holds]) for some in found.values() for one in some)
    table = markdown_table(["claim", "measured here, in percent", "the paper", "here"], lines, left=4)
    return "".join(in_short(claim, some) for claim, some in found.items() if len(some) > 1) + "\n" + table


def in_short(claim: str, tests: list[Verdict]) -> str:
    """Return a line that says of a claim where it holds and where not."""
    said = []
    for holds, word in VERDICTS.items():
        where = [one.claim.partition("; ")[2] for one in tests if one.holds == holds]
        if where:
            said.append(f"{word} in {len(where)} of {len(tests)} ({'; '.join(where)})")
    return textwrap.fill(f"- {claim}: {', '.join(said)}.", 120, subsequent_indent="  ") + "\n"


def table_3(values: Values, fixed: tuple[int, int]) -> str:
    """Return retrieval, dense and sparse."""
    lines: list[tuple[Any, ...]] = []
    for name, found in retrieval(values).items():
        for (model, rows), one in found.items():
            label = f"{name}, {model}" + (", random rows" if rows == "random" else "")
            if rows == "own":
                lines.append((f"**{name}, {model}, dense**", float(np.mean(one["plain"])), None, None))
                lines.append((f"**{name}, {model}, dense, centred**", float(np.mean(one["dense"])), None, None))
            best = max(one["grid"], key=lambda each: float(each["ndcg"]))
            most = f"{best['ndcg']:.1f} ({share(best['each'], whole(one))[0]:.0f}%)"
            for m, said, last in ((fixed[1], label, most), (0, f"{label}, M = 0", None)):
                each = cell(one, fixed[0], m)
                lines.append((said, float(np.mean(each)), said_share(each, whole(one)), last))
    header = ["", "nDCG@10", "share of the better dense", "best of the grid"]
    return markdown_table(header, lines)


def tokens_rows(found: Mapping[str, str], paper: Mapping[str, str]) -> str:
    """Return first tokens, ours and the paper's."""
    lines = [(name.replace("_", " "), f"`{tokens}`") for name, tokens in {**found, **paper}.items()]
    return markdown_table(["embedding", "first 10 tokens"], lines, left=2)


def figures(values: Values) -> Iterator[str]:
    """Yield the sections on alignment and components."""
    yield "## Alignment (Figure 2)\n\nIn percent, but for the last column; the paper's figure prints no numbers.\n"
    yield '"Centred" subtracts the mean embedding of the sentences. "Of another text" is a control: each text with\n'
    yield "the embedding of the next. GAR grows with the number of texts: compare it at the same number only. The\n"
    yield "tuning was by the mean of the states; the other poolings of the tuned model show what it does to them.\n\n"
    yield rates_table(rate_rows(values))
    if "table 2" in values:
        yield "\n## One text (Table 2)\n\n" + tokens_rows(values["table 2"], PAPER_2)
    found = section(values, "spectrum | ")
    if found:
        shares = ", ".join(f"{100 * one:.1f}" for one in found["shares"])
        yield f"\n## The first component (Figures 3 and 4)\n\nShares of the first five components, in percent: {shares}"
        yield f". The mean embedding's part along the first is {found['level']:+.2f}.\n\nWhat tuning and PromptEOL add "
        yield "on average (Figure 3). The paper's figure prints no number; its authors' README gives v1 = -50.02 for\n"
        yield f"GPT-Neo 1.3B to SGPT-nli.\n\n{found['table']}\n"
    if "components" in values:
        yield "\nThe tokens of the text of Table 2 by component (Figure 4a):\n\n"
        yield tokens_rows(values["components"], {})
    moved = section(values, "adjusted | ")
    if moved:
        yield f"\nThe same over {moved['texts']:,} sentences:\n\n" + rates_table(moved["parts"])
        yield "\nAlong the first component (Figure 4b); factor 1 adds v_1 of the tuning, or, without a tuned model,\n"
        yield f"takes the component's mean out:\n\n{moved['table']}\n"


def applications(values: Values, options: argparse.Namespace, fixed: tuple[int, int]) -> Iterator[str]:
    """Yield the sections on retrieval, instructions and fine-tunings."""
    if retrieval(values):
        yield "\n## Sparse retrieval (Table 3)\n\nnDCG@10 x 100; mean of the states, documents cut to their first "
        yield f"{options.words} words; sparse\nrows subtract the mean of the documents. K = {fixed[0]:,} and "
        yield f"M = {fixed[1]} were fixed in advance; the paper reports\nthe best of its grid. Intervals of shares in "
        yield "brackets; where the dense model finds little, its share says little. A set without rows of the tuned\n"
        yield "model was not run with it.\n\n" + table_3(values, fixed)
        yield "\nThe paper's:\n\n" + markdown_table(
            ["", "FiQA", "NFCorpus", "SciFact", "ArguAna"], ((name, *cells) for name, cells in PAPER_3.items())
        )
    for key, four in values.items():
        if key.startswith("table 4 | "):
            yield f"\n## Instructions (Table 4), {key.removeprefix('table 4 | ')}\n\n"
            yield f"{four['tokens']}\n\n{four['lines']}\n- {PAPER_4}\n"
    five = section(values, "table 5 | ")
    if five:
        yield f"\n## Like and dislike (Table 5)\n\n{five['tokens']}\n\n{five['lines']}\n- {PAPER_5}\n\n"
        yield (
            "The paper compares a tuning for similarity with one for relatedness: "
            "[both, on 40 pairs](analysis.md#two-tunings-on-enough-pairs).\n"
        )


def make_page(options: argparse.Namespace, values: Values, fixed: tuple[int, int], facts: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        options: of the run.
        values: what was measured, by name; sections without figures are left out.
        fixed: K and M of Table 3.
        facts: "model", "size" and "tuned", as the page says them.
    """
    near = values.get("precision")
    precision = near and (
        f"bfloat16 against float32, {near['texts']:,} sentences, centred: {near['shared']:.1%} of the first ten tokens "
        f"and {near['first']:.1%} of the first tokens are the same; the least cosine of two embeddings is "
        f"{near['cosine']:.4f}."
    )
    head = _HEAD.format(
        date=datetime.date.today(),
        processor=processor(),
        **{name: getattr(options, name) for name in ("texts", "prompted", "swept", "skip", "words")},
        precision=precision or "",
        **facts,
    )
    parts = [head, "\n## What holds and what does not\n\n", _RULES, verdicts(values, fixed), _BELOW]
    text = "".join([*parts, *figures(values), *applications(values, options, fixed)])
    return wrapped(text)
