r"""Embeddings of answers to yes/no questions by a small language model.

    python -m papers.ldir.yes_no_questions FOLDER --data shared/data --work-dir WORK --write
    python -m papers.ldir.yes_no_questions FOLDER --data shared/data --work-dir WORK --only floors --write

FOLDER holds a causal language model of transformers with a chat template; it is read in bfloat16. The wording is the
one that answers best where the answer is known: each question has one text whose answer is yes. Answers are kept in
WORK, and a run that was stopped goes on. The floors, random directions and random sentences, are rows of their own, the
means of several draws; the model is not asked for them.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from papers.keytokens.language_model import Encoders
from papers.kit import Figure, Table, interval_of, measured, processor, run_script, wrapped
from papers.ldir.baselines import BINARY, PLAIN, bag_of_words, top_tenth
from papers.ldir.scored import Samples, drawn_counts, floor_draws, mean_of, mean_of_draws, ranks_of, spearman
from papers.ldir.tables import open_encoders
from papers.vector_cache import CachedEncoder, Vectors, distinct, unit_rows
from pellucid.anchors import farthest_points
from pellucid.evaluation.tasks import find_tasks, read_sts, read_table
from pellucid.text.tables import read_texts

SETS = {"STSBenchmark": "STS-B", "SICK-R": "SICK-R"}
CANDIDATES = 2_000  # sentences from which anchors are chosen
SAVED = 32  # texts answered between two writes
STATES = "the mean of the language model's states, centred"

QUESTIONS = dict(zip(*read_table(Path(__file__).with_name("questions.tsv"), ["question", "text"]).values()))
"""Question -> a text whose answer is yes."""

SHOWN = (
    ("Three birds sat on the roof.", "Does the text mention a number?", "Yes"),
    ("The birds sat on the roof.", "Is the text about cooking?", "No"),
    ("I lost my keys again.", "Is there a book in the text?", "No"),
    ("Her new book is a novel about pirates.", "Is there a book in the text?", "Yes"),
)
"""Texts, questions and answers that some wordings show first."""

TASK = "Answer the questions about the texts with yes or no."
WORDINGS = {
    "chat": (True, False),
    "chat, four answers shown": (True, True),
    "plain": (False, False),
    "plain, four answers shown": (False, True),
}
"""Name -> whether the chat template is used, whether SHOWN stands before the text."""

SPELLINGS = (("yes", "no"), ("Yes", "No"), (" yes", " no"), (" Yes", " No"))


# --- Answers ----------------------------------------------------------------------------------------------------------


class Answerer:
    """A language model that is asked all questions of a text; what stands before a question is read once."""

    def __init__(self, folder: Path, wording: str, questions: Sequence[str]) -> None:
        """Open nothing yet."""
        self.folder, self.wording, self.questions = folder, wording, tuple(questions)

    @cached_property
    def opened(self) -> tuple[Any, Any]:
        """Tokenizer and model, in bfloat16."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.bfloat16)
        return AutoTokenizer.from_pretrained(self.folder), model.eval()

    @cached_property
    def parts(self) -> tuple[str, str, str]:
        """What stands before the text, between text and question, and behind the question."""
        chat, shown = WORDINGS[self.wording]
        asked = [*SHOWN, ("{text}", "{question}", "")] if shown else [("{text}", "{question}", "")]
        if chat:
            messages = [{"role": "system", "content": TASK}]
            for text, question, answer in asked:
                messages.append({"role": "user", "content": f"Text: {text}\nQuestion: {question}"})
                messages.append({"role": "assistant", "content": answer})
            prompt = self.opened[0].apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        else:
            lines = (f"Text: {text}\nQuestion: {question}\nAnswer: {answer}" for text, question, answer in asked)
            prompt = "\n\n".join([TASK, *lines]).rstrip()
        before, rest = prompt.split(" {text}")
        between, behind = rest.split(" {question}")
        return before, between, behind

    @cached_property
    def asked(self) -> tuple[Any, Any]:
        """Token ids of all questions, padded behind [questions, length], and the place of each one's last token."""
        import torch

        rows = [self.ids(f" {question}{self.parts[2]}") for question in self.questions]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for row, given in zip(ids, rows):
            row[: len(given)] = torch.tensor(given)
        return ids, torch.tensor([len(given) - 1 for given in rows])

    @cached_property
    def words(self) -> Any:
        """Rows of the head for yes and for no, [2, spellings, d]."""
        import torch

        pairs = [[self.ids(word) for word in pair] for pair in SPELLINGS]
        single = [[yes[0], no[0]] for yes, no in pairs if len(yes) == len(no) == 1]
        if not single:
            raise SystemExit(f"{self.folder}: its tokenizer has no single token for yes and for no")
        return self.opened[1].get_output_embeddings().weight[torch.tensor(single).T].float()

    @cached_property
    def beginning(self) -> Any:
        """What the model keeps of the part before the text."""
        return self.read(self.ids(self.parts[0]), None)

    def ids(self, text: str) -> list[int]:
        """Return token ids without any added."""
        return list(self.opened[0](text, add_special_tokens=False)["input_ids"])

    def read(self, ids: list[int], kept: Any) -> Any:
        """Read tokens behind those of `kept`; return keys and values of both."""
        import torch

        with torch.inference_mode():
            model = self.opened[1].get_decoder()
            return model(torch.tensor([ids]), past_key_values=kept, use_cache=True).past_key_values

    def answer(self, text: str) -> Vectors:
        """Return the logarithm of the odds of yes against no, float32 [questions]."""
        import torch

        ids, last = self.asked
        kept = self.read(self.ids(f" {text}{self.parts[1]}"), copy.deepcopy(self.beginning))
        kept.batch_repeat_interleave(len(ids))
        with torch.inference_mode():
            states = self.opened[1].get_decoder()(ids, past_key_values=kept).last_hidden_state
            chosen = states[torch.arange(len(ids)), last].float()
            yes, no = torch.logsumexp(torch.einsum("qd,nsd->nqs", chosen, self.words), dim=2)
        found: Vectors = (yes - no).numpy()
        return found

    def answers(self, texts: Sequence[str]) -> Vectors:
        """Return the answers of several texts, float32 [texts, questions]."""
        return np.stack([self.answer(text) for text in texts])


