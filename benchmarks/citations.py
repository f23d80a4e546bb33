"""How well `pellucid.cite` finds the sentences that people chose as evidence, and what it says of edited ones.

    python -m benchmarks.citations --scifact scifact.zip --data ../shared/data [--models static-en minilm] [--fit]

Prints markdown. The zip holds SciFact's claims with the sentences that are their rationales (`claims_train.csv`,
`claims_validation.csv`, `corpus_train.csv`: data/scifact.zip of github.com/sumithra-p-v/claimverifier at b42f1c3).
*Given* are the abstracts that hold evidence, one at a time, as in the papers; *searched* are five abstracts for each
claim, those that it cites and the best hits of BM25 and static-en, also where there is no evidence. Counted as SciFact
does: a sentence is right if all of its rationale was chosen; three are chosen at most. Thresholds of the floors are the
best on training claims, figures are of validation claims, with 95 % intervals over claims. Sentences are edited in one
number, name or negation and cited beside the abstract they are from; paraphrases are pairs of STS graded 4.8 or more.
Claims with a support of some probability are counted apart by whether there is evidence among the abstracts.
`--fit` prints what `pellucid.analysis.citing` has fitted, and F1 by threshold, both of training claims.
"""

from __future__ import annotations

import ast
import csv
import random
import re
import zipfile
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

import pellucid
from papers.bm25 import bm25_table
from papers.kit import bootstrap, interval_of, make_parser
from pellucid.analysis import citing

N_PASSAGES, TOP_K, MIN_GRADE, N_PARAPHRASES, FLOOR = 5, 3, 4.8, 600, "words alone"
STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)  # of the lists that numpy wrote
NAME = re.compile(r"(?<=[a-z,)] )[A-Z][A-Za-z]{3,}\b")


class Case(NamedTuple):
    """A claim, the sentences of each of its passages, the rationales in each, and its label, "" for no evidence."""

    claim: str
    passages: list[list[str]]
    gold: list[list[set[int]]]
    label: str


def cases(path: Path) -> Iterator[dict[str, list[Case]]]:
    """Yield the cases of training, and those of validation, by setting."""
    with zipfile.ZipFile(path) as file, TemporaryDirectory() as folder, pellucid.Index.create(folder + "/i") as index:
        rows = {name: [*csv.DictReader(file.read(name).decode().splitlines(keepends=True))] for name in file.namelist()}
        abstracts = {
            row["doc_id"]: [
                ast.literal_eval(text.replace("\n", "\\n")).strip() for text in STRING.findall(row["abstract"])
            ]
            for row in rows["corpus_train.csv"]
        }
        index.add(map(" ".join, abstracts.values()), ids=list(abstracts))
        for split in ("train", "validation"):
            settings: dict[str, list[Case]] = {"given": [], "searched": []}
            for _, of_claim in groupby(rows[f"claims_{split}.csv"], lambda row: row["id"]):
                gold, (row, *others) = dict[str, list[set[int]]](), of_claim
                for evident in (row, *others) if row["evidence_doc_id"] else ():
                    gold.setdefault(evident["evidence_doc_id"], []).append(
                        set(map(int, re.findall(r"\d+", evident["evidence_sentences"])))
                    )
                claim, label, cited = row["claim"], row["evidence_label"], row["cited_doc_ids"].strip("[]").split()
                settings["given"] += [Case(claim, [abstracts[id]], [gold[id]], label) for id in gold]
                ids = [*dict.fromkeys([*cited, *(hit.id for hit in index.search(claim, N_PASSAGES))])][:N_PASSAGES]
                settings["searched"].append(
                    Case(claim, [abstracts[id] for id in ids], [gold.get(id, []) for id in ids], label)
                )
            yield settings


