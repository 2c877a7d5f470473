"""Checkpoints: `step_<n>/` holds everything a run needs to go on, `best/` the model to use."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from train.data.sources import fingerprint
from train.encoder import Encoder
from train.errors import UserError
from train.runfolder import write_json

log = logging.getLogger(__name__)

_CHECKSUMS = "checksums.json"
_NOT_OF_THE_MODEL = (
    "optimizer.safetensors",
    "objective.safetensors",
    "state.json",
    "scores.json",
    _CHECKSUMS,
)


@dataclass
class TrainerState:
    """Where a run stands. Random numbers need no place here: they are functions of seed and step.

    Attributes:
        step: optimizer steps done.
        epoch: epochs done.
        step_in_epoch: steps done of the epoch that is going on.
        best_score: the best monitored score so far, and the step it was reached at.
        patience_score: the score that the next one must beat by `min_delta` for patience's sake.
        num_without_improvement: evaluations since then.
        scored_step: the step that was scored last.
        grad_scale: of the gradient scaler, under fp16.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    best_score: float | None = None
    best_step: int | None = None
    patience_score: float | None = None
    num_without_improvement: int = 0
    scored_step: int | None = None
    grad_scale: float | None = None


def save_checkpoint(
    run: Path,
    encoder: Encoder,
    modules: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: TrainerState,
    scores: dict[str, float] | None,
) -> Path:
    """Write `step_<n>/`: it appears under that name only when it is whole.

    The folder is a sentence-transformers model too, so that any checkpoint can be scored. `scores` is
    None for one that is saved because the run was asked to stop.

    Raises:
        UserError: if the disk is full or the folder cannot be written.
    """
    final = run / f"step_{state.step}"
    partial = run / f".step_{state.step}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        encoder.save(partial)
        own = modules.state_dict()
        if own:
            save_file(own, partial / "objective.safetensors")
        save_file(_flatten(optimizer), partial / "optimizer.safetensors")
        write_json(partial / "state.json", asdict(state))
        if scores is not None:
            card = {"scores": scores, "baseline": {}, "meta": {"step": state.step}}
            write_json(partial / "scores.json", card)
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        sums = {str(path.relative_to(partial)): fingerprint(path) for path in files}
        write_json(partial / _CHECKSUMS, sums)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    # safetensors reports a full disk as an error of its own
    except Exception as error:
        shutil.rmtree(partial, ignore_errors=True)
        last = latest_checkpoint(run)
        free = shutil.disk_usage(run).free / 2**20
        raise UserError(
            f"could not save the checkpoint {final}: {error} ({free:.0f} MiB free). "
            + (f"The last one that is whole: {last}" if last else "No checkpoint is saved yet")
        ) from error
    return final


def load_training_state(
    checkpoint: Path, modules: nn.Module, optimizer: torch.optim.Optimizer
) -> TrainerState:
    """Put the optimizer and the objective's modules back as they were. The encoder is loaded by
    `Encoder.from_pretrained(checkpoint)`.
    """
    own = checkpoint / "objective.safetensors"
    if own.is_file():
        modules.load_state_dict(load_file(own))
    _unflatten(optimizer, load_file(checkpoint / "optimizer.safetensors"))
    return TrainerState(**json.loads((checkpoint / "state.json").read_text(encoding="utf-8")))


def verify(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None."""
    try:
        sums: dict[str, str] = json.loads((checkpoint / _CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{_CHECKSUMS}: {error}"
    for name, expected in sums.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if fingerprint(path) != expected:
            return f"{name} is damaged"
    return None


def checkpoints(run: Path) -> list[Path]:
    """All whole checkpoints of a run, oldest first."""
    found = (p for p in run.glob("step_*") if p.name.removeprefix("step_").isdigit())
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))


def latest_checkpoint(run: Path) -> Path | None:
    """The newest checkpoint of a run whose files are what was written; damaged ones are passed over."""
    for checkpoint in reversed(checkpoints(run)):
        problem = verify(checkpoint)
        if problem is None:
            return checkpoint
        log.warning("checkpoint %s is damaged (%s): looking at the one before it", checkpoint, problem)
    return None


def prune(run: Path, keep: int, best_step: int | None) -> None:
    """Remove all checkpoints but the newest `keep` (at least one) and the best."""
    saved = checkpoints(run)
    for path in saved[: len(saved) - max(keep, 1)]:
        if path.name != f"step_{best_step}":
            shutil.rmtree(path)


def write_best(run: Path, checkpoint: Path, card: str) -> Path:
    """Make `best/` of a checkpoint: the plain sentence-transformers folder, with a model card."""
    best, partial, old = run / "best", run / ".best", run / ".best_old"
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    # Hard links where the file system has them: a checkpoint's files never change.
    ignored = shutil.ignore_patterns(*_NOT_OF_THE_MODEL)
    shutil.copytree(checkpoint, partial, copy_function=_link_or_copy, ignore=ignored)
    (partial / "README.md").unlink(missing_ok=True)
    (partial / "README.md").write_text(card, encoding="utf-8")
    if best.exists():
        best.rename(old)
    partial.rename(best)
    shutil.rmtree(old, ignore_errors=True)
    return best


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterable[nn.Parameter]:
    return (p for group in optimizer.param_groups for p in group["params"])


def _flatten(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as `<number of the parameter>.<name>`."""
    return {
        f"{number}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for number, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def _unflatten(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    content: dict[str, Any] = optimizer.state_dict()
    content["state"] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        content["state"].setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(content)
