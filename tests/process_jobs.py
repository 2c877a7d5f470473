"""What the processes of a launch do in tests; see :mod:`tests.launches`."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

from idiomtune import Encoder
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import EvaluateSettings, TrainSettings, validate
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.encoder.sharding import local_shard, shard
from idiomtune.encoder.trained_parts import checkpoint_activations
from idiomtune.errors import UserError
from idiomtune.glossaries.build import build_encoder
from idiomtune.io.processes import Processes
from idiomtune.objectives import Objective, StepLog
from idiomtune.objectives.contrastive import ContrastiveObjective
from idiomtune.objectives.triplets import TripletObjective
from idiomtune.programs.evaluate import evaluate as score_model
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.embedder import TrainableEmbedder
from idiomtune.training.objective import build_objective
from idiomtune.training.optimizer import parameter_groups
from idiomtune.training.step import Trainer
from tests.tiny_families import CORPUS
from tests.tiny_runs import composed, resume, train

# What accelerate makes of an `fsdp_config`; it does so for GPUs alone.
FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}


def gradients(
    options: list[str],
    output: str,
    *,
    cached: str | None = None,
    sharded: bool = False,
    offloaded: bool = False,
) -> None:
    """Gradients with dropout, of the weights as they are, in a file: of the first step and the last.

    Where steps are of several kinds, of the one before the last too.

    Args:
        cached: a file for the same by gradient caching.
    """
    settings = validate(TrainSettings, composed("train", *options))
    os.environ |= FSDP if sharded else {}
    placement = choose_device("cpu", "fp32")
    accelerator, processes = start_processes(placement)
    objective = build_objective(settings)
    encoder = build_encoder(settings.model, placement)
    encoder.train()
    objective.head.train()
    if settings.trainer.activation_checkpointing:
        checkpoint_activations(encoder.transformer)
    if sharded:
        assert processes.sharding is not None
        sharding = replace(processes.sharding, offload=offloaded)
        shard(encoder, encoder.transformer, sharding, processes.count)
    torch.manual_seed(processes.rank)  # what comes before a step must not matter
    parameter_groups(encoder, objective.head, settings.trainer)
    for file, caching in ((output, False), (cached, True)):
        if file is not None:
            embed = TrainableEmbedder(encoder, accelerator, processes, seed=1, caching=caching)
            found = _gradients(settings, objective, encoder, embed, processes)
            if processes.is_main:
                save_file(found, file)


def _gradients(
    settings: TrainSettings,
    objective: Objective,
    encoder: Encoder,
    embed: TrainableEmbedder,
    processes: Processes,
) -> dict[str, torch.Tensor]:
    named = {**dict(encoder.named_parameters()), **dict(objective.head.named_parameters())}
    kept: dict[str, torch.Tensor] = {}
    steps = objective.epoch_steps(0, 2)[: settings.trainer.max_steps]
    last = -1 if isinstance(objective, ContrastiveObjective | TripletObjective) else -2
    for step, shards in enumerate(steps[:1] + steps[1:][last:]):  # the last may be a shorter one
        log = StepLog()
        for micro, anchors in enumerate(shards):
            batch = objective.batch(0, anchors)
            embedded = embed(batch.requests, step, micro)
            result = objective.loss(embedded.rows, batch)
            embedded.backward(result.loss / len(shards))
            log.add(result)
        processes.sum_gradients(encoder.parameters())
        processes.sum_gradients(objective.head.parameters(), divide=True)
        for name, p in named.items():
            if p.grad is not None:
                kept[f"{step}.{name}"] = (
                    p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad.clone()
                )
            p.grad = None
        logged = {name: value for name, value in log.values().items() if value is not None}
        kept |= {f"{step}.log.{name}": torch.tensor(value) for name, value in logged.items()}
    return kept


def gradients_of_all(jobs: list[dict[str, Any]]) -> None:
    """:func:`gradients` again and again in one launch, which takes longer to start than to compute."""
    for job in jobs:
        gradients(**job)


def families(folders: list[str]) -> None:
    """That each of these models has the same gradients sharded as whole, in two passes a process."""
    os.environ |= FSDP
    accelerator, processes = start_processes(choose_device("cpu", "fp32"))
    assert processes.sharding is not None
    requests = [EmbeddingRequest(sentence) for sentence in CORPUS]
    for folder in folders:
        found = []
        for is_sharded in (False, True):
            encoder = Encoder.from_pretrained(folder, device="cpu", tokens_per_forward=64)
            whole = dict(encoder.named_parameters())
            if is_sharded:
                shard(encoder, encoder.transformer, processes.sharding, processes.count)
            embed = TrainableEmbedder(encoder, accelerator, processes, seed=1)
            embedded = embed(requests, 0)
            weights = torch.linspace(-1, 1, embedded.rows.numel()).view_as(embedded.rows)
            embedded.backward((embedded.rows * weights).sum())
            processes.sum_gradients(encoder.parameters())
            gradients = {name: p.grad for name, p in encoder.named_parameters()}
            found.append({n: g.full_tensor() if isinstance(g, DTensor) else g for n, g in gradients.items()})
        assert sum(local_shard(p).numel() for p in encoder.parameters()) < 0.7 * sum(
            p.numel() for p in whole.values()
        ), folder
        scale = max(float(g.norm()) for g in found[0].values() if g is not None)
        for name, expected in found[0].items():
            ours = found[1][name]
            assert (ours is None) == (expected is None), (folder, name)
            if ours is not None and expected is not None:
                assert float((ours - expected).norm()) < 1e-5 * scale, (folder, name)


def whole_run(
    folder: str,
    options: list[str],
    *,
    go_on: bool = False,
    die: list[int] | None = None,
    fail: bool = False,
    stop_in: int | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    """A run, or its continuation.

    Args:
        die: process and evaluation at which that process is killed.
        fail: process 1 meets an error of its own when it first scores.
        stop_in: the step in which process 1 gets SIGTERM.
        environment: of the launch.
    """
    rank = int(os.environ["RANK"])
    os.environ |= environment or {}
    if stop_in is not None and rank == 1:
        _stop_in(stop_in)
    real, calls = Suite.run, 0

    def watched(suite: Suite, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if die == [rank, calls]:
            os.kill(os.getpid(), signal.SIGKILL)
        if fail and rank == 1:
            raise UserError("this process has run into something")
        return real(suite, *arguments, **named)

    Suite.run = watched  # type: ignore[assignment,method-assign]
    patch(
        "idiomtune.training.loop.tries_longest_batch", lambda _: True
    ).start()  # as on a GPU: it changes nothing
    patch("idiomtune.reports.screens.show_finished_run").start()  # a third of the time
    if go_on:
        resume(Path(folder), *options)
    else:
        train(Path(folder) if rank == 0 else Path("not_the_main_one"), options)


def evaluation(options: list[str]) -> None:
    """`idiomtune evaluate`."""
    config = composed("evaluate", *options)
    score_model(validate(EvaluateSettings, config))


def _stop_in(step: int) -> None:
    real, steps = Trainer.reduce_and_clip, 0

    def watched(trainer: Trainer) -> tuple[float, bool]:
        nonlocal steps
        steps += 1
        if steps == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(trainer)

    Trainer.reduce_and_clip = watched  # type: ignore[assignment,method-assign]
