"""Models as small as they can be, with random weights: the same ones every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer, BertModel, PreTrainedModel, PreTrainedTokenizerBase


def tiny_transformer(
    folder: Path,
    kind: type[PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    *,
    size: int = 32,
    num_layers: int = 2,
    num_free_rows: int = 0,
) -> Transformer:
    """A transformer of up to 64 tokens, its files in `folder`.

    Args:
        num_free_rows: of the embedding matrix, that no token has.
    """
    assert kind.config_class is not None
    torch.manual_seed(0)
    config: dict[str, Any] = {
        "vocab_size": len(tokenizer) + num_free_rows,
        "hidden_size": size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 2,
        "intermediate_size": 2 * size,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    kind(kind.config_class(**config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    transformer: Transformer = Transformer(str(folder), max_seq_length=64)
    return transformer


def tiny_sentence_transformer(folder: Path, tokenizer_of: str, *, size: int = 32) -> Path:
    """A two-layer BERT with random weights and a model's tokenizer, as a sentence-transformers folder."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_of)
    transformer = tiny_transformer(folder / "bert", BertModel, tokenizer, size=size)
    model = SentenceTransformer(modules=[transformer, Pooling(size), Normalize()], device="cpu")
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    return folder / "model"
