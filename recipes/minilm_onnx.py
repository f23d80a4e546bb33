"""Make the bundled model minilm: all-MiniLM-L6-v2 as one ONNX file of int8 weights, for onnxruntime.

    pip install onnx onnxruntime
    python -m recipes.minilm_onnx --corpus open_licence.txt.xz --minilm FOLDER --output src/pellucid/bundled/minilm

Two minutes on one core. The graph is written by hand, with pooling and normalisation in it. Its products of matrices
are of 8-bit integers, and the vector of a text does not depend on the texts of its batch:

- The states of a token are divided by the largest of that token, so no token sees another one's scale.
- Weights have a scale for each output. Before that, each input is divided by a power of the largest value that it has
  in `CALIBRATED` sentences of the corpus, and its weights are multiplied with it (SmoothQuant, arXiv 2211.10438): a few
  inputs are a hundred times as large as others. States after the GELU, at least -0.17, are shifted to begin at 0.
- Weights are rounded one input after the other, and what each loses is made up by the inputs after it (GPTQ, arXiv
  2210.17323).
- Two neighbouring weights never add up to more than 128, for which the scale of an output is up to twice as large:
  processors with AVX2 and without VNNI add two products of 8 bits in 16, and would cut larger sums. So every processor
  computes the same integers.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

from pellucid.dense.embedder import EncoderEmbedder
from pellucid.dense.onnx import FILE, OnnxEncoder
from pellucid.persistence.store import checksum

CALIBRATED, CORPUS_LINES = 500, 200_000  # sentences; lines of the corpus that they are spread over
MAX_TOKENS = 256
SMOOTHING = 0.75  # the power of an input's largest value; of 0.3 to 0.9 the nearest to the original
DAMPING = 0.01  # of the products of inputs, in their mean square
TOP, MAX_PAIR = 127, 128  # a weight, and the sum of two neighbouring ones of one sign
LOWEST_GELU = 0.17
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the original's weights
FILES = "tokenizer.json tokenizer_config.json modules.json sentence_bert_config.json 1_Pooling/config.json".split()
CARD = Path(__file__).with_name("minilm_onnx_card.md")

Array = npt.NDArray[Any]


class Inputs(NamedTuple):
    """What the inputs of a matrix are over the calibration sentences."""

    products: Array  # the sums of products of two inputs, float64 [inputs, inputs]
    largest: Array  # of each input, its absolute value [inputs]


def corpus_sentences(path: Path) -> list[str]:
    """Return the calibration sentences, spread over the beginning of the corpus."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line for line in map(str.strip, islice(file, CORPUS_LINES)) if line]
    return lines[1 :: len(lines) // CALIBRATED][:CALIBRATED]


def calibrate(original: SentenceTransformer, sentences: list[str]) -> dict[str, Inputs]:
    """Return the inputs of every matrix of the transformer, by its name."""
    found: dict[str, Inputs] = {}

    def note(name: str, states: Array) -> None:
        before = found.get(name, Inputs(np.zeros((states.shape[1],) * 2), np.zeros(states.shape[1])))
        products = before.products + states.T @ states
        found[name] = Inputs(products, np.maximum(before.largest, np.abs(states).max(axis=0)))

    for name, module in original[0].auto_model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.startswith("encoder"):
            module.register_forward_pre_hook(lambda _, given, name=name: note(name, given[0][0].double().numpy()))
    for sentence in sentences:  # one at a time: no padding
        original.encode(sentence, show_progress_bar=False)
    return found


def rounded(weights: Array, scale: Array, products: Array) -> Array:
    """Return weights [inputs, outputs] as int8 in units of `scale` [outputs], for inputs of such products."""
    n_inputs = len(weights)
    damped = products + DAMPING * np.diag(products).mean() * np.eye(n_inputs)
    order = np.argsort(-np.diag(damped), kind="stable")
    left = weights[order].astype(np.float64)
    influence = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    whole = np.zeros(weights.shape)
    for place, number in enumerate(order.tolist()):
        neighbour = whole[number ^ 1]  # 0 until it is rounded
        low = np.maximum(-TOP, -MAX_PAIR - np.minimum(neighbour, 0))
        high = np.minimum(TOP, MAX_PAIR - np.maximum(neighbour, 0))
        whole[number] = np.clip(np.rint(left[place] / scale), low, high)
        lost = (left[place] - whole[number] * scale) / influence[place, place]
        left[place + 1 :] -= np.outer(influence[place, place + 1 :], lost)
    return whole.astype(np.int8)


class Graph:
    """An ONNX graph that grows: every method returns the name of what it adds."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, array: Array) -> str:
        """Add an array, once a name."""
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, kind: str, *inputs: str, domain: str = "", n_outputs: int = 1, **attributes: Any) -> Any:
        """Add an operation; several outputs are a list."""
        names = [f"{kind}_{len(self.nodes)}_{number}" for number in range(n_outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names if n_outputs > 1 else names[0]

    def product(
        self, states: str, name: str, weights: Array, bias: Array, inputs: Inputs, lowest: float = 0.0
    ) -> tuple[str, str]:
        """Add states [batch, tokens, inputs] times weights [inputs, outputs] in int8, and return a bias to be added."""
        size = np.maximum(np.abs(weights).max(axis=1), 1e-5)
        factor = np.ones(len(weights))
        if not lowest:  # shifted states are not divided
            factor = np.maximum(inputs.largest, 1e-5) ** SMOOTHING / size ** (1 - SMOOTHING)
            factor /= np.exp(np.log(factor).mean())
            states = self.add("Mul", states, self.constant(f"{name}.divided", (1 / factor).astype(np.float32)))
        scaled = weights * factor[:, None]
        pairs = np.stack([scaled.clip(min=0), (-scaled).clip(min=0)]).reshape(2, -1, 2, scaled.shape[1]).sum(axis=2)
        scale = np.maximum(np.abs(scaled).max(axis=0) / TOP, pairs.max(axis=(0, 1)) / MAX_PAIR).astype(np.float32)
        whole = rounded(scaled, scale, inputs.products / np.outer(factor, factor))
        top, zero = (255, 0) if lowest else (127, 128)
        if lowest:
            states = self.add("Add", states, self.constant("lowest", np.float32(lowest)))
            bias = bias - lowest * scale * whole.sum(axis=0, dtype=np.float64)
        sizes = states if lowest else self.add("Abs", states)
        largest = self.add("ReduceMax", sizes, self.constant("last", np.array([-1])), keepdims=1)
        unit = self.add("Max", largest, self.constant("tiny", np.float32(1e-9)))
        unit = self.add("Mul", unit, self.constant(f"one of {top}", np.float32(1 / top)))
        one, zero_point = self.constant("one", np.float32(1)), self.constant(f"zero {zero}", np.uint8(zero))
        states = self.add("QuantizeLinear", self.add("Div", states, unit), one, zero_point)
        zeros = self.constant(f"{name}.zeros", np.zeros(len(scale), np.int8))
        arrays = self.constant(f"{name}.weight", whole), one, self.constant(f"{name}.scale", scale)
        states = self.add("MatMulIntegerToFloat", states, *arrays, zero_point, zeros, domain="com.microsoft")
        bias = self.constant(f"{name}.bias", bias.astype(np.float32))
        return self.add("Mul", states, unit), bias


def build(folder: Path, inputs: dict[str, Inputs]) -> onnx.ModelProto:
    """Return the graph of the transformer in a folder."""
    tensors, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    graph = Graph()

    def dense(states: str, name: str, lowest: float = 0.0) -> tuple[str, str]:
        weights, bias = tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]
        return graph.product(states, name, weights, bias, inputs[name], lowest)

    def normalized(name: str, states: str, added: str, *bias: str) -> str:
        for each in (*bias, added):  # apart: the operation for both together takes longer
            states = graph.add("Add", states, each)
        both = (graph.constant(f"{name}.{part}", tensors[f"{name}.{part}"]) for part in ("weight", "bias"))
        return str(graph.add("LayerNormalization", states, *both, epsilon=config["layer_norm_eps"]))

    words = tensors["embeddings.word_embeddings.weight"]
    scale = np.abs(words).max(axis=1, keepdims=True) / TOP
    whole = graph.constant("words", np.rint(words / scale).astype(np.int8))
    states = graph.add("Cast", graph.add("Gather", whole, "input_ids"), to=TensorProto.FLOAT)
    states = graph.add("Mul", states, graph.add("Gather", graph.constant("words.scale", scale), "input_ids"))
    positions = tensors["embeddings.position_embeddings.weight"] + tensors["embeddings.token_type_embeddings.weight"][0]
    numbers = [graph.constant(f"{number}", np.array([number])) for number in range(3)]
    length = graph.add("Slice", graph.add("Shape", "input_ids"), numbers[1], numbers[2])
    places = graph.constant("positions", positions[:MAX_TOKENS])
    places = graph.add("Slice", places, numbers[0], length, numbers[0])
    states = normalized("embeddings.LayerNorm", states, places)
    mask = graph.add("Cast", "attention_mask", to=TensorProto.INT32)
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        three = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        weights = np.concatenate([tensors[f"{name}.weight"] for name in three]).T
        bias = np.concatenate([tensors[f"{name}.bias"] for name in three])
        joined, bias = graph.product(states, f"{layer}.attention.self", weights, bias, inputs[three[0]])
        parts = graph.add("Split", joined, n_outputs=3, axis=-1, num_outputs=3)
        heads = config["num_attention_heads"]
        seen = graph.add("MultiHeadAttention", *parts, bias, mask, domain="com.microsoft", num_heads=heads)
        more, bias = dense(seen, f"{layer}.attention.output.dense")
        states = normalized(f"{layer}.attention.output.LayerNorm", more, states, bias)
        wide = graph.add("Gelu", graph.add("Add", *dense(states, f"{layer}.intermediate.dense")))
        more, bias = dense(wide, f"{layer}.output.dense", LOWEST_GELU)
        states = normalized(f"{layer}.output.LayerNorm", more, states, bias)
    real = graph.add("Unsqueeze", graph.add("Cast", "attention_mask", to=TensorProto.FLOAT), numbers[2])
    total = graph.add("ReduceSum", graph.add("Mul", states, real), numbers[1], keepdims=0)
    length = graph.add("ReduceL2", total, numbers[1], keepdims=1)
    graph.nodes.append(helper.make_node("Div", [total, length], ["sentence_embedding"]))
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    vector = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", config["hidden_size"]])
    made = helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", given, [vector], list(graph.constants.values()))
    versions = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=versions, ir_version=10, producer_name="pellucid")


def main() -> None:
    """Write the folder of the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="open_licence.txt.xz")
    parser.add_argument("--minilm", type=Path, required=True, help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("--output", type=Path, required=True, help="the folder of the model")
    options = parser.parse_args()
    if checksum(options.minilm / "model.safetensors") != SHA256:
        parser.error(f"{options.minilm} holds other weights than all-MiniLM-L6-v2, whose sha256 is {SHA256}")
    original = SentenceTransformer(str(options.minilm), device="cpu")
    inputs = calibrate(original, corpus_sentences(options.corpus))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "minilm"
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(options.minilm / name, folder / name)
        onnx.save(build(options.minilm, inputs), folder / FILE)
        EncoderEmbedder(OnnxEncoder(folder)).save_pretrained(options.output)
    card = CARD.read_text(encoding="utf-8").replace("{sha256}", checksum(options.output / FILE))
    (options.output / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
