r"""Embeddings of answers to yes/no questions by a small language model; writes papers/ldir/questions.md.

    python -m papers.ldir.yes_no_questions FOLDER --data shared/data --work-dir WORK --write

FOLDER holds a causal language model of transformers with a chat template; it is read in bfloat16. Every question is
asked of every text. The wording is the one that answers best where the answer is known: each question has one text
whose answer is yes. The same pairs are measured with as many anchors. Answers are kept in WORK, and a run that was
stopped goes on.
"""

from __future__ import annotations

from papers.threads import set_threads

set_threads(None)

import argparse
import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from papers.evidence import DRAWS, interval_of, resampled
from papers.keytokens.language_model import Encoders
from papers.ldir.baselines import BagOfWords, top_tenth
from papers.ldir.page import BINARY, PAPER_STS, PLAIN
from papers.ldir.tables import open_encoders
from papers.options import make_parser
from papers.pages import markdown_table, measured, print_page, processor, wrapped
from papers.vector_cache import CachedEncoder, Vectors, distinct, unit_rows
from pellucid.anchors import farthest_points
from pellucid.evaluation.tasks import find_tasks, read_sts
from pellucid.text.corpus import read_texts

SETS = {"STSBenchmark": "STS-B", "SICK-R": "SICK-R"}
CANDIDATES = 2_000  # sentences from which anchors are chosen
SAVED = 32  # texts answered between two writes
SIZES = (6, 12, 24)  # numbers of questions besides all
STATES = "the mean of the language model's states, centred"
_SUBSETS = 20

QUESTIONS = {
    "Is the text about money?": "The bank raised its interest rates, and the shares lost two percent.",
    "Does the text describe an animal?": "A brown dog is sleeping under the table.",
    "Is the text about politics?": "The president signed the law after a long debate in parliament.",
    "Is the text about sports?": "The striker scored twice, and the team won the cup.",
    "Does the text mention food?": "She baked a chocolate cake and cut it into slices.",
    "Is the text about music?": "The band played the song on guitar and drums.",
    "Is the text about war or weapons?": "Soldiers fired rockets at the village.",
    "Does the text mention water?": "The boat crossed the lake.",
    "Is there a child in the text?": "A little boy is asleep in his bed.",
    "Is there a woman in the text?": "The woman closed her umbrella.",
    "Is there a man in the text?": "An old man reads the newspaper.",
    "Are there several people in the text?": "Three friends are sitting around the fire.",
    "Does the text mention a vehicle?": "A red truck is parked beside the road.",
    "Is the text about health or medicine?": "The doctor gave the patient a vaccine against the flu.",
    "Is the text about a crime?": "The police arrested two men for robbing a shop.",
    "Is someone hurt or dead in the text?": "Nine people died in the explosion.",
    "Is the text about the weather?": "Heavy snow and strong winds are expected.",
    "Does the text name a city or a country?": "Berlin is the capital of Germany.",
    "Does the text contain a number?": "They sold 350 tickets in 12 days.",
    "Is the text about history?": "The castle was built by a king in the twelfth century.",
    "Is the text about the future?": "Next year the museum will open a new wing.",
    "Is the text a question?": "How do I remove a stain from a shirt?",
    "Does the text say that something is not so?": "There is no one here, and nobody is waiting.",
    "Does the text give an opinion?": "I think this is the worst hotel I have ever seen.",
    "Does the text give advice?": "You should wash your hands before you cook.",
    "Is the text sad?": "He wept for days after his best friend had left him.",
    "Is the text happy?": "We laughed and danced all night, it was wonderful.",
    "Is the text about technology?": "The new phone has a faster chip and a better camera.",
    "Is the text about science?": "Physicists have measured the mass of the particle.",
    "Is the text about school or learning?": "The teacher explained the lesson to her class.",
    "Is the text about work or business?": "The company hired two hundred workers.",
    "Is the text about law or a court?": "The judge rejected the appeal against the ruling.",
    "Does the text take place outdoors?": "Hikers climb the path to the summit.",
    "Does the text take place inside a building?": "They are sitting on the sofa in the living room.",
    "Is someone running or jumping in the text?": "A girl is running across the field.",
    "Is someone speaking in the text?": "The minister told reporters that talks would go on.",
    "Does someone use their hands in the text?": "He is slicing an onion with a knife.",
    "Does the text mention clothes?": "She wears a green dress and a white hat.",
    "Does the text mention plants?": "Tall trees and flowers grow in the garden.",
    "Is someone playing a game in the text?": "Two boys are playing chess.",
    "Is the text about religion?": "The monks pray in the temple.",
    "Is the text about travel?": "We flew to Italy for our holidays.",
    "Does the text mention a tool or a machine?": "The mechanic repairs the engine with a wrench.",
    "Is the text about art or film?": "The painter's portraits hang in the gallery.",
    "Does the text mention a colour?": "The walls are yellow and the door is blue.",
    "Does the text mention a part of the body?": "He scratched his left ear.",
    "Is something dangerous in the text?": "The climber hangs from the cliff by one rope.",
    "Does the text name a company or an organisation?": "Microsoft and the United Nations signed the agreement.",
}
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

    def tokens(self, texts: Sequence[str]) -> float:
        """Return how many tokens are read for a text, on average."""
        own = np.mean([len(self.ids(f" {text}{self.parts[1]}")) for text in texts])
        return float(own + (self.asked[1] + 1).sum())


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
        return {one.name: one.encode for one in open_encoders(self.options.work_dir, None)}

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
    yield "bag of words", BagOfWords(bench.texts).encode(bench.texts).toarray()


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


