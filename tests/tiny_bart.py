"""A tiny BART with random weights, as a folder in the format of a published one."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration


def save_tiny_bart(folder: Path, tokenizer_of: str) -> Path:
    """One layer each; it writes at most 12 tokens, in the words of another model's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_of)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {f"{part}_layers": 1 for part in ("encoder", "decoder")}
    sizes |= {f"{part}_attention_heads": 2 for part in ("encoder", "decoder")}
    sizes |= {f"{part}_ffn_dim": 32 for part in ("encoder", "decoder")}
    sizes |= {"vocab_size": len(tokenizer), "d_model": 16, "max_position_embeddings": 64}
    end = dict.fromkeys(
        ("eos_token_id", "decoder_start_token_id", "forced_eos_token_id"), tokenizer.sep_token_id
    )
    start = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.cls_token_id}
    config = BartConfig(**sizes, **start, **end)
    model = BartForConditionalGeneration(config)
    model.generation_config.max_length = 12
    model.save_pretrained(folder)
    return folder
