"""Checkpoints: `step_<n>/` holds everything a run needs to resume, `best/` the model to use."""

from __future__ import annotations

import contextlib
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
from train.runs.resume import CHECKSUMS, RECORD, checkpoints, read_mapping, saved_record
from train.training.regularization import TRAINER_WEIGHTS, Retention

log = logging.getLogger(__name__)

NOT_OF_THE_MODEL = (
    "optimizer.safetensors",
    "objective.safetensors",
    TRAINER_WEIGHTS,
    "state.json",
    "scores.json",
    RECORD,
    "best.json",  # of earlier versions
    CHECKSUMS,
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
    record: Mapping[str, Any],
) -> Path:
    """Write `step_<n>/`, which gets its name only once it is complete and on the disk.

    The folder is also a sentence-transformers model, so that any checkpoint can be scored.

    Args:
        scores: None for a checkpoint that is saved because the run was asked to stop.
        record: of the run so far, see :meth:`~train.runs.folder.RunFolder.snapshot`.

    Raises:
        UserError: if the disk is full or the folder cannot be written.
    """
    final, partial = run / f"step_{state.step}", run / f".step_{state.step}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        retention.save(partial)
        if objective_weights := modules.state_dict():
            save_file(objective_weights, partial / "objective.safetensors")
        for module in modules.modules():  # in a mixture, those of each part
            if isinstance(module, Publishes):
                module.publish(partial)
        save_file(optimizer_tensors(optimizer), partial / "optimizer.safetensors")
        write_json(partial / "state.json", asdict(state))
        if scores is not None:
            card = {"scores": scores, "baseline": {}, "meta": {"step": state.step}}
            write_json(partial / "scores.json", card)
        if state.best_step not in (None, state.step):
            record = {**record, "best_sums": _model_sums(run / f"step_{state.best_step}")}
        write_json(partial / RECORD, record)
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        write_json(partial / CHECKSUMS, {str(p.relative_to(partial)): fingerprint(p) for p in files})
        _put(partial, final)
    except (OSError, SafetensorError) as error:  # safetensors has its own exception for a full disk
        free = shutil.disk_usage(run).free / 2**20  # before the incomplete folder is removed
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(
            f"could not save the checkpoint {final}: {error} ({free:.0f} MiB free). {last_saved(run)}"
        ) from error
    return final


def _put(folder: Path, final: Path) -> None:
    """Give a complete folder its name, in place of one that may have it."""
    old = final.with_name(f".{final.name}_old")
    seal(folder)
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    folder.rename(final)
    sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def load_training_state(
    checkpoint: Path, modules: nn.Module, optimizer: torch.optim.Optimizer
) -> TrainerState:
    """Restore the optimizer and the objective's modules.

    The encoder already has its weights, from :func:`~train.factory.build_retention`.
    """
    objective_weights = checkpoint / "objective.safetensors"
    if objective_weights.is_file():
        modules.load_state_dict(load_file(objective_weights))
    restore_optimizer(optimizer, load_file(checkpoint / "optimizer.safetensors"))
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
    if not (checkpoint / CHECKSUMS).is_file():
        return f"{CHECKSUMS} is missing"
    sums = read_mapping(checkpoint / CHECKSUMS)
    if "state.json" not in sums:
        return f"{CHECKSUMS} is damaged"
    return _difference(_model_sums(checkpoint) if model_in else sums, model_in or checkpoint)


def _model_sums(checkpoint: Path) -> dict[str, str]:
    """The sums of the files that a checkpoint shares with `best/`."""
    sums = read_mapping(checkpoint / CHECKSUMS)
    return {name: sum_ for name, sum_ in sums.items() if name not in (*NOT_OF_THE_MODEL, "README.md")}


def _difference(sums: Mapping[str, str], folder: Path) -> str | None:
    """The first file that does not match its sum, in words; None if all do."""
    for name, expected in sums.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if fingerprint(folder / name) != expected:
            return f"{name} is damaged"
    return None


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))


def latest_checkpoint(run: Path) -> Path | None:
    """The newest checkpoint from which a run can be resumed as if it had never stopped.

    Its files are undamaged, and so is the model that was the best at that time. Other checkpoints are
    skipped, with a warning.
    """
    for checkpoint in reversed(checkpoints(run)):
        problem = verify(checkpoint) or _problem_of_state(run, checkpoint)
        if problem is None:
            return checkpoint
        log.warning("cannot resume from %s (%s): trying the checkpoint before it", checkpoint, problem)
    return None


def _problem_of_state(run: Path, checkpoint: Path) -> str | None:
    try:
        best_step = read_state(checkpoint).best_step
    except UserError as error:
        return str(error)
    if best_step is None or _best_model(run, checkpoint) is not None:
        return None
    return f"the best model, of step_{best_step}, is damaged there and in best/"


def _best_model(run: Path, checkpoint: Path) -> Path | None:
    """The folder with the undamaged model of what was the best checkpoint then: `step_<n>/`, else `best/`."""
    best = run / f"step_{read_state(checkpoint).best_step}"
    sums = saved_record(run, checkpoint).get("best_sums") or _model_sums(best)
    return next((path for path in (best, run / "best") if sums and not _difference(sums, path)), None)


def last_saved(run: Path) -> str:
    """A sentence about the newest checkpoint, for messages."""
    last = latest_checkpoint(run)
    return f"The last complete checkpoint: {last}" if last else "No checkpoint is saved yet"


def recover(run: Path) -> None:
    """Restore a checkpoint's name if saving the same step again was interrupted between two renames."""
    for old in run.glob(".step_*_old"):
        final = run / old.name.removeprefix(".").removesuffix("_old")
        if not final.exists():
            old.rename(final)


def restore_best(run: Path, checkpoint: Path, card: str) -> None:
    """Make `best/` again as of a checkpoint, unless `best/` alone has that model undamaged."""
    best = _best_model(run, checkpoint)
    if best is not None and best != run / "best":
        write_best(run, best, card)


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
    best, partial = run / "best", run / ".best"
    shutil.rmtree(partial, ignore_errors=True)
    # No hard links: a file that is damaged on the disk would be so in both folders.
    ignored = shutil.ignore_patterns(*NOT_OF_THE_MODEL, "README.md")
    shutil.copytree(checkpoint, partial, copy_function=copy_file, ignore=ignored)
    write_text(partial / "README.md", card)
    _put(partial, best)
    return best


def _parameters(optimizer: torch.optim.Optimizer) -> Iterable[nn.Parameter]:
    return (p for group in optimizer.param_groups for p in group["params"])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state, with keys `<number of the parameter>.<name>`."""
    return {
        f"{number}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for number, parameter in enumerate(_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer of the same parameters the state that :func:`optimizer_tensors` took."""
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
