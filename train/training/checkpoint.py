"""Checkpoints: `step_<n>/` holds everything a run needs to resume, `best/` the model to use."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from train.distributed.sharding import shard_like
from train.errors import UserError
from train.io.files import copy_file, fingerprint, seal, sync, write_json, write_text
from train.objectives import Publishes
from train.runs.resume import RECORD, checkpoint_folders
from train.training.regularization import TRAINER_WEIGHTS, Retention

log = logging.getLogger(__name__)

_CHECKSUMS = "checksums.json"
_BEST = "best.json"  # in a checkpoint: the checksums of the model that was the best at that time
NOT_OF_THE_MODEL = (
    "optimizer.safetensors",
    "objective.safetensors",
    TRAINER_WEIGHTS,
    "state.json",
    "scores.json",
    RECORD,
    _BEST,
    _CHECKSUMS,
)


@dataclass
class TrainerState:
    """The progress of a run. Random numbers need no state: they are functions of seed and step.

    Attributes:
        step: optimizer steps done.
        epoch: epochs done.
        step_in_epoch: steps done of the current epoch.
        best_score: the best monitored score so far.
        best_step: the step of that score.
        patience_score: the score that an improvement has to exceed by more than `min_delta`.
        num_without_improvement: evaluations since that score.
        scored_step: the last step that was scored.
        grad_scale: of the gradient scaler, under fp16.
        num_empty: part of a mixture ("" for other objectives) → number of its latest steps in a row
            that had nothing to learn from.
        empty_steps: why a step had nothing to learn from → number of such steps.
        loss_sum: sum of the losses since the last evaluation.
        num_losses: number of these losses.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    best_score: float | None = None
    best_step: int | None = None
    patience_score: float | None = None
    num_without_improvement: int = 0
    scored_step: int | None = None
    grad_scale: float | None = None
    num_empty: dict[str, int] = field(default_factory=dict)
    empty_steps: dict[str, int] = field(default_factory=dict)
    loss_sum: float = 0.0
    num_losses: int = 0