class Bench:
    """The language model under every wording, the encoders it is compared with, and the pairs."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Open nothing yet."""
        self.options, self.questions = options, list(QUESTIONS)
        self.states = Encoders(options.model, options.work_dir)
        self.answerers = {name: Answerer(options.model, name, self.questions) for name in WORDINGS}

    def answers(self, wording: str, texts: Sequence[str]) -> Vectors:
        """Return answers, those asked before from disk."""
        answerer = self.answerers[wording]
        name = f"{self.states.weights}, bfloat16, {answerer.parts}, {self.questions}"
        encode = CachedEncoder(name, answerer.answers, self.options.work_dir / "vectors")
        found = [encode(list(texts[start : start + SAVED])) for start in range(0, len(texts), SAVED)]
        return np.concatenate(found)

    @cached_property
    def pairs(self) -> dict[str, tuple[list[str], list[str], Vectors]]:
        """Set -> drawn pairs and their gold scores."""
        found = {}
        for task in find_tasks(self.options.data):
            if task.name in SETS:
                given = read_sts(task)
                drawn = np.random.default_rng(0).permutation(len(given.scores))[: self.options.pairs]
                sides = [[texts[n] for n in drawn] for texts in (given.sentences1, given.sentences2)]
                found[SETS[task.name]] = (*sides, given.scores[drawn])
        return found

    @cached_property
    def texts(self) -> list[str]:
        """All texts of the pairs, once each, pair by pair."""
        return distinct(text for one, other, _ in self.pairs.values() for pair in zip(one, other) for text in pair)

    @cached_property
    def encoders(self) -> dict[str, CachedEncoder]:
        """MiniLM and static-en, their vectors kept on disk."""
        return {one.name: one.encode for one in open_encoders(self.options.work_dir)}

    @cached_property
    def candidates(self) -> list[str]:
        """Sentences from which anchors are chosen."""
        return list(islice(read_texts(self.options.data / "raw_english/open_licence.txt.xz"), CANDIDATES))


# --- Measurements -----------------------------------------------------------------------------------------------------


