"""What a step needs, predicted from a model's configuration, against what torch allocates in real steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, BertConfig, PreTrainedConfig, Qwen3MoeConfig

from docs.memory import MODELS
from tests.allocations import allocated
from tests.tiny_families import CORPUS, FAMILIES, tiny_checkpoint
from train.config.trainer import LoraSettings
from train.distributed.device import place, start_processes
from train.distributed.processes import Processes
from train.encoder.dropout import use_byte_dropout
from train.encoder.encoder import Encoder
from train.encoder.lora import add_adapters
from train.requests import Request
from train.training.embedder import TrainableEmbedder
from train.training.memory import Model, Shape, Way, predict

SIZES = {"hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 384, "num_attention_heads": 4}
T5_SIZES = {"d_model": 128, "num_layers": 3, "d_ff": 384, "num_heads": 4}
PLAIN = Way(on_cpu=True)
BF16 = replace(PLAIN, dtype=torch.bfloat16)
ADAPTERS = replace(PLAIN, trained="adapters", lora_rank=4)
QWEN3_MOE = replace(
    FAMILIES["qwen3"],
    model="Qwen3MoeModel",
    config={
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 192,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
)


@pytest.mark.parametrize(
    ("family", "way"),
    [
        ("bert", PLAIN),
        *(
            pytest.param(family, way, marks=pytest.mark.slow)
            for family, way in (
                ("bert", replace(BF16, trained="adapters", lora_rank=4)),
                ("roberta", replace(PLAIN, caching=True)),
                ("roberta", replace(BF16, checkpointing=True)),
                ("mpnet", BF16),
                ("qwen3", replace(ADAPTERS, checkpointing=True)),
                ("t5", PLAIN),
                ("qwen3_moe", PLAIN),
                ("qwen3_moe", BF16),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_step_takes_what_was_predicted(tmp_path: Path, family: str, way: Way) -> None:
    """Weights, gradients and all that passes allocate, in the second of two steps, which has moments."""
    made = QWEN3_MOE if family == "qwen3_moe" else FAMILIES[family]
    sizes = T5_SIZES if family == "t5" else SIZES
    grouped = {"num_key_value_heads": 2} if "num_key_value_heads" in made.config else {}
    folder = tiny_checkpoint(replace(made, config={**made.config, **sizes, **grouped}), tmp_path)
    encoder = Encoder.from_pretrained(folder, device="cpu", pooling=made.pooling, tokens_per_forward=128)
    accelerator, _ = start_processes(place("cpu", "bf16" if way.dtype else "fp32"))
    use_byte_dropout(encoder, encoder.transformer)
    if way.trained == "adapters":
        add_adapters(encoder.transformer, LoraSettings(rank=4, alpha=None, dropout=0.0, target_modules=None))
    if way.checkpointing:
        encoder.checkpoint_activations()
    encoder.train()
    embed = TrainableEmbedder(encoder, accelerator, Processes(), seed=1, caching=way.caching)
    trained = [p for p in encoder.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    requests = [Request(f"{sentence} {letter}") for sentence in CORPUS for letter in "abcd"]

    def two_steps() -> None:
        for step in range(2):
            embedded = embed(requests, step)
            weights = torch.linspace(-1, 1, embedded.rows.numel()).view_as(embedded.rows)
            embedded.backward((embedded.rows * weights).sum())
            optimizer.step()
            optimizer.zero_grad()

    measured = allocated(two_steps) + sum(p.nbytes for p in encoder.parameters())
    batches = encoder.forward_batches(requests)
    shapes = [Shape(len(batch.texts), len(batch.texts[0])) for batch in batches]
    assert len(shapes) > 1
    predicted = predict(Model(AutoConfig.from_pretrained(folder)), [shapes], way)
    assert predicted.total == pytest.approx(measured, rel=0.2)
    assert predicted.weights == pytest.approx(sum(p.nbytes for p in encoder.parameters()), rel=0.01)
    assert predicted.gradients == pytest.approx(sum(p.nbytes for p in trained), rel=0.01)


QWEN3_8B = MODELS["Qwen3-Embedding-8B (`qwen3_8b`)"]
STEP = [[Shape(64, 128)] * 4]


def test_no_size_is_too_large() -> None:
    """As published: 7.6 billion parameters; a configuration is enough, and nothing of that size is made."""
    model = Model(QWEN3_8B)
    gpu = Way(on_cpu=False, dtype=torch.bfloat16, caching=True, checkpointing=True)
    whole = predict(model, STEP, gpu)
    assert model.num_parameters == pytest.approx(7.57e9, rel=0.001)
    assert whole.weights == whole.gradients == whole.moments // 2 == 4 * model.num_parameters
    assert whole.total > 16 * model.num_parameters
    adapters = predict(model, STEP, replace(gpu, trained="adapters"))
    assert adapters.moments < whole.moments / 50
    assert adapters.total < whole.total / 2


def test_shards_are_divided_and_what_is_gathered_is_not() -> None:
    model = Model(QWEN3_8B)
    whole = Way(on_cpu=False, caching=True, checkpointing=True, num_processes=8)
    alone, sharded = predict(model, STEP, whole), predict(model, STEP, replace(whole, sharded=True))
    assert 8 * sharded.weights == pytest.approx(alone.weights, rel=1e-6)
    assert 8 * sharded.moments == pytest.approx(alone.moments, rel=1e-6)
    assert sharded.passes > alone.passes
    assert sharded.total > sharded.loading == alone.weights  # each process loads the whole model
    offloaded = predict(model, STEP, replace(whole, sharded=True, offloaded=True))
    assert offloaded.weights == offloaded.moments == 0
    assert offloaded.total == max(offloaded.passes, offloaded.loading)
    gathered = predict(model, STEP, replace(whole, sharded=True, gathered=True))
    assert gathered.passes > sharded.passes


TINY = BertConfig(
    hidden_size=64, num_hidden_layers=3, num_attention_heads=2, intermediate_size=128, vocab_size=50
)


def tiny(config: PreTrainedConfig = TINY) -> Model:
    return Model(config)


def test_each_option_saves_what_it_is_for() -> None:
    """Caching: all forward batches but one. Checkpointing: within a batch. Frozen: no graph at all."""
    model, step = tiny(), [[Shape(8, 64)] * 10]
    plain = predict(model, step, PLAIN)
    caching = predict(model, step, replace(PLAIN, caching=True))
    checkpointing = predict(model, step, replace(PLAIN, checkpointing=True))
    frozen = predict(model, step, replace(PLAIN, trained="nothing"))
    assert caching.passes < plain.passes / 4
    assert checkpointing.passes < plain.passes / 4
    assert frozen.total < caching.total
    assert frozen.gradients == frozen.moments == 0
    assert (
        plain.operations
        < caching.operations
        == checkpointing.operations
        == pytest.approx(plain.operations * 4 / 3)
    )
    assert frozen.operations == pytest.approx(plain.operations / 3)


def test_attention_by_two_products_keeps_a_row_for_each_token() -> None:
    """On a CPU, of texts of up to 256 tokens; a GPU's kernel keeps none."""
    model = tiny()
    short, long = [[Shape(64, 16)]], [[Shape(4, 256)]]  # as many tokens
    assert predict(model, long, PLAIN).passes > 1.3 * predict(model, short, PLAIN).passes
    gpu = replace(PLAIN, on_cpu=False)
    assert predict(model, long, gpu).passes < 1.3 * predict(model, short, gpu).passes


