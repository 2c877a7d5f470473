"""Trackers: wandb and TensorBoard get the data of `metrics.jsonl`, under the same flat keys.

A tracker never ends a run: its failure is a warning, and it is switched off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from idiomtune.config import TrainSettings
from idiomtune.config.sections import WandbSettings
from idiomtune.errors import Pruned
from idiomtune.io.files import write_json
from idiomtune.io.hub import without_secrets
from idiomtune.io.records import readable_record
from idiomtune.plugins.score import ScoreTable
from idiomtune.training.run_folder import RunFolder

log = logging.getLogger(__name__)

_FINISH_SECONDS = 120.0  # for uploading at the end of a run; `wandb sync` uploads the rest


@contextmanager
def start_tracking(run: RunFolder, settings: TrainSettings, experiment: str, step: int) -> Iterator[None]:
    """Also send what `run` logs to the trackers, until the block ends.

    Args:
        experiment: the run's.
        step: the step that the run is resumed from; 0 for a new run.
    """
    wandb, tensorboard = settings.tracking.wandb, settings.tracking.tensorboard
    if run.writes and wandb is not None:  # of several processes one tracks
        with run.unharmed_by("wandb"):
            run.trackers.append(WandbTracker(run.path, wandb, settings.record, experiment))
    if run.writes and tensorboard is not None:
        monitor = None if tensorboard.scores == "all" else settings.trainer.monitor
        with run.unharmed_by("tensorboard"):
            run.trackers.append(TensorBoardTracker(run.path / "tensorboard", step, monitor))
    succeeded = False
    try:
        yield
        succeeded = True
    except Pruned:
        succeeded = True
        raise
    finally:
        run.track(lambda tracker: tracker.close(succeeded=succeeded))
        run.trackers.clear()


def _values(record: Mapping[str, Any]) -> dict[str, float]:
    """The logged values of a step, without scores."""
    return {k: v for k, v in record.items() if k not in ("step", "scores") and v is not None}


class TensorBoardTracker:
    """Event files in a folder: scores by benchmark, the rest as `training/…`.

    Args:
        step: later steps that an earlier start of the run logged are discarded.
        monitor: the scores that are shown in addition to the benchmarks' headlines; None = all.
    """

    name = "tensorboard"

    def __init__(self, folder: Path, step: int, monitor: Sequence[str] | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._monitor = monitor
        self._with_curve: set[str] = set()
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)
        log.info("tracking: tensorboard --logdir %s", folder)

    def log(self, record: Mapping[str, Any]) -> None:
        step = record["step"]
        for key, value in _values(record).items():
            self._writer.add_scalar(f"training/{key}", value, step)
        scores = record.get("scores", ScoreTable())
        for key, value in scores.items():
            if self._monitor is None or key in self._monitor or scores.parts[key].is_headline:
                self._with_curve.add(key)
                self._writer.add_scalar(key, value, step)

    def summarise(self, scores: ScoreTable, step: int) -> None:
        """One point for each score that has no curve, as it was not scored while training."""
        rest = scores.only(key for key in scores if key not in self._with_curve)
        self.log({"step": step, "scores": rest})

    def keep_model(self, folder: Path, scores: ScoreTable) -> None:
        """Does nothing: event files hold no models."""

    def close(self, *, succeeded: bool) -> None:  # noqa: ARG002
        self._writer.close()


class WandbTracker:
    """A run at Weights & Biases: online if there is a key, else offline, to be synchronised later.

    The run's id and the last logged step are kept in the run folder (`wandb.json`): a run that is resumed
    from an older checkpoint repeats steps that wandb already has.
    """

    name = "wandb"

    def __init__(
        self, folder: Path, settings: WandbSettings, config: Mapping[str, Any], experiment: str
    ) -> None:
        self._settings, self._experiment = settings, experiment
        self._path = folder / "wandb.json"
        record = readable_record(self._path)
        mode = settings.mode if settings.mode != "auto" else "online" if has_key() else "offline"
        try:
            self._run = self._start(folder, config, record.get("id"), mode)
        except Exception as error:
            if mode == "offline":
                raise
            reason = without_secrets(str(error))  # WANDB_BASE_URL may hold a password
            log.warning("wandb cannot be reached, tracking offline: %s: %s", type(error).__name__, reason)
            mode = "offline"
            self._run = self._start(folder, config, record.get("id"), mode)
        # In an agent's sweep wandb chooses the id: the steps recorded here are then another run's.
        self._last_step = record.get("last_step", 0) if record.get("id") == self._run.id else 0
        self._known_step = self._last_step
        self._write()
        later = f"offline; upload it by: wandb sync {folder}/wandb/offline-run-*"
        address = later if mode == "offline" else without_secrets(str(self._run.url))
        log.info("tracking: wandb run %s, %s", self._run.id, address)

    def _start(self, folder: Path, config: Mapping[str, Any], run_id: str | None, mode: str) -> Any:
        """Start a wandb run, or resume the one with this id."""
        import wandb

        settings = self._settings
        # No capture of the terminal, no git remote (its address may hold a password), no code.
        options: dict[str, Any] = {"console": "off", "disable_git": True, "save_code": False, "silent": True}
        if "finish_timeout" in wandb.Settings.model_fields:
            options["finish_timeout"] = _FINISH_SECONDS
        return wandb.init(
            dir=str(folder),
            project=settings.project,
            entity=settings.entity,
            group=settings.group,
            tags=settings.tags or None,
            job_type=self._experiment,
            # Jobs of a sweep have numbers.
            name=f"{folder.parent.name}/{folder.name}" if folder.name.isdigit() else folder.name,
            id=run_id,
            resume="allow" if run_id else None,
            mode="offline" if mode == "offline" else None,  # None: WANDB_MODE may still say otherwise
            config={**config, "experiment": self._experiment},
            reinit="create_new",  # a sweep makes several runs in one process
            settings=wandb.Settings(**options),
        )

    def log(self, record: Mapping[str, Any]) -> None:
        step = record["step"]
        if step <= self._known_step:
            return
        self._run.log({**_values(record), **record.get("scores", {})}, step=step)
        if step > self._last_step:
            self._last_step = step
            self._write()

    def summarise(self, scores: ScoreTable, step: int) -> None:  # noqa: ARG002
        self._run.summary.update(dict(scores))

    def keep_model(self, folder: Path, scores: ScoreTable) -> None:
        """The model as an artifact with its headline scores; in the registry if that is an option."""
        if self._settings.log_model is None:
            return
        import wandb

        headline = {key: value for key, value in scores.items() if scores.parts[key].is_headline}
        name = f"{self._experiment}-{self._run.id}".replace("/", "-")  # of an experiment in a subfolder
        registry = self._settings.registry
        try:
            artifact = wandb.Artifact(name, type="model", metadata=headline)
            artifact.add_dir(str(folder))
            logged = self._run.log_artifact(artifact, aliases=["best"])
            if registry is not None and not self._run.offline:
                self._run.link_artifact(logged, f"wandb-registry-model/{registry}")
            elif registry is not None:
                log.warning("wandb links models only online: after uploading, link %s to %s", name, registry)
        except Exception as error:  # what was tracked is still sent, when this is closed
            reason = f"{type(error).__name__}: {without_secrets(str(error))}"
            log.warning("wandb has not taken the best model, which is in %s: %s", folder, reason)

    def close(self, *, succeeded: bool) -> None:
        self._run.finish(exit_code=0 if succeeded else 1)

    def _write(self) -> None:
        write_json(self._path, {"id": self._run.id, "last_step": self._last_step})


def has_key() -> bool:
    """Whether there is an API key for wandb, in the environment or the netrc file. The key is not kept."""
    import wandb
    from requests.utils import get_netrc_auth  # wandb needs this package too

    return bool(os.environ.get("WANDB_API_KEY") or get_netrc_auth(wandb.setup().settings.base_url))
