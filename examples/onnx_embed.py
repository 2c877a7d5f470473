"""An ONNX export with onnxruntime and tokenizers alone: sentences and spans, without torch or this project.

    idiomtune export model=minilm format=onnx output=out/onnx
    python examples/onnx_embed.py out/onnx

A model with prompts, or with layers behind its pooling, needs more for spans: its card says what.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

NO_LIMIT = 10**9  # tokens; a tokenizer without a maximum length gives 10^30
TEXTS = [
    "He broke the ice with a joke.",
    "The ship broke the ice on its way to the harbour.",
    "He made everybody relax.",
]


class OnnxModel:
    """The graph and the tokenizer in the folder of an export."""

    def __init__(self, folder: str | Path) -> None:
        file = Path(folder) / "onnx" / "model.onnx"
        self.session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        settings = json.loads((Path(folder) / "tokenizer_config.json").read_text(encoding="utf-8"))
        padding = settings["pad_token"]
        self.tokenizer.enable_padding(pad_id=self.tokenizer.token_to_id(padding), pad_token=padding)
        if settings["model_max_length"] < NO_LIMIT:
            self.tokenizer.enable_truncation(settings["model_max_length"])
        else:
            self.tokenizer.no_truncation()

    def run(self, texts: Sequence[str]) -> tuple[list[Any], NDArray[np.float32], NDArray[np.float32]]:
        """The texts as they were read, the embeddings of their tokens (B, T, D), and their own (B, D)."""
        read = self.tokenizer.encode_batch(list(texts))
        ids = np.array([text.ids for text in read])
        given = {"input_ids": ids, "attention_mask": np.array([text.attention_mask for text in read])}
        if any(entry.name == "token_type_ids" for entry in self.session.get_inputs()):
            given["token_type_ids"] = np.zeros_like(ids)
        tokens, sentences = self.session.run(["token_embeddings", "sentence_embedding"], given)
        return read, tokens, sentences

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D), an embedding for each text."""
        return self.run(texts)[2]

    def encode_spans(self, texts: Sequence[str], spans: Sequence[str]) -> NDArray[np.float32]:
        """(N, D), of unit length: of each text the mean of the tokens that overlap its span."""
        read, tokens, _ = self.run(texts)
        rows = []
        for text, span, one, embeddings in zip(texts, spans, read, tokens, strict=True):
            start = text.index(span)
            end = start + len(span)
            inside = [i for i, (s, e) in enumerate(one.offsets) if s < e and s < end and e > start]
            rows.append(embeddings[inside].mean(0))
        found = np.stack(rows)
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def main(folder: str) -> None:
    model = OnnxModel(folder)
    sentences = model.encode(TEXTS)
    spans = model.encode_spans(TEXTS[:2], ["broke the ice", "broke the ice"])
    print("sentences:", (sentences @ sentences.T).round(3), sep="\n")
    print("two usages of one idiom, as spans:", round(float(spans[0] @ spans[1]), 3))


if __name__ == "__main__":
    main(*sys.argv[1:])