def save_checkpoint(
    run: Path,
    retention: Retention,
    modules: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: TrainerState,
    scores: dict[str, float] | None,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write `step_<n>/`, which gets its name only once it is complete and on the disk.

    The folder is also a sentence-transformers model, so that any checkpoint can be scored.

    Args:
        scores: None for a checkpoint that is saved because the run was asked to stop.
        record: a copy of the run's configuration and record, in case those in the run folder are damaged.

    Raises:
        UserError: if the disk is full or the folder cannot be written.
    """
    final = run / f"step_{state.step}"
    partial, old = run / f".step_{state.step}", run / f".step_{state.step}_old"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        retention.save(partial)
        objective_weights = modules.state_dict()
        if objective_weights:
            save_file(objective_weights, partial / "objective.safetensors")
        for module in modules.modules():  # in a mixture, those of each part
            if isinstance(module, Publishes):
                module.publish(partial)
        save_file(_flatten(optimizer), partial / "optimizer.safetensors")
        write_json(partial / "state.json", asdict(state))
        if scores is not None:
            card = {"scores": scores, "baseline": {}, "meta": {"step": state.step}}
            write_json(partial / "scores.json", card)
        if record is not None:
            write_json(partial / RECORD, record)
        if state.best_step not in (None, state.step):
            write_json(partial / _BEST, {"step": state.best_step, "sums": _best_sums(run, state.best_step)})
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        sums = {str(path.relative_to(partial)): fingerprint(path) for path in files}
        write_json(partial / _CHECKSUMS, sums)
        seal(partial)
        if final.exists():  # saved at an interrupt, and now again with its scores
            shutil.rmtree(old, ignore_errors=True)
            final.rename(old)
        partial.rename(final)
        sync(run)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:  # safetensors has its own exception for a full disk
        free = shutil.disk_usage(run).free / 2**20  # before the incomplete folder is removed
        shutil.rmtree(partial, ignore_errors=True)
        last = latest_checkpoint(run)
        raise UserError(
            f"could not save the checkpoint {final}: {error} ({free:.0f} MiB free). "
            + (f"The last complete one: {last}" if last else "No checkpoint is saved yet")
        ) from error
    return final


def load_training_state(
    checkpoint: Path, modules: nn.Module, optimizer: torch.optim.Optimizer
) -> TrainerState:
    """Restore the optimizer and the objective's modules.

    The encoder already has its weights, from :func:`~train.factory.build_retention`.
    """
    objective_weights = checkpoint / "objective.safetensors"
    if objective_weights.is_file():
        modules.load_state_dict(load_file(objective_weights))
    _unflatten(optimizer, load_file(checkpoint / "optimizer.safetensors"))
    return read_state(checkpoint)


def read_state(checkpoint: Path) -> TrainerState:
    """The run's progress at a checkpoint.

    Raises:
        UserError: if it cannot be read, or another version wrote it.
    """
    path = checkpoint / "state.json"
    try:
        return TypeAdapter(TrainerState).validate_json(path.read_bytes())
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, e["loc"])) or e["msg"] for e in error.errors())
        raise UserError(f"{path} is damaged or of another version ({fields})") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def verify(checkpoint: Path, *, model_in: Path | None = None) -> str | None:
    """What is wrong with a checkpoint's files, or None.

    Args:
        model_in: check only the model's files, in this folder (the checkpoint's or `best/`).
    """
    sums = _read_sums(checkpoint)
    if isinstance(sums, str):
        return sums
    return _difference(_of_model(sums) if model_in else sums, model_in or checkpoint)


def _read_sums(checkpoint: Path) -> dict[str, str] | str:
    """File → SHA-256 of a checkpoint, or what is wrong with the file of checksums."""
    try:
        sums = json.loads((checkpoint / _CHECKSUMS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return f"{_CHECKSUMS} is missing"
    except (OSError, ValueError, RecursionError):
        return f"{_CHECKSUMS} is damaged"
    if not isinstance(sums, dict) or "state.json" not in sums:
        return f"{_CHECKSUMS} is damaged"
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in sums):
        return f"{_CHECKSUMS} is damaged"
    return sums


def _of_model(sums: Mapping[str, str]) -> dict[str, str]:
    return {name: sum_ for name, sum_ in sums.items() if name not in (*NOT_OF_THE_MODEL, "README.md")}


def _difference(sums: Mapping[str, str], folder: Path) -> str | None:
    """The first file that does not match its checksum, in words; None if all do."""
    for name, expected in sums.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if fingerprint(folder / name) != expected:
            return f"{name} is damaged"
    return None


def checkpoints(run: Path) -> list[Path]:
    """All complete checkpoints of a run, oldest first."""
    return checkpoint_folders(run)


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))


def latest_checkpoint(run: Path) -> Path | None:
    """The newest checkpoint from which a run can be resumed as if it had never stopped.

    Its files are undamaged, and so are those of the model that was the best at that time. Other checkpoints
    are skipped, with a warning.
    """
    for checkpoint in reversed(checkpoints(run)):
        problem = verify(checkpoint)
        if problem is None:
            try:
                best_step = read_state(checkpoint).best_step
            except UserError as error:
                problem = str(error)
            else:
                if best_step is None or _whole_best(run, best_step) is not None:
                    return checkpoint
                problem = f"the best model, of step_{best_step}, is lost there and in best/"
        log.warning("cannot resume from %s (%s): trying the checkpoint before it", checkpoint, problem)
    return None


def recover(run: Path) -> None:
    """Restore a checkpoint's name if saving the same step again was interrupted between two renames."""
    for old in run.glob(".step_*_old"):
        final = run / old.name.removeprefix(".").removesuffix("_old")
        if not final.exists():
            old.rename(final)