def known_shares(values: Vectors) -> Vectors:
    """Return, for each question, the share of the other texts that its own text is above; 0.5 is chance.

    Args:
        values: [texts, questions]; text n is one whose answer to question n is yes.
    """
    own = np.diag(values)
    above = (own > values).sum(axis=0) + 0.5 * ((own == values).sum(axis=0) - 1)
    return np.asarray(above / (len(values) - 1), np.float32)


def forms(values: Vectors) -> dict[str, Vectors]:
    """Return what is made of coordinates; means and medians are those of the given texts."""
    centred = values - values.mean(axis=0)
    above = (values > np.median(values, axis=0)).astype(np.float32)
    return {PLAIN: values, "centred": centred, BINARY[1]: above}


def rows_of(bench: Bench, wording: str) -> Iterator[tuple[str, Vectors]]:
    """Yield name -> rows [texts, d] of everything that is compared."""
    answers = bench.answers(wording, bench.texts)
    yield from named(f"questions ({len(bench.questions)})", forms(answers))
    yield f"questions ({len(bench.questions)}), 0/1: yes above no", (answers > 0).astype(np.float32)
    best = np.argsort(-known_shares(bench.answers(wording, list(QUESTIONS.values()))), kind="stable")
    best = best[: len(best) // 2]
    yield from named(f"questions, the {len(best)} answered best where known", forms(answers[:, best]))
    yield from named(
        "MiniLM: cosines to the questions", forms(cosines(bench.encoders["MiniLM"], bench.texts, bench.questions))
    )
    for name, encode in bench.encoders.items():
        anchors = chosen(encode, bench.candidates, len(bench.questions))
        values = cosines(encode, bench.texts, anchors)
        yield from named(f"{name}: anchors ({len(anchors)})", {**forms(values), BINARY[0]: top_tenth(values)})
        yield f"{name} itself", unit_rows(encode(bench.texts))
    states = bench.states.rows("mean", bench.texts)
    yield STATES, states - states.mean(axis=0)
    yield "bag of words", bag_of_words(bench.texts).encode(bench.texts).toarray()


def named(name: str, given: Mapping[str, Vectors]) -> Iterator[tuple[str, Vectors]]:
    """Yield the forms of one kind of coordinates under their full names."""
    for form, rows in given.items():
        yield name if form == PLAIN else f"{name}, {form}", rows


def chosen(encode: CachedEncoder, candidates: list[str], n: int) -> list[str]:
    """Return the anchors among the candidates, farthest points first."""
    return [candidates[int(row)] for row in farthest_points(unit_rows(encode(candidates)), n)]


def cosines(encode: CachedEncoder, texts: list[str], others: list[str]) -> Vectors:
    """Return the cosines of texts to others, [texts, others]."""
    found: Vectors = unit_rows(encode(texts)) @ unit_rows(encode(others)).T
    return found


def correlations(bench: Bench, rows: Vectors) -> Samples:
    """Return set -> Spearman's correlation x 100 of the pairs' cosines, then of each bootstrap sample."""
    place = {text: n for n, text in enumerate(bench.texts)}
    units, found = unit_rows(rows), {}
    for name, (one, other, gold) in bench.pairs.items():
        sides = [units[[place[text] for text in texts]] for texts in (one, other)]
        counts = drawn_counts(len(gold))
        values = ranks_of((sides[0] * sides[1]).sum(axis=1), counts)
        found[name] = 100 * spearman(values, ranks_of(gold, counts), counts)
    return found


# --- The page ---------------------------------------------------------------------------------------------------------


def known_figures(bench: Bench) -> tuple[str, float, dict[str, Figure]]:
    """Return the wording that answers best, its share, the table of all, and the questions answered worst."""
    texts, lines, shares = list(QUESTIONS.values()), list[list[Any]](), {}
    for name in WORDINGS:
        values = bench.answers(name, texts)
        shares[name], yes = known_shares(values), np.diag(values) > 0
        others = ((values > 0).sum() - yes.sum()) / (values.size - len(values))
        lines.append([name, *(100 * float(x) for x in (shares[name].mean(), yes.mean(), others))])
    best = max(shares, key=lambda name: float(shares[name].mean()))
    by_cosine = known_shares(cosines(bench.encoders["MiniLM"], texts, bench.questions))
    lines.append(["MiniLM, cosine of text and question", 100 * float(by_cosine.mean()), None, None])
    least = np.argsort(shares[best], kind="stable")[:6]
    worst = ", ".join(f'"{bench.questions[n]}" ({100 * shares[best][n]:.0f})' for n in least)
    many = int((shares[best] >= 0.95).sum())
    text = f"With the best wording {many} of {len(texts)} questions have 95 or more. The least have {worst}."
    wordings = Table(["wording", "others lower", "its own text: yes", "the others: yes"], lines)
    return best, float(shares[best].mean()), {"wordings": wordings, "worst": wrapped(text)}


def summary(found: Mapping[str, Mapping[str, Vectors]], count: int, share: float) -> str:
    """Return the main figures, and in words whether the answers are worth more than words counted."""
    names = [f"questions ({count}), centred", STATES, f"MiniLM: anchors ({count}), centred"]
    names += [f"static-en: anchors ({count}), centred", f"MiniLM: anchors ({count}), {BINARY[1]}"]
    names += [f"static-en: anchors ({count}), {BINARY[1]}", "bag of words"]
    questions, states, anchors, static, binary, static_binary, words = (
        f"{mean_of(found[name])[0]:.1f}" for name in names
    )
    verdict = {
        True: "The answers are better than words counted.",
        False: "A model of this size answers too badly: counting words is better.",
        None: "Whether they beat words counted is undecided.",
    }[interval_of(mean_of(found[names[0]]) - mean_of(found["bag of words"])).above()]
    return wrapped(
        f"""with the best wording, a known yes is above {100 * share:.0f} % of the other answers (chance: 50).
        The {count} answers as an embedding have {questions}; the mean of the same model's states, which asks nothing,
        has {states}.
        As many anchors have {anchors} over MiniLM and {static} over static-en, as 0 and 1 {binary} and {static_binary}.
        Bag of words has {words}. {verdict}"""
    )


def scores_table(found: Mapping[str, Mapping[str, Vectors]], main: str) -> Table:
    """Return the correlations of every row, and how far the row `main` is from them where it is among them."""
    lines: list[list[Any]] = []
    for name, sets in found.items():
        mean = "{:.1f} [{:.1f}, {:.1f}]".format(*interval_of(mean_of(sets)))
        less: str | None = None
        if name != main and main in found:
            less = "{:+.1f} [{:.1f}, {:.1f}]".format(*interval_of(mean_of(found[main]) - mean_of(sets)))
        lines.append([name, *(float(values[0]) for values in sets.values()), mean, less])
    return Table(["model (dimensions)", *SETS.values(), "mean", f"{main}, less this"], lines)


def floor_figures(bench: Bench) -> Iterator[tuple[str, Figure]]:
    """Yield the rows of as many random directions and random sentences, over each encoder."""
    count, found = len(bench.questions), dict[str, Samples]()
    for encoder, encode in bench.encoders.items():
        sentences, rows = unit_rows(encode(bench.candidates)), unit_rows(encode(bench.texts))
        for kind, draws in floor_draws(sentences, count).items():
            by_form: dict[str, list[Samples]] = {}
            for matrix in draws:
                for name, values in named(f"{encoder}: {kind} ({count})", forms(rows @ matrix.T)):
                    by_form.setdefault(name, []).append(correlations(bench, values))
            found |= {name: mean_of_draws(samples) for name, samples in by_form.items()}
    yield "floor-scores", scores_table(found, _main_row(count))


def _main_row(count: int) -> str:
    return f"questions ({count}), centred"


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Measure what is not yet known and yield what the page shows."""
    options.work_dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    if "floors" in options.only:
        yield from floor_figures(bench)
    if "questions" not in options.only:
        return
    count, (best, share, known) = len(bench.questions), known_figures(bench)
    correlated = {name: correlations(bench, rows) for name, rows in rows_of(bench, best)}
    yield "machine", f"{measured()} {processor()}"
    yield "summary", summary(correlated, count, share)
    yield from known.items()
    yield "scores", scores_table(correlated, _main_row(count))


if __name__ == "__main__":
    run_script(
        measure,
        {
            "model": {"type": Path, "help": "folder of a causal language model with a chat template"},
            "--pairs": {"type": int, "default": 125, "help": "of each set"},
        },
        data="sts/ and raw_english/",
        work_dir="vectors and answers",
        only=("questions", "floors"),
    )
