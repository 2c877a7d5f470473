"""The table in docs/cluster.md of what a training step needs on a GPU, as predicted: `python docs/memory.py`.

The models' sizes are those of their `config.json` on the Hugging Face Hub, and give their published numbers
of parameters. No weights are needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from transformers import BertConfig, PreTrainedConfig, Qwen2Config, Qwen3Config, XLMRobertaConfig

from train.training.memory import Model, Shape, StepMemory, Way, predict

NUM_TEXTS, NUM_TOKENS = 256, 64  # of a step: distinct texts, and tokens of each
IN_A_PASS = 4096  # tokens, where gradients are cached: model.tokens_per_forward
_FP32 = Way(on_cpu=False)
_BF16 = replace(_FP32, dtype=torch.bfloat16)
_CACHING = replace(_BF16, caching=True)
_LEAN = replace(_CACHING, checkpointing=True)
WAYS: dict[str, Way] = {
    "float32": _FP32,
    "bfloat16": _BF16,
    "+ caching": _CACHING,
    "+ checkpointing": _LEAN,
    "LoRA": replace(_LEAN, trained="adapters"),
    "8 GPUs": replace(_LEAN, num_processes=8, sharded=True),
    "8 GPUs, offloaded": replace(_LEAN, num_processes=8, sharded=True, offloaded=True),
}


def _qwen3(width: int, inner: int, num_blocks: int, num_heads: int, vocabulary: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=num_blocks,
        num_attention_heads=num_heads,
        num_key_value_heads=8,
        head_dim=128,
    )


def _large(kind: Any, **others: int) -> PreTrainedConfig:
    sizes = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    }
    config: PreTrainedConfig = kind(**sizes, **others)
    return config


def _bidirectional(config: PreTrainedConfig) -> PreTrainedConfig:
    config.is_causal = False
    return config


MODELS: dict[str, PreTrainedConfig] = {
    "BERT-base (`bert_base`)": BertConfig(),
    "BERT-large (`uae_large`)": _large(BertConfig),
    "XLM-R large (`me5_large_instruct`)": _large(
        XLMRobertaConfig, vocab_size=250002, max_position_embeddings=514, type_vocab_size=1
    ),
    "Qwen3-Embedding-0.6B (`qwen3_0_6b`)": _qwen3(1024, 3072, 28, 16, 151669),
    "gte-Qwen2-1.5B (`gte_qwen2_1_5b`)": _bidirectional(
        Qwen2Config(
            vocab_size=151646,
            hidden_size=1536,
            intermediate_size=8960,
            num_hidden_layers=28,
            num_attention_heads=12,
            num_key_value_heads=2,
        )
    ),
    "Qwen3-Embedding-4B (`qwen3_4b`)": _qwen3(2560, 9728, 36, 32, 151665),
    "Qwen3-Embedding-8B (`qwen3_8b`)": _qwen3(4096, 12288, 36, 32, 151665),
}


def step_memory(model: Model, way: Way) -> StepMemory:
    """What a step of the table needs on each GPU."""
    num_texts = IN_A_PASS // NUM_TOKENS if way.caching else NUM_TEXTS
    return predict(model, [[Shape(num_texts, NUM_TOKENS)] * (NUM_TEXTS // num_texts)], way)


def row(name: str) -> str:
    """A model's line of the table: gigabytes (10^9 bytes), and 10^12 operations of a step."""
    model = Model(MODELS[name])
    found = [step_memory(model, way) for way in WAYS.values()]
    cells = [f"{one.total / 1e9:.1f}" for one in found]
    return " | ".join(
        [f"| {name}", f"{model.num_parameters / 1e9:.2f}", *cells, f"{found[1].operations / 1e12:.0f} |"]
    )


def main() -> None:
    print(" | ".join(["| model", "10^9 parameters", *WAYS, "10^12 operations |"]))
    print("| --- " * (3 + len(WAYS)) + "|")
    for name in MODELS:
        print(row(name))


if __name__ == "__main__":
    main()
