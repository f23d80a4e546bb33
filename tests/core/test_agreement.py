"""The papers' formulas on small fixed inputs: ours against the formula written out, and both against recorded values.

Inputs are sines (`sines`). The recorded values were made by the plain formulas of this file in float64
and hold on every machine; they contain nothing of the authors' code. papers/fidelity.md lists them.
"""

import numpy as np
import pytest

from pellucid import AnchorEmbedder, EnsembleEmbedder, StaticEmbedder
from pellucid.text.words import Vocabulary

LOSSES = [6.329930606, 18.378972407]
PRODUCTS = [3.181198711, -2.189711253, 0.449591653, -1.16012875, 1.408839112, -1.197098143, -0.647018203]
ENSEMBLE = 0.119106369
POOLED = [1.743870965, 1.715354472, 1.619048134, 1.373529765, 0.718476514]


def sines(rows: int, columns: int, step: float) -> np.ndarray:
    """Numbers between -1 and 1 without a pattern: sin(step), sin(4 step), sin(9 step), ..."""
    return np.sin(step * np.arange(1, rows * columns + 1) ** 2).reshape(rows, columns)


def units(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def softmax(values: np.ndarray) -> np.ndarray:
    raised = np.exp(values - values.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


# --- LDIR -------------------------------------------------------------------------------------------------------------


def test_an_embedding_is_the_cosines_to_the_anchors():
    rows = dict(zip(["anchor one", "anchor two", "anchor three", "text"], sines(4, 6, 1.7)))
    model = AnchorEmbedder(lambda texts: np.array([rows[text] for text in texts]), list(rows)[:3])
    plain = [rows["text"] @ a / np.sqrt((rows["text"] @ rows["text"]) * (a @ a)) for a in list(rows.values())[:3]]
    recorded = [-0.044420106, -0.297983515, 0.380606824]
    assert plain == pytest.approx(recorded, abs=1e-7)
    assert model.encode("text") == pytest.approx(recorded, abs=1e-6)


# --- SWE --------------------------------------------------------------------------------------------------------------


def test_words_on_the_components_of_sentences_after_the_first():
    from pellucid.static import PcaSettings
    from pellucid.static.bags import Bags
    from pellucid.static.training.distill import project

    words = sines(7, 5, 1.3)
    sentences = [(0, 1, 2), (2, 3), (3, 4, 5), (5, 6), (6, 0), (1, 4, 6), (2, 5), (0, 3, 4, 6)]
    means = np.array([words[list(sentence)].mean(axis=0) for sentence in sentences])
    components = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)[2]
    plain = (words - means.mean(axis=0)) @ components[1:3].T
    bags = Bags(np.concatenate(sentences), np.cumsum([0, *map(len, sentences)]))
    ours = project(words.astype(np.float32), bags, PcaSettings(dimensions=2, drop=1))
    recorded = PRODUCTS  # of the first word with each word: free of the components' signs
    assert (plain @ plain[0]).tolist() == pytest.approx(recorded, abs=1e-7)
    assert (ours @ ours[0]).tolist() == pytest.approx(recorded, abs=1e-5)


def test_a_sentence_is_the_mean_of_its_words_at_length_1():
    words = sines(3, 4, 1.1)
    mean = (words[0] + 2 * words[1]) / 3
    recorded = [0.761579025, 0.312796626, -0.466969911, 0.322637198]
    assert (mean / np.linalg.norm(mean)).tolist() == pytest.approx(recorded, abs=1e-7)
    model = StaticEmbedder(Vocabulary(["red", "car", "sea"]), words.astype(np.float32))
    assert model.encode("car, red car!") == pytest.approx(recorded, abs=1e-6)


def test_distillation_and_the_loss_of_translations():
    torch = pytest.importorskip("torch")
    from pellucid.static.training.tuning import similarity_loss, translation_loss

    student, teacher, other = units(sines(5, 3, 1.9)), units(sines(5, 4, 0.7)), units(sines(5, 3, 2.9))
    off = ~np.eye(5, dtype=bool)
    s, t = ((rows @ rows.T / 0.05)[off].reshape(5, 4) for rows in (student, teacher))
    equation_2 = -(softmax(t) * np.log(softmax(s))).sum(axis=1).mean()
    both = student @ other.T / 0.05
    equation_4 = -sum(np.log(np.diag(softmax(matrix))).mean() for matrix in (both, both.T))
    assert [equation_2, equation_4] == pytest.approx(LOSSES, rel=1e-7)
    student, teacher, other = (torch.from_numpy(rows).float() for rows in (student, teacher, other))
    ours = [similarity_loss(student, teacher, 0.05), translation_loss(student, other, 0.05)]
    assert [float(loss) for loss in ours] == pytest.approx(LOSSES, rel=1e-6)


def test_an_ensembles_product_is_the_weighted_mean_of_cosines():
    parts = [sines(2, 4, 1.7), sines(2, 3, 0.9)]
    names = ["one text", "another"]
    models = [lambda texts, rows=rows: np.array([rows[int(text == names[1])] for text in texts]) for rows in parts]
    first, second = (float(np.prod(units(rows), axis=0).sum()) for rows in parts)
    plain = (4 * first + second) / 5  # a_1 = 2, a_2 = 1: weights of 4 and 1
    embeddings = EnsembleEmbedder(models, [4, 1]).encode(names)
    assert plain == pytest.approx(ENSEMBLE, abs=1e-7)
    assert float(embeddings[0] @ embeddings[1]) == pytest.approx(ENSEMBLE, abs=1e-6)


# --- LENS -------------------------------------------------------------------------------------------------------------


def test_log_saturation_and_the_maximum_over_positions():
    torch = pytest.importorskip("torch")
    from pellucid.transformer import max_pooled

    hidden, clusters = 3 * sines(4, 3, 1.3), sines(5, 3, 2.1)
    plain = np.log(1 + np.maximum(hidden[:3] @ clusters.T, 0)).max(axis=0)  # the last position is not the text's
    assert plain.tolist() == pytest.approx(POOLED, abs=1e-7)
    mask = torch.tensor([[True, True, True, False]])
    values, _ = max_pooled(torch.from_numpy(hidden)[None].float(), mask, torch.from_numpy(clusters).float())
    assert values[0].tolist() == pytest.approx(POOLED, abs=4e-7)


def test_infonce_and_the_reranker_as_teacher():
    torch = pytest.importorskip("torch")
    from pellucid.lexicon.trainer import candidate_loss

    queries, texts = units(sines(2, 4, 1.9)), units(sines(6, 4, 0.7))
    cosines, scores = queries @ texts.T / 0.5, np.array([[2.0, 0.5, -1.0], [1.0, 1.5, 0.0]])
    contrast = -np.mean([np.log(softmax(cosines)[row, 3 * row]) for row in range(2)])
    own = np.array([cosines[0, :3], cosines[1, 3:]])
    cross_entropy = -(softmax(scores) * np.log(softmax(own))).sum(axis=1).mean()
    entropy = -(softmax(scores) * np.log(softmax(scores))).sum(axis=1).mean()
    assert [contrast, cross_entropy, entropy] == pytest.approx([1.178744657, 1.620027488, 0.787196084], rel=1e-7)
    units_and_scores = [torch.from_numpy(rows).float() for rows in (queries, texts, scores)]
    tensors = [*units_and_scores[:2], torch.zeros(2, 6, dtype=torch.bool), units_and_scores[2]]
    alone, taught = (float(candidate_loss(*tensors, distillation=d, temperature=0.5)) for d in (0.0, 1.0))
    # The authors add the cross-entropy; ours is the divergence, which is less by the teacher's entropy.
    assert [alone, taught - alone] == pytest.approx([contrast, cross_entropy - entropy], rel=1e-6)