def evidence(model: pellucid.Embedder, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return the similarity of every sentence to the claim, and the four numbers of `citing.evidence`."""
    return next(citing.evidence(model, [case.claim], [*chain(*case.passages)]))[:2]


def counts(case: Case, values: np.ndarray, threshold: float) -> list[int]:
    """Return how many sentences are right, chosen and gold where up to three of the highest values are chosen."""
    chosen = {n for n in np.argsort(-values, kind="stable")[:TOP_K].tolist() if values[n] >= threshold}
    starts = np.cumsum([0, *map(len, case.passages)]).tolist()
    gold = [{start + n for n in rationale} for start, of in zip(starts, case.gold) for rationale in of]
    right = sum(any(n in rationale and rationale <= chosen for rationale in gold) for n in chosen)
    return [right, len(chosen), sum(map(len, gold))]


def f1(items: np.ndarray) -> np.ndarray:
    """Return F1 x 100 of samples of counts [samples, cases, 3]."""
    right, chosen, gold = items.sum(axis=1).T
    return 200 * right / np.maximum(1, chosen + gold)


def f1_at(threshold: float, of_cases: Sequence[Case], values: Sequence[np.ndarray]) -> float:
    """Return F1 x 100 with a threshold."""
    return float(f1(np.array([[counts(case, of_case, threshold) for case, of_case in zip(of_cases, values)]]))[0])


def fit(train: dict[str, list[Case]], model: pellucid.Embedder) -> None:
    """Print the coefficients fitted on training claims, and what thresholds give there."""
    numbers = {name: [evidence(model, case)[1] for case in setting] for name, setting in train.items()}
    is_gold = [
        any(n in rationale for rationale in gold)
        for case in chain(*train.values())
        for passage, gold in zip(case.passages, case.gold)
        for n in range(len(passage))
    ]
    fitted = LogisticRegression(C=100, max_iter=1000).fit(np.concatenate([*chain(*numbers.values())]), is_gold)
    print("fitted:", fitted.intercept_.round(2), fitted.coef_.round(2))
    unrelated = [
        evidence(model, case._replace(passages=other.passages))[1]
        for case, other in zip(train["searched"], train["searched"][100:])
    ]
    highest = np.array([citing.probabilities(of_case).max() for of_case in unrelated])
    for threshold in (0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3):
        scores = [f1_at(threshold, train[name], [*map(citing.probabilities, numbers[name])]) for name in train]
        print(threshold, "F1:", np.round(scores, 1), f"unrelated supported: {(highest >= threshold).mean():.1%}")


def edits(text: str, names: Sequence[str], rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield a sentence with another number, with another name, and with a negation or without it."""
    if number := re.search(r"(?<![\w.-])[1-9]\d*(?![\w.-])", text):
        yield "number", text[: number.start()] + str(int(number[0]) + rng.randint(1, 9)) + text[number.end() :]
    if name := NAME.search(text):
        yield "name", text[: name.start()] + rng.choice(names) + text[name.end() :]
    negated = re.sub(r"\b(is|are|was|were|can|may|has|have)\b(?! not?\b)", r"\1 not", text, count=1)
    if (changed := text.replace(" not ", " ", 1) if " not " in text else negated) != text:
        yield "negation", changed


def print_edits(data: Path, validation: Sequence[Case]) -> None:
    """Print what is said of edited sentences, of the unedited, of paraphrases, and of claims by their label."""
    rng, kinds, model = random.Random(0), dict[str, list[tuple[str, str]]](), pellucid.load("static-en")
    names = sorted({name for case in validation for text in case.passages[0] for name in NAME.findall(text)})
    for case in validation:
        passage = "\n\n".join(case.passages[0])
        texts = [text for text in case.passages[0] if len(citing.sentence_spans(text)) == 1]
        absent = [name for name in names if name.lower() not in passage.lower()]
        for text in rng.sample(texts, min(TOP_K, len(texts))):
            for kind, edited in [("unedited", text), *edits(text, absent, rng)]:
                kinds.setdefault(kind, []).append((edited, passage))
        kinds.setdefault(f"claims, {case.label}", []).append(
            (case.claim, " ".join(case.passages[0][n] for n in sorted(case.gold[0][0])))
        )
    rows = (
        line.split("\t") for path in sorted((data / "sts").glob("STS1?/*.tsv")) for line in path.open("r", -1, "utf-8")
    )
    alike = [(row[0], row[1]) for row in rows if row[2][:1].isdigit() and float(row[2]) >= MIN_GRADE]
    kinds["paraphrases"] = rng.sample([p for p in alike if len(citing.sentence_spans(p[0])) == 1], N_PARAPHRASES)
    print("\n| | not passed as supported |\n|---|---|")
    for kind, of_kind in kinds.items():
        cited = [citing.cite(answer, [passage], model, min_probability=0, top_k=1)[0] for answer, passage in of_kind]
        print(f"| {kind} | {sum(not citation.is_supported for citation in cited)} of {len(cited)} |")


def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__, data="sts/")
    parser.add_argument("--scifact", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=["static-en", "minilm"])
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    train, validation = cases(arguments.scifact)
    lines, floors, supported = dict[str, list[str]](), dict[str, np.ndarray](), list[str]()
    for name in arguments.models:
        model = pellucid.load(name)
        if arguments.fit:
            return fit(train, model)
        for setting, of_setting in train.items():
            parts = of_setting, validation[setting]
            found = [[evidence(model, case) for case in part] for part in parts]
            methods = {
                FLOOR: [[numbers[:, 1] for _, numbers in part] for part in found],
                "BM25": [[bm25_table([c.claim], [*chain(*c.passages)])[0] for c in part] for part in parts],
                f"{name} alone": [[scores for scores, _ in part] for part in found],
                f"**cite, {name}**": [[citing.probabilities(numbers) for _, numbers in part] for part in found],
            }
            for method, (of_train, values) in methods.items():
                tried = np.quantile(np.concatenate(of_train), np.linspace(0.4, 0.995, 60)).tolist()
                best = max(dict.fromkeys(tried), key=lambda threshold: f1_at(threshold, of_setting, of_train))
                threshold = citing.MIN_PROBABILITY if "cite" in method else best
                samples = bootstrap(np.array([counts(*row, threshold) for row in zip(parts[1], values)]), f1)
                score, difference = map(interval_of, (samples, samples - floors.setdefault(setting, samples)))
                cell = f"{score.value:.1f} ({score.low:.1f} to {score.high:.1f}) | {difference.signed()}"
                lines.setdefault(method, []).append(cell)
        has_evidence, highest = (  # of the cite method and the claims that are searched for, the last of the loops
            np.array(column) for column in zip(*((any(c.gold), v.max(initial=0)) for c, v in zip(parts[1], values)))
        )
        for threshold in (citing.MIN_PROBABILITY, citing.SUPPORTED_PROBABILITY):
            shares = [(highest[of] >= threshold).mean() for of in (has_evidence, ~has_evidence)]
            supported.append(f"| {name}, from {threshold} | {shares[0]:.0%} | {shares[1]:.0%} |")
    print("| | given: F1 | less words alone | searched: F1 | less words alone |\n|---|---|---|---|---|")
    for method, cells in lines.items():
        print(f"| {method} | {' | '.join(cells[:2])} |")
    print("\n| claims with a support | with evidence | without |\n|---|---|---|", *supported, sep="\n")
    print_edits(arguments.data, validation["given"])


if __name__ == "__main__":
    main()