def restore_best(run: Path, best_step: int, card: str) -> None:
    """Make `best/` from `step_<best_step>`, if that is complete and `best/` is not its copy already."""
    sums, best = _best_sums(run, best_step), run / "best"
    for leftover in (run / ".best", run / ".best_old"):  # of a copy that was cut short
        shutil.rmtree(leftover, ignore_errors=True)
    is_there = sums and _difference(sums, best) is None and (best / "README.md").is_file()
    if not is_there and _whole_best(run, best_step) == run / f"step_{best_step}":
        write_best(run, run / f"step_{best_step}", card)


def _whole_best(run: Path, best_step: int) -> Path | None:
    """The folder with the undamaged model of the best checkpoint: `step_<n>/`, else `best/`."""
    sums = _best_sums(run, best_step)
    folders = (run / f"step_{best_step}", run / "best")
    return next((path for path in folders if sums and _difference(sums, path) is None), None)


def _best_sums(run: Path, best_step: int) -> dict[str, str]:
    """Checksums of the best model's files: from its checkpoint, else from a later one that keeps them."""
    sums = _read_sums(run / f"step_{best_step}")
    if isinstance(sums, dict):
        return _of_model(sums)
    for checkpoint in reversed(checkpoints(run)):
        sums = _read_sums(checkpoint)
        if isinstance(sums, dict) and _BEST in sums and not _difference({_BEST: sums[_BEST]}, checkpoint):
            kept = json.loads((checkpoint / _BEST).read_text(encoding="utf-8"))
            if kept["step"] == best_step:
                return dict(kept["sums"])
    return {}


def prune(run: Path, keep: int, best_step: int | None) -> None:
    """Remove all checkpoints except the newest `keep` (at least one), the best, and those that were the best
    when one of these was saved, without which a run cannot be resumed from it.
    """
    saved = checkpoints(run)
    best = {best_step}
    for path in saved[-keep:]:
        with contextlib.suppress(UserError):  # damaged: it cannot be resumed from
            best.add(read_state(path).best_step)
    for path in saved[:-keep]:
        if _number(path) not in best:
            _remove(path)
    for leftover in run.glob(".step_*"):  # from a save that was killed
        shutil.rmtree(leftover, ignore_errors=True)


def drop_after(run: Path, step: int) -> None:
    """Remove the checkpoints after `step`, which a run that is resumed there will write again."""
    for path in checkpoints(run):
        if _number(path) > step:
            _remove(path)


def _remove(checkpoint: Path) -> None:
    """Rename it first: a partly removed folder must not look like a checkpoint."""
    hidden = checkpoint.with_name(f".{checkpoint.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    checkpoint.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def write_best(run: Path, checkpoint: Path, card: str) -> Path:
    """Copy a checkpoint's model to `best/`, a plain sentence-transformers folder with a model card."""
    best, partial, old = run / "best", run / ".best", run / ".best_old"
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    # No hard links: a file that is damaged on the disk would be so in both folders.
    ignored = shutil.ignore_patterns(*NOT_OF_THE_MODEL, "README.md")
    shutil.copytree(checkpoint, partial, copy_function=copy_file, ignore=ignored)
    write_text(partial / "README.md", card)
    seal(partial)
    if best.exists():
        best.rename(old)
    partial.rename(best)
    sync(run)
    shutil.rmtree(old, ignore_errors=True)
    return best


def _parameters(optimizer: torch.optim.Optimizer) -> Iterable[nn.Parameter]:
    return (p for group in optimizer.param_groups for p in group["params"])


def _flatten(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state, with keys `<number of the parameter>.<name>`."""
    return {
        f"{number}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for number, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def _unflatten(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    content: dict[str, Any] = optimizer.state_dict()
    content["state"] = {}
    parameters = list(_parameters(optimizer))
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        parameter = parameters[int(number)]
        has_weights_shape = value.shape == parameter.shape  # unlike a count of steps
        value = shard_like(value, parameter) if has_weights_shape else value
        content["state"].setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(content)
