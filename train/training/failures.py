"""The errors that end a training, with their causes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from train.errors import UserError
from train.io.files import write_json
from train.objectives import Batch
from train.runs.folder import RunFolder
from train.training.checkpoint import TrainerState, latest_checkpoint


def not_finite(
    what: str, value: float, batches: Sequence[Batch], state: TrainerState, run: RunFolder
) -> UserError:
    """The error for a loss or gradient that is not finite; its batches are written to a file."""
    path: Path = run.path / "nonfinite_batch.json"
    anchors = [anchor for batch in batches for anchor in batch.anchors]
    texts = [request.text for batch in batches for request in batch.requests]
    where = {"step": state.step + 1, "epoch": state.epoch}
    if run.writes:
        write_json(path, {**where, what: str(value), "anchors": anchors, "texts": texts})
    last = latest_checkpoint(run.path)
    saved = f"the last checkpoint is {last}" if last else "no checkpoint was saved before it"
    shown = ", ".join(anchors[:5]) + (", …" if len(anchors) > 5 else "")
    return UserError(
        f"the {what} is {value} at step {state.step + 1} (epoch {state.epoch + 1}), in the batch of "
        f"{len(anchors)} anchors {shown}\n"
        f"  The whole batch is in {path}; {saved}.\n"
        "  Usual causes: too high a trainer.learning_rate, too low an objective.loss.temperature, "
        "precision=fp16 (try bf16 or fp32)."
    )


def nothing_learnt(state: TrainerState, part: str, section: str, why: str, run: RunFolder) -> UserError:
    """The error for a loss and gradient that were zero in many steps in a row.

    Args:
        part: the part of a mixture; "" for other objectives.
        section: where the options of its loss are.
        why: of the last step, where it is known; else no triplet was mined.
    """
    last = latest_checkpoint(run.path)
    why = why or (
        "no triplet was mined. Where all keep the margin, nothing is left to learn: end the run with "
        f"trainer.max_steps, or raise the loss's mining_margin, or choose other triplets (in {section})"
    )
    return UserError(
        f"nothing was learnt in {state.num_empty[part]} steps {f'of {part} ' if part else ''}in a row, up to "
        f"step {state.step + 1}: the objective's loss and its gradient are zero.\n"
        f"  - {why}\n"
        "  - or allow more such steps: trainer.max_empty_steps\n"
        f"  {f'The last checkpoint is {last}' if last else 'No checkpoint was saved before it'}."
    )