def correlations(bench: Bench, rows: Vectors, draws: int) -> dict[str, Vectors]:
    """Return set -> Spearman's correlation x 100 of the pairs' cosines, then of each bootstrap sample."""
    place = {text: n for n, text in enumerate(bench.texts)}
    units, found = unit_rows(rows), {}
    for name, (one, other, gold) in bench.pairs.items():
        sides = [units[[place[text] for text in texts]] for texts in (one, other)]
        values = (sides[0] * sides[1]).sum(axis=1)
        drawn = np.concatenate([np.arange(len(gold))[None], resampled(len(gold), draws)])
        found[name] = 100 * spearman(values[drawn], gold[drawn])
    return found


def spearman(ones: Vectors, others: Vectors) -> Vectors:
    """Return Spearman's correlation row by row; 0 where a row is constant."""
    ranks = [rankdata(values, axis=1) for values in (ones, others)]
    ranks = [values - values.mean(axis=1, keepdims=True) for values in ranks]
    lengths = np.prod([np.linalg.norm(values, axis=1) for values in ranks], axis=0)
    product = (ranks[0] * ranks[1]).sum(axis=1)
    return np.asarray(np.divide(product, lengths, out=np.zeros(len(product)), where=lengths > 0), np.float32)


# --- The page ---------------------------------------------------------------------------------------------------------

_HEAD = """# Results: yes/no questions

Written by `papers/ldir/yes_no_questions.py`. {measured} {processor}, one thread, no GPU; `--pairs {pairs}`.

*LDIR* compares anchors with embeddings whose coordinates are answers to yes/no questions (QAEmb-MBQA, CQG-MBQA: about
10,000 questions, answered by a model trained on the answers of large language models). This is the same in small:
{count} questions written by hand, asked of every text by **{model}** (weights unpacked from 4 bits), read in bfloat16.
An answer is the logarithm of the odds of yes against no. Nothing is trained. The model reads {tokens:.0f} tokens for a
text; an anchor model reads the text alone.

"""

_SHORT = """**In short:** with the best wording, a known yes is above {share:.0f} % of the other answers (chance: 50).
The {count} answers as an embedding have {questions}; the mean of the same model's states, which asks nothing, has
{states}. As many anchors have {anchors} over MiniLM and {static} over static-en, as 0 and 1 {binary} and
{static_binary}. Bag of words has {words}. {verdict}

"""

_KNOWN = """## Can the model answer?

Each question has one text whose answer is yes. The share of the other {others} texts whose answer is lower is 50 for a
model that cannot answer, and somewhat below 100 for one that can, since some questions are true of several texts. The
wording with the greatest share is used below; no score of the pairs was seen by that choice.

"""

_SCORES = """## Similarity of sentences

Spearman's correlation x 100 of the cosines with the gold scores, {pairs} pairs of each set drawn at random; the rows
"as printed" are of whole sets. Intervals are 95 %, by bootstrap over pairs. Means and medians are those of the texts
measured. Anchors are the farthest points among {candidates:,} sentences.

"""


def known_table(bench: Bench) -> tuple[str, float, str]:
    """Return the wording that answers best, its share, and the table of all with the questions answered worst."""
    texts, lines, shares = list(QUESTIONS.values()), [], {}
    for name in WORDINGS:
        values = bench.answers(name, texts)
        shares[name], said = known_shares(values), np.diag(values) > 0
        others = ((values > 0).sum() - said.sum()) / (values.size - len(values))
        lines.append((name, 100 * float(shares[name].mean()), 100 * float(said.mean()), 100 * float(others)))
    best = max(shares, key=lambda name: float(shares[name].mean()))
    given = known_shares(cosines(bench.encoders["MiniLM"], texts, bench.questions))
    lines.append(("MiniLM, cosine of text and question", 100 * float(given.mean()), None, None))
    header = ["wording", "others lower", "its own text: yes", "the others: yes"]
    least = np.argsort(shares[best], kind="stable")[:6]
    worst = ", ".join(f'"{bench.questions[n]}" ({100 * shares[best][n]:.0f})' for n in least)
    many = int((shares[best] >= 0.95).sum())
    said = f"With the best wording {many} of {len(texts)} questions have 95 or more. The least have {worst}."
    return best, float(shares[best].mean()), f"{markdown_table(header, lines)}\n{said}\n"


