r"""Run functions of the authors' published code beside ours on the same inputs, for a table of papers/fidelity.md.

    python -m papers.authors_code --ldir LDIR --swe swe4semantics --lens LENS --key-tokens Text_aligns_tokens \
        --write

The folders are checkouts of github.com/szu-tera/LDIR, twadada/swe4semantics, Yibin-Lei/LENS and
Arthurizijar/Text_aligns_tokens. Single functions are taken out of their files and run, so that none of their
requirements is needed; nothing of their code is kept here. Read what you run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import subprocess
import typing
from collections.abc import Iterator
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from sklearn.metrics.pairwise import cosine_similarity

from papers.kit import Figure, Table, run_script
from papers.ldir.farthest import published_farthest_points
from pellucid import AnchorEmbedder
from pellucid.keytokens.head import top_tokens
from pellucid.lexicon.trainer import candidate_loss
from pellucid.static.training.tuning import similarity_loss, translation_loss
from pellucid.transformer import max_pooled

Row = tuple[str, str, str, str]


def functions_of(path: Path, *names: str) -> SimpleNamespace:
    """Return functions and methods of a file, without running the rest of it."""
    space: dict[str, Any] = {"np": np, "torch": torch, "F": functional, "Tensor": torch.Tensor, **vars(typing)}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            exec(compile(ast.Module([node], []), str(path), "exec"), space)
    return SimpleNamespace(**{name: space[name] for name in names})


def commit_of(folder: Path) -> str:
    """Return the short name of the commit that is checked out, "unknown" outside of git."""
    asked = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return float32 numbers drawn by the seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def apart(theirs: torch.Tensor, ours: torch.Tensor) -> str:
    """Return the greatest difference, in words."""
    difference = float((theirs - ours).abs().max())
    return "equal" if difference == 0 else f"at most {difference:.0e} apart"


def ldir(folder: Path) -> Iterator[Row]:
    """Yield the rows of farthest points and of embeddings; the width of 1,024 is written into their function."""
    theirs = functions_of(folder / "utils/sample_fun.py", "distance_fun", "farthest_point_sample_with_cuda")
    theirs.farthest_point_sample_with_cuda.__globals__["distance_fun"] = theirs.distance_fun
    rows = normal(3000, 1024) * (0.5 + torch.rand(3000, 1, generator=torch.Generator().manual_seed(1)))
    with contextlib.redirect_stdout(io.StringIO()):
        visited, chosen = theirs.farthest_point_sample_with_cuda(rows[None], 200)
    ours = published_farthest_points(rows.numpy(), 200, start=int(visited[0, 0])).tolist()
    same = sum(a == b for a, b in zip(chosen, ours, strict=True))
    yield "LDIR: farthest points", commit_of(folder), "3,000 rows of 1,024", f"{same} of {len(ours)} picks the same"
    encode = functions_of(folder / "src/anchor_sim_model.py", "encode").encode
    encode.__globals__["cosine_similarity"] = cosine_similarity
    names = [str(number) for number in range(len(rows))]
    encoder = SimpleNamespace(eval=lambda: None, encode=lambda texts: rows[[int(text) for text in texts]].numpy())
    anchors = SimpleNamespace(model=encoder, batch_size=256, is_binary=False, anchors_emb=rows[:200].numpy())
    shown = apart(
        torch.from_numpy(encode(anchors, names)),
        torch.from_numpy(AnchorEmbedder(encoder.encode, names[:200]).encode(names)),
    )
    yield "LDIR: embeddings", commit_of(folder), "3,000 texts, 200 anchors", shown


def swe(folder: Path) -> Iterator[Row]:
    """Yield the rows of the two losses, with -inf where their scripts put it: on the diagonal, off it in the target."""
    student, teacher, other = (functional.normalize(normal(128, width, seed=width), dim=1) for width in (256, 384, 257))
    other = functional.normalize(other[:, :256], dim=1)
    out = torch.zeros(128, 128).fill_diagonal_(-torch.inf)
    of_student, of_teacher = (rows @ rows.T / 0.05 + out for rows in (student, teacher))
    theirs = functions_of(folder / "train.py", "distill_loss").distill_loss(of_student, of_teacher)
    shown = apart(theirs, similarity_loss(student, teacher, 0.05))
    yield "SWE: distillation loss", commit_of(folder), "128 sentences", f"{float(theirs):.4f}, {shown}"
    loss = functions_of(folder / "train_xling.py", "contrastive_loss").contrastive_loss
    gold, cosines = torch.full((128, 128), -torch.inf).fill_diagonal_(0), student @ other.T / 0.05
    theirs = loss(cosines, gold) + loss(cosines.T, gold.T)
    shown = apart(theirs, translation_loss(student, other, 0.05))
    yield "SWE: loss of translations", commit_of(folder), "128 pairs", f"{float(theirs):.4f}, {shown}"


def lens(folder: Path) -> Iterator[Row]:
    """Yield the rows of pooling and of the loss; theirs has the teacher's cross-entropy, ours the divergence."""
    names = ("pooling", "forward", "compute_similarity", "get_local_similarity", "compute_cross_entropy_loss")
    theirs = functions_of(folder / "finetune/modeling.py", *names)
    hidden, clusters, mask = normal(6, 40, 64), normal(500, 64, seed=1), normal(6, 40, seed=2) > 0
    pooled = theirs.pooling(SimpleNamespace(pooling_method="max-pooling"), hidden @ clusters.T, mask.float())
    shown = apart(pooled, max_pooled(hidden, mask, clusters)[0])
    yield "LENS: log-saturation and max pooling", commit_of(folder), "6 texts, 500 clusters", shown
    queries, texts = (functional.normalize(normal(count, 32, seed=count), dim=1) for count in (4, 32))
    scores = normal(4, 8, seed=3)
    model = SimpleNamespace(training=True, negatives_cross_device=False, temperature=0.02, encode=lambda rows: rows)
    model.cross_entropy = torch.nn.CrossEntropyLoss()
    for name in names[2:]:
        setattr(model, name, MethodType(getattr(theirs, name), model))
    theirs.forward.__globals__["EncoderOutput"] = SimpleNamespace
    total = theirs.forward(model, queries, texts, ["normal"], scores.tolist()).loss
    entropy = -(scores.softmax(dim=1) * scores.log_softmax(dim=1)).sum(dim=1).mean()
    none = torch.zeros(4, 32, dtype=torch.bool)
    ours = candidate_loss(queries, texts, none, scores, temperature=0.02, distillation=1.0)
    shown = apart(total, ours + entropy)
    yield "LENS: InfoNCE and teacher", commit_of(folder), "4 queries, 32 texts", f"{float(total):.4f}, {shown}"