def test_the_gradients_of_an_earlier_micro_step_are_there_too() -> None:
    """So a step in two micro-steps needs more than its first alone, by the gradients."""
    model, way = tiny(), replace(PLAIN, caching=True)
    micro = [Shape(8, 64)]
    alone, two = predict(model, [micro], way), predict(model, [micro, micro], way)
    assert two.total - alone.total == alone.gradients


def test_on_a_gpu_adamw_takes_as_much_again_as_the_weights() -> None:
    """Where the passes need little, that decides."""
    model, step = tiny(), [[Shape(1, 2)]]
    cpu, gpu = (predict(model, step, Way(on_cpu=on_cpu)) for on_cpu in (True, False))
    assert gpu.total - cpu.total == 4 * model.num_parameters


def test_a_token_is_computed_by_its_own_experts_alone() -> None:
    """Their weights are there whole; a CPU computes the products of all in float32."""
    sizes = {**SIZES, **QWEN3_MOE.config, "num_hidden_layers": 2, "vocab_size": 50, "num_experts": 8}
    one, all_ = (
        predict(Model(Qwen3MoeConfig(**{**sizes, "num_experts_per_tok": n})), [[Shape(2, 8)]], PLAIN)
        for n in (1, 8)
    )
    assert one.weights == all_.weights
    assert one.passes < all_.passes
    expert = 3 * SIZES["hidden_size"] * 192
    assert all_.operations - one.operations == 3 * 2 * 16 * 2 * 7 * expert
