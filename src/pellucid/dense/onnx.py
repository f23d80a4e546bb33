"""A transformer that onnxruntime computes, without torch: what `EncoderEmbedder` needs of a SentenceTransformer.

Its folder is one of sentence-transformers with an ONNX file. What is in it is read as that library reads it (maximum
length, prompts, pooling, normalisation), or refused by name. A text has the same vector alone and in a batch: a file
that scales its numbers by all texts of a batch (dynamic quantisation) is given one text at a time.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.arrays import Role
from pellucid.core.embedder import Vectors
from pellucid.dense.tokenized import prompt_of
from pellucid.dense.vectors import at_length_1, checked_vectors
from pellucid.errors import ModelFolderError, importing, shown
from pellucid.persistence.folder import refuse_special_files
from pellucid.persistence.store import read_json
from pellucid.persistence.untrusted import MAX_TOKENIZER, TOKENIZER, StoredTokenizer
from pellucid.process import default_threads

FILE = "encoder.onnx"
"""The ONNX file in a folder of ours."""
_PUBLISHED = "onnx/model.onnx"
"""The one, of float32 numbers, that sentence-transformers publishes; those in 8 bits beside it may be far from it."""
HUB_FILES = ["*.json", _PUBLISHED]
"""What is fetched of a model on the hub."""
_MODULES = "modules.json"
_MODULE_LISTS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_POOLINGS = ("mean", "cls")
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_PASS_CHARACTERS = 2048  # of one pass, roughly: with more, states leave the processor's cache
_PASS_TEXTS = 8  # at least, as a pass reads all weights
_SETTINGS = ("sentence_bert_config.json", "tokenizer_config.json", "config_sentence_transformers.json")
_BY_BATCH = b"DynamicQuantize"  # in the names of operations that see all texts of a batch
_OTHER_FILES = re.compile(rb"(?:\x08|\x88\x80*\0)location")  # a string of protobuf, in whatever field: it names one


class OnnxEncoder:
    """An encoder in a folder of sentence-transformers, run by onnxruntime on the processor.

    Attributes:
        folder: where its files are.
        file: its ONNX file.
        tokenizer: which cuts texts at `max_seq_length`, a `tokenizers.Tokenizer`.
        unk_token_id: of what it has no token for; None where there is no such token.
        max_seq_length: the longest text that is read, in tokens.
        prompts: by the names of roles.
        default_prompt_name: of the prompt before texts in no role, None for none.
        similarity_fn_name: what the encoder's authors compare vectors by.
    """

    def __init__(self, folder: str | Path, threads: int | None = None) -> None:
        """Open a folder.

        Args:
            folder: with tokenizer.json and an ONNX file, "encoder.onnx" or "onnx/model.onnx".
            threads: of one batch; None for PELLUCID_THREADS, or the cores that this process may use.

        Raises:
            MissingExtraError: onnxruntime is not installed.
            ModelFolderError: a file is missing or broken, or says what is not known here.
        """
        with importing("onnx", "onnxruntime"):  # which other distributions bring, too
            import onnxruntime

        self.folder, self.threads = Path(folder).absolute(), threads
        self.__name__, self._files = self.folder.name, [TOKENIZER, _MODULES]  # that are read
        refuse_special_files(self.folder)
        self.file = onnx_file(self.folder)
        self._read_modules()
        model, tokens, stock = (self._object(name) for name in _SETTINGS)
        self.prompts: Any = stock.get("prompts", {})
        if not isinstance(self.prompts, dict) or not {*map(type, self.prompts.values())} <= {str}:
            raise ModelFolderError(f"{self.folder / _SETTINGS[2]}: prompts must be texts, not {self.prompts!r:.80}")
        self.default_prompt_name = stock.get("default_prompt_name")
        self.similarity_fn_name = stock.get("similarity_fn_name")
        self.max_seq_length: Any = model.get("max_seq_length") or tokens.get("model_max_length")
        self.do_lower_case = model.get("do_lower_case") is True
        if type(self.max_seq_length) is not int or not 2 < self.max_seq_length <= 1 << 20:
            raise ModelFolderError(f"{self.folder} says no maximum length in tokens: {self.max_seq_length!r:.40}")
        self._open_tokenizer(tokens)
        content = self.file.read_bytes()
        if _OTHER_FILES.search(content):  # anywhere on this machine
            raise ModelFolderError(f"{self.file} has its weights in another file; save it with all of them inside")
        self._sees_batch = _BY_BATCH in content
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what ends the process; errors are raised
        options.intra_op_num_threads = min(threads or default_threads(), os.cpu_count() or 1)
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library raises nothing more precise
            raise ModelFolderError(f"onnxruntime cannot run {self.file}: {error!s:.500}") from error
        self._inputs = [each.name for each in self._session.get_inputs()]
        if not {"input_ids"} <= {*self._inputs} <= _INPUTS:
            raise ModelFolderError(f"{self.file} takes {', '.join(self._inputs)}; known are {', '.join(_INPUTS)}")
        self.encode(["a text"])

    def _object(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file, {} without the file."""
        path = self.folder / name
        if not path.is_file():
            return {}
        self._files.append(name)
        read = read_json(path)
        if not isinstance(read, dict):
            raise ModelFolderError(f"{path} holds no JSON object")
        return read

    def _read_modules(self) -> None:
        """Read how tokens become a vector."""
        path = self.folder / _MODULES
        try:
            modules = [(module["type"].rpartition(".")[2], module["path"]) for module in read_json(path)]
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelFolderError(f"{path} is not a list of modules: {error!r:.80}") from error
        kinds = [kind for kind, _ in modules]
        if kinds not in _MODULE_LISTS or modules[0][1]:
            raise ModelFolderError(
                f"{path} has the modules {shown(', '.join(kinds))}; without torch a Transformer, a Pooling and a "
                "Normalize are read. Open the folder without backend='onnx'"
            )
        settings = self._object(f"{Path(str(modules[1][1])).name}/config.json")
        modes = [mode for mode in settings if mode.startswith("pooling_mode_") and settings[mode] is True]  # until 5
        modes = [
            settings.get("pooling_mode", mode.removeprefix("pooling_mode_").partition("_token")[0])
            for mode in modes or ["pooling_mode_none"]
        ]
        if len(modes) != 1 or modes[0] not in _POOLINGS or settings.get("include_prompt", True) is not True:
            raise ModelFolderError(
                f"{self.folder} pools tokens by {shown(', '.join(map(str, modes)))}, or without the prompt; without "
                f"torch {' and '.join(_POOLINGS)} are known. Open the folder without backend='onnx'"
            )
        self._pooling, self._normalizes = modes[0], kinds[-1] == "Normalize"

    def _open_tokenizer(self, settings: dict[str, Any]) -> None:
        path = self.folder / TOKENIZER
        if not path.is_file() or path.stat().st_size > MAX_TOKENIZER:
            raise ModelFolderError(f"{path} is missing, or larger than {MAX_TOKENIZER:,} bytes")
        self.tokenizer = StoredTokenizer(path.read_bytes(), path)()
        named = (settings.get(f"{kind}_token") for kind in ("pad", "unk"))
        pad, unk = (each.get("content") if isinstance(each, dict) else each for each in named)
        pad_id, self.unk_token_id = (self.tokenizer.token_to_id(str(each)) for each in (pad, unk))
        if pad_id is None:
            raise ModelFolderError(f"{self.folder / 'tokenizer_config.json'}: the pad_token {pad!r:.40} is no token")
        self.tokenizer.enable_padding(pad_id=pad_id, pad_token=str(pad))
        self.tokenizer.enable_truncation(self.max_seq_length)

    def encode(
        self, texts: list[str], *, batch_size: int = 32, show_progress_bar: bool = False, role: Role = None
    ) -> Vectors:
        """Return one row for each text, float32 [texts, dimension]; a batch is as long as its longest text."""
        prompt = prompt_of(self, role)
        inputs = [prompt + (text.lower() if self.do_lower_case else text) for text in texts]
        size = max(_PASS_TEXTS, _PASS_CHARACTERS // max([1, *map(len, inputs)]))
        size = 1 if self._sees_batch else min(batch_size, size)
        try:
            return np.concatenate([self._batch(inputs[start : start + size]) for start in range(0, len(inputs), size)])
        except Exception as error:  # such as tokens that the file has no rows for
            raise ModelFolderError(f"onnxruntime cannot run {self.file}: {error!s:.500}") from error

    def encode_query(self, texts: list[str], *, batch_size: int = 32, show_progress_bar: bool = False) -> Vectors:
        """Encode with the prompt of queries."""
        return self.encode(texts, batch_size=batch_size, role="query")

    def encode_document(self, texts: list[str], *, batch_size: int = 32, show_progress_bar: bool = False) -> Vectors:
        """Encode with the prompt of documents."""
        return self.encode(texts, batch_size=batch_size, role="document")

    __call__ = encode

    def __reduce__(self) -> Any:
        """Copies open the folder again."""
        return OnnxEncoder, (self.folder, self.threads)

    def _batch(self, inputs: list[str]) -> Vectors:
        encodings = self.tokenizer.encode_batch(inputs)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        arrays = {"input_ids": np.array([encoding.ids for encoding in encodings], np.int64), "attention_mask": mask}
        arrays["token_type_ids"] = np.zeros_like(mask)
        rows: Vectors = self._session.run(None, {name: arrays[name] for name in self._inputs})[0]
        if rows.ndim == 3 and rows.shape[:2] == mask.shape:  # of tokens
            mean = np.einsum("btd,bt->bd", rows, mask.astype(np.float32)) / mask.sum(axis=1, keepdims=True)
            rows = mean if self._pooling == "mean" else rows[:, 0]
        rows = checked_vectors(rows, inputs, self.__name__, None)
        return at_length_1(rows) if self._normalizes else rows

    def save_pretrained(self, path: Path) -> None:
        """Copy what is read of the folder into a folder."""
        shutil.copyfile(self.file, path / FILE)
        for name in self._files:
            (path / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(self.folder / name, path / name)


def onnx_file(folder: Path) -> Path:
    """Return the ONNX file in a folder, ours or the one of sentence-transformers."""
    paths = [folder / FILE, folder / _PUBLISHED]
    onnx_path = next((path for path in paths if path.is_file()), None)
    if onnx_path is None:
        raise ModelFolderError(f"{folder} holds no ONNX file; looked for {' and '.join(map(str, paths))}")
    return onnx_path
