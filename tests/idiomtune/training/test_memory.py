"""A step's memory: the longest batch tried before the first step; the rule of thumb; how much is free."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from idiomtune.config import TrainSettings, check
from idiomtune.encoder import device as device_module
from idiomtune.encoder.building import empty_encoder
from idiomtune.encoder.device import Memory, device_memory, place, start_processes
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import use_byte_dropout
from idiomtune.encoder.loading import model_settings
from idiomtune.encoder.trained_parts import add_adapters
from idiomtune.errors import UserError
from idiomtune.factory import build_objective
from idiomtune.io.processes import Processes
from idiomtune.objectives import Batch
from idiomtune.programs import prepare
from idiomtune.programs.prepare import check_memory, describe_memory, rule_of_thumb
from idiomtune.requests import Request
from idiomtune.training.embedder import TrainableEmbedder
from idiomtune.training.loop import longest_batch
from idiomtune.training.run_folder import RunFolder
from tests.tiny_families import CORPUS, FAMILIES, tiny_checkpoint
from tests.tiny_runs import WholeRun, assert_same_run, at_loss, composed, train

CPU = place("cpu", "fp32")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setattr("idiomtune.training.loop.is_tried", lambda _: True)


def no_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has no more.")


# ------------------------------------------------------------------ the longest batch, tried


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(
    "more",
    [
        ["trainer.accumulation=2", "trainer.gradient_caching=true", "retain.distillation=0.5"],
        ["retain.lora.rank=2", "trainer.activation_checkpointing=true"],
        ["trainer.memory_check=warn"],  # for lack of memory
    ],
    ids=["micro-steps", "adapters", "warned"],
)
def test_a_run_is_the_same_without_the_trial(
    whole_run: WholeRun, options: list[str], more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = "trainer.memory_check=warn" in more
    if warned:
        at_loss(monkeypatch, 1, no_memory)
    train(tmp_path, [*options, *more])
    monkeypatch.undo()
    assert_same_run(tmp_path, whole_run([*options, *([] if warned else more)]))


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("number", [1, 3], ids=["in the trial", "later"])
def test_too_little_memory_ends_with_what_takes_less(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    at_loss(monkeypatch, number, no_memory)
    with pytest.raises(UserError) as caught:
        train(tmp_path, [*options, "trainer.gradient_caching=true"])
    message = str(caught.value)
    assert "Tried to allocate 2.00 GiB" in message
    for option in ("trainer.activation_checkpointing", "model.tokens_per_forward", "precision=bf16"):
        assert option in message
    assert all(option in message for option in ("retain.lora.rank", "trainer.accumulation=2"))
    assert "gradient_caching" not in message
    assert len(RunFolder(tmp_path).metrics()) == number // 2  # steps before it
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"


def test_the_longest_batch_has_the_most_letters() -> None:
    """A text that several requests embed counts once."""
    texts = [["a" * 5, "a" * 5], ["a" * 4, "b" * 4], ["abcdefg"]]
    batches = [Batch([Request(text) for text in some], anchors=[], targets=None) for some in texts]
    assert longest_batch(batches) is batches[1]


# ------------------------------------------------------------------ the rule of thumb


def allocated(run: Callable[[], None]) -> int:
    """The most bytes of what is allocated in a call that are there at a time."""
    gc.collect()  # what came before must not be freed in between
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    assert profiled.profiler is not None
    found = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in found if e.name() == "[memory]")
    live = most = 0
    for _, size in changes:
        live += size
        most = max(most, live)
    return most


SIZES = {"hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 384, "num_attention_heads": 4}
T5_SIZES = {"d_model": 128, "num_layers": 3, "d_ff": 384, "num_heads": 4}


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("bert", ["precision=bf16", "retain.lora.rank=4"]),
        ("roberta", ["precision=bf16", "trainer.activation_checkpointing=true"]),
        ("mpnet", ["trainer.gradient_caching=true"]),
        ("qwen3", []),
        ("t5", []),
    ],
    ids=str,
)
def test_the_rule_is_within_a_third_of_what_torch_allocates(
    tmp_path: Path, options: list[str], family: str, more: list[str]
) -> None:
    """Weights, gradients and all that passes allocate, in the second of two steps, which has moments."""
    made = FAMILIES[family]
    sizes = T5_SIZES if family == "t5" else SIZES
    grouped = {"num_key_value_heads": 2} if "num_key_value_heads" in made.config else {}
    folder = tiny_checkpoint(replace(made, config={**made.config, **sizes, **grouped}), tmp_path)
    options = [*options, *more, "model.tokens_per_forward=128"]
    settings: TrainSettings = check(TrainSettings, composed("config", *options))
    placement = place("cpu", settings.precision)
    encoder = Encoder.from_pretrained(folder, device="cpu", pooling=made.pooling, tokens_per_forward=128)
    accelerator, _ = start_processes(placement)
    use_byte_dropout(encoder, encoder.transformer)
    if settings.retain.lora.rank is not None:
        add_adapters(encoder.transformer, settings.retain.lora)
    if settings.trainer.activation_checkpointing:
        encoder.checkpoint_activations()
    encoder.train()
    caching = settings.trainer.gradient_caching
    embed = TrainableEmbedder(encoder, accelerator, Processes(), seed=1, caching=caching)
    optimizer = torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], fused=True)
    requests = [Request(f"{sentence} {letter}") for sentence in CORPUS for letter in "abcd"]

    def two_steps() -> None:
        for step in range(2):
            embedded = embed(requests, step)
            weights = torch.linspace(-1, 1, embedded.rows.numel()).view_as(embedded.rows)
            embedded.backward((embedded.rows * weights).sum())
            optimizer.step()
            optimizer.zero_grad()

    measured = allocated(two_steps) + sum(p.nbytes for p in encoder.parameters())
    lengths = [len(text) for batch in encoder.forward_batches(requests) for text in batch.texts]
    model = empty_encoder(model_settings(folder, {})).transformer
    needed, _ = rule_of_thumb(model, lengths, settings, placement)
    assert needed == pytest.approx(measured, rel=0.33)


@pytest.fixture
def settings_with(options: list[str]) -> Callable[..., TrainSettings]:
    return lambda *more: check(TrainSettings, composed("config", *options, *more))


def test_on_a_cpu_what_cannot_fit_is_refused(
    settings_with: Callable[..., TrainSettings],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """What is near the limit, or if asked all, is a warning; what an option saves counts.

    A run whose model is out of reach, as when it resumes, is not stopped.
    """
    settings = settings_with()
    objective = build_objective(settings)
    here, there, operations = describe_memory(settings, objective, CPU)
    size = 1e9 * float(here.split("about ")[1].split(" GB")[0])
    assert "of this machine's" in here
    assert "on a GPU in bfloat16 about" in there
    assert "operations" in operations

    def outcome(free: float, *more: str, swap: float = 0) -> str:
        caplog.clear()
        monkeypatch.setattr(prepare, "device_memory", lambda _: Memory(2 * int(size), int(free), int(swap)))
        try:
            check_memory(settings_with(*more), objective, CPU)
        except UserError as error:
            return str(error)
        return " ".join("warned" for r in caplog.records if r.levelno == logging.WARNING)

    assert not outcome(1.5 * size)
    assert outcome(size) == "warned"
    refused = outcome(size / 2)
    assert "trainer.memory_check=warn" in refused
    assert "trainer.gradient_caching=true" in refused
    assert outcome(size / 2, swap=size) == "warned"
    assert outcome(size / 2, "trainer.memory_check=warn") == "warned"
    assert not outcome(size / 2, "trainer.memory_check=off")
    lean = ("trainer.gradient_caching=true", "model.tokens_per_forward=256")
    assert outcome(size / 2, *lean) in ("", "warned")
    away = f"model.path={tmp_path / 'gone'}"
    (line,) = describe_memory(settings_with(away), objective, CPU)
    assert str(tmp_path / "gone") in line
    assert not outcome(0, away)


# ------------------------------------------------------------------ what is free


def test_the_limits_of_containers_and_jobs_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the control groups around the process; what files that were read occupy is free."""
    monkeypatch.setattr(device_module, "_CGROUP", tmp_path)
    monkeypatch.setattr(device_module, "_OWN_CGROUP", tmp_path / "own")
    (tmp_path / "own").write_text("4:memory:/old\n0::/slurm/job_1/step_0\n")
    job, step = tmp_path / "slurm" / "job_1", tmp_path / "slurm" / "job_1" / "step_0"
    step.mkdir(parents=True)
    for group, most, used in ((job, "3000000", "1000000"), (step, "max", "900000")):
        (group / "memory.max").write_text(most)
        (group / "memory.current").write_text(used)
        (group / "memory.stat").write_text("anon 5\ninactive_file 300000\nactive_file 200000\n")
    assert device_memory("cpu")[:2] == (3000000, 2500000)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert device_memory("cpu")[:2] == (1500000, 1250000)
    (job / "memory.max").write_text("max\n")
    assert device_memory("cpu").total > 10**8
