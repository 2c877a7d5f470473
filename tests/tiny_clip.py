"""A tiny CLIP with random weights, of the same classes as a published one, as a folder in their format."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPTokenizer


def save_tiny_clip(folder: Path) -> Path:
    """Three text layers, two image layers, 16 numbers a vector; its tokenizer knows single characters."""
    characters = sorted(ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate([*characters, *(f"{c}</w>" for c in characters)])}
    vocab |= {"<|startoftext|>": len(vocab), "<|endoftext|>": len(vocab) + 1}
    CLIPTokenizer(vocab=vocab, merges=[]).save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(
        folder
    )
    torch.manual_seed(0)
    shared = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "projection_dim": 16}
    config = CLIPConfig(
        text_config={
            **shared,
            "vocab_size": len(vocab),
            "num_hidden_layers": 3,
            "max_position_embeddings": 40,
            "bos_token_id": len(vocab) - 2,
            "eos_token_id": len(vocab) - 1,
            "pad_token_id": len(vocab) - 1,
        },
        vision_config={**shared, "num_hidden_layers": 2, "image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    CLIPModel(config).save_pretrained(folder)
    return folder
