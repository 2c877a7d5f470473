"""Checkpoints: `step_<n>/` holds everything a run needs to resume, `best/` the model to use."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from idiomtune.errors import UserError
from idiomtune.io.files import fingerprint, seal, sync, write_json, write_text
from idiomtune.io.run_files import CHECKSUMS, NOT_OF_THE_MODEL, RECORD, checkpoints, step_of, verify
from idiomtune.plugins.score import ScoreTable, score_card

log = logging.getLogger(__name__)


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
        loss_sum: sum of the losses since the last evaluation, or since the epoch began.
        num_losses: number of these losses.
        epoch_losses: the mean loss at the end of each epoch.
        plan: the last epoch that was begun, and the digest of its steps.
        sums: :meth:`idiomtune.training.invariants.state_sums`.
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
    epoch_losses: list[float] = field(default_factory=list)
    plan: tuple[int, str] | None = None
    sums: tuple[float, ...] = ()


# ------------------------------------------------------------------ reading


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
        raise UserError(f"damaged, or of another version ({fields})", file=path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=path) from None


def latest_checkpoint(run: Path) -> Path | None:
    """The newest checkpoint from which a run can be resumed as if it had never stopped.

    Its files are undamaged, and so is the model that was the best at that time. Other checkpoints are
    skipped, with a warning.
    """
    for checkpoint in reversed(checkpoints(run)):
        try:
            problem = verify(checkpoint)
            best_step = None if problem else read_state(checkpoint).best_step
        except UserError as error:
            problem, best_step = str(error), None
        if best_step is not None and _best_model(run, best_step) is None:
            problem = f"the best model, of step_{best_step}, is damaged there and in best/"
        if problem is None:
            return checkpoint
        log.warning("cannot resume from %s (%s): trying the checkpoint before it", checkpoint, problem)
    return None


def last_saved(run: Path) -> str:
    """A sentence about the newest checkpoint, for messages."""
    last = latest_checkpoint(run)
    return f"The last complete checkpoint: {last}" if last else "No checkpoint is saved yet"


def _best_model(run: Path, best_step: int) -> Path | None:
    """The folder with the undamaged model of the best checkpoint: `step_<n>/`, else `best/`."""
    best = run / f"step_{best_step}"
    return next((path for path in (best, run / "best") if verify(best, model_in=path) is None), None)


# ------------------------------------------------------------------ writing


@contextmanager
def new_checkpoint(
    run: Path,
    state: TrainerState,
    scores: ScoreTable | None,
    record: Mapping[str, Any],
    num_bytes: int = 0,
) -> Iterator[Path]:
    """Write `step_<n>/`, which gets its name only once it is complete and on the disk.

    Args:
        scores: None for a checkpoint that is saved because the run was asked to stop.
        record: of the run so far, see :meth:`~idiomtune.training.run_folder.RunFolder.snapshot`.
        num_bytes: of the weights and the optimizer, for the message on a full disk.

    Yields:
        The folder to write the weights to.

    Raises:
        UserError: if the disk is full or the folder cannot be written.
    """
    final, partial = run / f"step_{state.step}", run / f".step_{state.step}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        write_json(partial / "state.json", asdict(state))
        if scores is not None:
            write_json(partial / "scores.json", score_card(scores, {}, {"step": state.step}))
        write_json(partial / RECORD, record)
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        write_json(partial / CHECKSUMS, {str(p.relative_to(partial)): fingerprint(p) for p in files})
        _put(partial, final)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        free = shutil.disk_usage(run).free // 2**20
        raise UserError(
            f"could not save the checkpoint {final}: {error}. It needs {-(-num_bytes // 2**20)} MiB, and "
            f"{free} MiB are free. {last_saved(run)}"
        ) from error


def _put(folder: Path, final: Path) -> None:
    """Give a complete folder its name, replacing an older one."""
    old = final.with_name(f".{final.name}_old")
    seal(folder)
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    folder.rename(final)
    sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def recover(run: Path) -> None:
    """Restore a checkpoint's name if saving the same step again was interrupted between two renames."""
    for old in run.glob(".step_*_old"):
        final = run / old.name.removeprefix(".").removesuffix("_old")
        if not final.exists():
            old.rename(final)


def write_best(run: Path, checkpoint: Path, card: str) -> None:
    """Copy a checkpoint's model to `best/`, a plain sentence-transformers folder with a model card."""
    partial = run / ".best"
    shutil.rmtree(partial, ignore_errors=True)
    # No hard links: a file that is damaged on the disk would be so in both folders.
    ignored = shutil.ignore_patterns(*NOT_OF_THE_MODEL)
    shutil.copytree(checkpoint, partial, copy_function=shutil.copyfile, ignore=ignored)
    write_text(partial / "README.md", card)
    _put(partial, run / "best")


def finish_save(run: Path, best_step: int | None, keep: int, card: str) -> None:
    """Do what follows a save, in case the run was killed in between: make `best/` again, and prune."""
    best = None if best_step is None else _best_model(run, best_step)
    if best not in (None, run / "best"):
        write_best(run, run / f"step_{best_step}", card)
    prune(run, keep, best_step)


def prune(run: Path, keep: int, best_step: int | None) -> None:
    """Remove all checkpoints except the newest `keep` (at least one), the best, and those that were the best
    when one of these was saved, without which a run cannot be resumed from it.
    """
    saved = checkpoints(run)
    best = {best_step}
    for path in saved[-keep:]:
        with suppress(UserError):  # damaged: it cannot be resumed from
            best.add(read_state(path).best_step)
    for path in saved[:-keep]:
        if step_of(path) not in best:
            _remove(path)
    for leftover in run.glob(".step_*"):  # from a save that was killed
        shutil.rmtree(leftover, ignore_errors=True)


def drop_after(run: Path, step: int) -> None:
    """Remove the checkpoints after `step`, which a run that is resumed there will write again."""
    for path in checkpoints(run):
        if step_of(path) > step:
            _remove(path)


def _remove(checkpoint: Path) -> None:
    """Rename it first: a partly removed folder must not look like a checkpoint."""
    hidden = checkpoint.with_name(f".{checkpoint.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    checkpoint.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