def key_tokens(folder: Path) -> Iterator[Row]:
    """Yield the rows of the first tokens and of the rates, of texts without repeated or special tokens."""
    from papers.keytokens.rates import EmbeddedTexts, measure
    from pellucid.transformer.tokenwords import readable

    theirs = functions_of(folder / "aligned_token.py", "get_decode_content", "calculate_metric")
    head, embeddings = normal(2000, 32), normal(500, 32, seed=1)
    near = (embeddings @ head.T + 8 * normal(500, 2000, seed=2)).topk(12).indices.tolist()
    own = [row[: 4 + number % 9] for number, row in enumerate(near)]
    tokenizer = SimpleNamespace(encode=lambda text: own[int(text)], convert_ids_to_tokens=str)
    ids, _ = theirs.get_decode_content(tokenizer, embeddings @ head.T, 20)
    ours = top_tokens(embeddings.numpy(), head, 20)
    different = ours.ids != np.array(ids)
    scores = (embeddings @ head.T).gather(1, torch.tensor(ids))
    told = apart(scores[different], torch.from_numpy(ours.scores)[different]) if different.any() else "none"
    shown = f"{(~different).sum():,} of 10,000 tokens the same; scores of the others: {told}"
    yield "key tokens: the first 20", commit_of(folder), "500 texts, 2,000 tokens", shown
    texts = [str(number) for number in range(500)]
    rates = theirs.calculate_metric(SimpleNamespace(k=10), texts, tokenizer, ids)
    given = EmbeddedTexts(texts, embeddings.numpy(), [set(row) for row in own], head.numpy(),
                          readable([f"Ġw{number}" for number in range(2000)]))  # fmt: skip
    found = measure("ours", given, 10, stems=None)
    shown = apart(torch.tensor(rates, dtype=torch.float64), torch.tensor([found.hit, found.lar, found.gar]).double())
    said = ", ".join(f"{rate:.3f}" for rate in rates)
    yield "key tokens: Hit@10, LAR, GAR", commit_of(folder), "500 texts", f"{said}; {shown}"


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield the comparison."""
    rows = [*ldir(options.ldir), *swe(options.swe), *lens(options.lens), *key_tokens(options.key_tokens)]
    yield "functions", Table(["the authors' function", "commit", "inputs", "ours beside theirs"], rows, 4)


if __name__ == "__main__":
    folder = {"type": Path, "required": True, "help": "folder of the checkout"}
    run_script(measure, {f"--{name}": folder for name in ("ldir", "swe", "lens", "key-tokens")})