def in_short(found: Mapping[str, Mapping[str, Vectors]], count: int, share: float) -> str:
    """Return the main figures, and in words whether the answers are worth more than words counted."""
    names = {
        "questions": f"questions ({count}), centred",
        "anchors": f"MiniLM: anchors ({count}), centred",
        "static": f"static-en: anchors ({count}), centred",
        "binary": f"MiniLM: anchors ({count}), {BINARY[1]}",
        "static_binary": f"static-en: anchors ({count}), {BINARY[1]}",
        "states": STATES,
        "words": "bag of words",
    }
    verdict = {
        True: "The answers are better than words counted.",
        False: "A model of this size answers too badly: counting words is better.",
        None: "Whether they beat words counted is undecided.",
    }[interval_of(mean(found[names["questions"]]) - mean(found["bag of words"])).above()]
    figures = {key: f"{mean(found[name])[0]:.1f}" for key, name in names.items()}
    return _SHORT.format(count=count, share=100 * share, verdict=verdict, **figures)


def scores_table(found: Mapping[str, Mapping[str, Vectors]], main: str) -> str:
    """Return the correlations of every row, the papers' first, and how far the row `main` is from them."""
    lines: list[tuple[Any, ...]] = []
    for name, printed in PAPER_STS.items():
        if "MBQA" in name or "LDIR" in name:
            lines.append((f"{name}, as printed", *printed[-2:], float(np.mean(printed[-2:])), None))
    for name, sets in found.items():
        own = [float(values[0]) for values in sets.values()]
        here, less = interval_of(mean(sets)), interval_of(mean(found[main]) - mean(sets))
        cells = ["{:.1f} [{:.1f}, {:.1f}]".format(*here), "{:+.1f} [{:.1f}, {:.1f}]".format(*less)]
        lines.append((name, *own, *(cells if name != main else (cells[0], None))))
    return markdown_table(["model (dimensions)", *SETS.values(), "mean", f"{main}, less this"], lines)


def mean(sets: Mapping[str, Vectors]) -> Vectors:
    """Return the mean over the sets, of the pairs and of every bootstrap sample."""
    return np.asarray(np.mean(list(sets.values()), axis=0))


def sizes_table(bench: Bench, wording: str) -> str:
    """Return the mean correlation by number of questions and of anchors, means over subsets drawn at random."""
    encode = bench.encoders["MiniLM"]
    anchors = chosen(encode, bench.candidates, len(bench.questions))
    kinds = {
        "questions, centred": bench.answers(wording, bench.texts),
        "MiniLM: anchors, centred": cosines(encode, bench.texts, anchors),
    }
    lines = []
    for name, values in kinds.items():
        centred = values - values.mean(axis=0)
        cells = []
        for size in (*SIZES, values.shape[1]):
            drawn = [np.random.default_rng(n).permutation(values.shape[1])[:size] for n in range(_SUBSETS)]
            cells.append(float(np.mean([mean(correlations(bench, centred[:, some], 0))[0] for some in drawn])))
        lines.append((name, *cells))
    return markdown_table(["number", *map(str, (*SIZES, len(bench.questions)))], lines)


def make_page(bench: Bench) -> str:
    """Measure what is not yet known and return the page."""
    options, count, (best, share, known) = bench.options, len(bench.questions), known_table(bench)
    found = {name: correlations(bench, rows, DRAWS) for name, rows in rows_of(bench, best)}
    head = _HEAD.format(
        measured=measured(),
        processor=processor(),
        pairs=options.pairs,
        count=count,
        model=options.name or options.model.name,
        tokens=bench.answerers[best].tokens(bench.texts),
    )
    parts = [head, in_short(found, count, share), _KNOWN.format(others=len(QUESTIONS) - 1), known, "\n"]
    parts += [
        _SCORES.format(pairs=options.pairs, candidates=CANDIDATES),
        scores_table(found, f"questions ({count}), centred"),
    ]
    parts += ["\n## Number of questions\n\nMean of the two sets; smaller numbers are the mean over "]
    parts += [f"{_SUBSETS} subsets drawn at random.\n\n", sizes_table(bench, best)]
    return wrapped("".join(parts))


def main() -> None:
    """Measure what is not yet known and write the page."""
    page = Path(__file__).with_name("questions.md")
    parser = make_parser(__doc__, data="sts/ and raw_english/", work_dir="vectors and answers", write=page)
    parser.add_argument("model", type=Path, help="folder of a causal language model with a chat template")
    parser.add_argument("--name", default="", help="of the model, on the page; its folder's otherwise")
    parser.add_argument("--pairs", type=int, default=150, help="of each set")
    options = parser.parse_args()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    print_page(make_page(Bench(options)), options.write)


if __name__ == "__main__":
    main()
