"""How well `pellucid.cite` finds the sentences that people chose as evidence, and what it says of edited ones.

    python -m benchmarks.citations --scifact scifact.zip --data ../shared/data [--models static-en minilm] [--fit]

Prints markdown. The zip holds SciFact's claims with the sentences that are their rationales (`claims_train.csv`,
`claims_validation.csv`, `corpus_train.csv`: data/scifact.zip of github.com/sumithra-p-v/claimverifier at b42f1c3).
*Given* are the abstracts that hold evidence, one at a time, as in the papers; *searched* are five abstracts for each
claim, those that it cites and the best hits of BM25 and static-en, also where there is no evidence. Counted as SciFact
does: a sentence is right if all of its rationale was chosen; three are chosen at most. Thresholds of the floors are the
best on training claims, figures are of validation claims, with 95 % intervals over claims. Sentences are edited in one
number, name or negation and cited beside the abstract they are from; paraphrases are pairs of STS graded 4.8 or more.
`--fit` prints what `pellucid.analysis.citing` has fitted, and F1 by threshold, both of training claims.
"""

from __future__ import annotations

import ast
import csv
import random
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

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


class Encoded:
    """A dense model that encodes each of some texts once."""

    def __init__(self, name: str, texts: Iterable[str]) -> None:
        """Load the model and encode the texts."""
        self.model, unique = pellucid.load(name), list(dict.fromkeys(texts))
        self.row_of = dict(zip(unique, self.model.encode_document(unique)))
        self.encode_query, self.background = self.model.encode_query, self.model.background
        self.similarity = self.model.similarity

    def encode_document(self, texts: list[str]) -> Any:
        """Return the rows of texts."""
        return np.stack([self.row_of[text] for text in texts])


def cases(path: Path) -> Iterator[dict[str, list[Case]]]:
    """Yield the cases of training, and those of validation, by setting."""
    csv.field_size_limit(1 << 30)
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
                    numbers = set(map(int, re.findall(r"\d+", evident["evidence_sentences"])))
                    gold.setdefault(evident["evidence_doc_id"], []).append(numbers)
                claim, label, cited = row["claim"], row["evidence_label"], row["cited_doc_ids"].strip("[]").split()
                settings["given"] += [Case(claim, [abstracts[id]], [gold[id]], label) for id in gold]
                ids = [*dict.fromkeys([*cited, *(hit.id for hit in index.search(claim, N_PASSAGES))])][:N_PASSAGES]
                passages, of_ids = [abstracts[id] for id in ids], [gold.get(id, []) for id in ids]
                settings["searched"].append(Case(claim, passages, of_ids, label))
            yield settings


def evidence(model: Any, case: Case) -> tuple[np.ndarray, np.ndarray]:
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


def fit(train: dict[str, list[Case]], model: Encoded) -> None:
    """Print the coefficients fitted on training claims, and what thresholds give there."""
    numbers = {name: [evidence(model, case)[1] for case in setting] for name, setting in train.items()}
    flat = [(n, g) for c in chain(*train.values()) for p, g in zip(c.passages, c.gold) for n in range(len(p))]
    is_gold = [any(n in rationale for rationale in gold) for n, gold in flat]
    fitted = LogisticRegression(C=100, max_iter=1000).fit(np.concatenate([*chain(*numbers.values())]), is_gold)
    print("fitted:", fitted.intercept_.round(2), fitted.coef_.round(2))
    pairs = zip(train["searched"], train["searched"][100:])
    unrelated = [evidence(model, case._replace(passages=other.passages))[1] for case, other in pairs]
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
    verb = re.compile(r"\b(is|are|was|were|can|may|has|have)\b(?! not?\b)")
    if (changed := text.replace(" not ", " ", 1) if " not " in text else verb.sub(r"\1 not", text, count=1)) != text:
        yield "negation", changed


def print_edits(data: Path, validation: Sequence[Case]) -> None:
    """Print what is said of edited sentences, of the unedited, of paraphrases, and of claims by their label."""
    rng, kinds, model = random.Random(0), dict[str, list[tuple[str, str]]](), pellucid.load("static-en")
    names = sorted({name for case in validation for text in case.passages[0] for name in NAME.findall(text)})
    for case in validation:
        passage, texts = (
            "\n\n".join(case.passages[0]),
            [t for t in case.passages[0] if len(citing.sentence_spans(t)) == 1],
        )
        absent = [name for name in names if name.lower() not in passage.lower()]
        for text in rng.sample(texts, min(TOP_K, len(texts))):
            for kind, edited in [("unedited", text), *edits(text, absent, rng)]:
                kinds.setdefault(kind, []).append((edited, passage))
        rationale = " ".join(case.passages[0][n] for n in sorted(case.gold[0][0]))
        kinds.setdefault(f"claims, {case.label}", []).append((case.claim, rationale))
    rows = [
        line.split("\t") for path in sorted((data / "sts").glob("STS1?/*.tsv")) for line in path.open(encoding="utf-8")
    ]
    pairs = [(row[0], row[1]) for row in rows if row[2].strip()[:1].isdigit() and float(row[2]) >= MIN_GRADE]
    kinds["paraphrases"] = rng.sample(
        [pair for pair in pairs if len(citing.sentence_spans(pair[0])) == 1], N_PARAPHRASES
    )
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
    texts = [t for settings in (train, validation) for c in chain(*settings.values()) for t in chain(*c.passages)]
    lines, floors = dict[str, list[str]](), dict[str, np.ndarray]()
    for name in arguments.models:
        model = Encoded(name, texts)
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
                tried = np.unique(np.quantile(np.concatenate(of_train), np.linspace(0.4, 0.995, 60))).tolist()
                best = max(tried, key=lambda threshold: f1_at(threshold, of_setting, of_train))
                threshold = citing.MIN_PROBABILITY if "cite" in method else best
                items = np.array([counts(case, of_case, threshold) for case, of_case in zip(parts[1], values)])
                score, difference = (
                    interval_of(samples := bootstrap(items, f1)),
                    interval_of(samples - floors.setdefault(setting, samples)),
                )
                lines.setdefault(method, []).append(
                    f"{score.value:.1f} ({score.low:.1f} to {score.high:.1f}) | {difference.signed()}"
                )
    print("| | given: F1 | less words alone | searched: F1 | less words alone |\n|---|---|---|---|---|")
    for method, cells in lines.items():
        print(f"| {method} | {' | '.join(cells[:2])} |")
    print_edits(arguments.data, validation["given"])


if __name__ == "__main__":
    main()
