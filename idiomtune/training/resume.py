"""`resume=`: the run to resume, conflicts with the command line, the checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idiomtune.config import TrainSettings
from idiomtune.config.words import unquote
from idiomtune.errors import UserError
from idiomtune.io.files import fingerprint, is_file, user_path
from idiomtune.io.records import readable_record, refuse_recorded_code, refuse_recorded_options
from idiomtune.io.run_files import CHECKSUMS, RECORD, checkpoints, read_config, read_run_json, verify
from idiomtune.plugins.registry import is_data_path
from idiomtune.training.checkpoint import TrainerState, drop_after, latest_checkpoint, read_state, recover
from idiomtune.training.run_folder import RunFolder, is_unfinished

log = logging.getLogger(__name__)

# What may change besides options without effect: the run's length and data folders (the files' checksums must
# be the same). A glossary may also be in another folder.
_LENGTH = ("trainer.max_epochs", "trainer.max_steps")
_GLOSSARY = "model.glossary"
_SECTIONS = ("model", "trainer", "forgetting", "eval")  # with the same options in every run
_GROUPS = ("model", "data", "objective", "trainer", "benchmark")


def may_change(key: str) -> bool:
    """Whether an option may have another value when a run or a search is resumed."""
    return key in _LENGTH or is_data_path(key) or has_no_effect(key)


def has_no_effect(key: str) -> bool:
    """Whether an option makes no other run; or its section, as `hub`."""
    return f"{key}.".startswith(tuple(f"{name}." for name in TrainSettings.without_effect()))


# ------------------------------------------------------------------ which run, with which options


def find_run(arguments: Sequence[str]) -> str | None:
    """The run folder that `resume=` names, or None to start a new run.

    `resume=auto` resumes the run in `run_dir=` if there is one, else the newest unfinished run of the
    experiment under `checkpoints/`; if there is none, a new run starts.

    Raises:
        UserError: if `resume=` names a folder without a run.
    """
    options = {key.lstrip("+"): unquote(value) for key, _, value in (a.partition("=") for a in arguments)}
    resume = options.get("resume", "null")
    if resume in ("null", ""):
        return None
    folder = user_path(resume, "resume")
    if resume != "auto":
        if not _is_resumable(folder):
            above = folder.resolve().parent
            hint = f"; the run is {above}" if is_file(above / "run.json") else ""
            raise UserError(
                f"no run (config.yaml and run.json) in that folder{hint}", option=f"resume={folder}"
            )
        return str(folder)
    if "run_dir" in options:
        folder = user_path(options["run_dir"], "run_dir")
        return str(folder) if _is_resumable(folder) else None
    newest = newest_unfinished(options.get("experiment", "default"))
    return None if newest is None else str(newest)


def newest_unfinished(experiment: str) -> Path | None:
    """The run under `checkpoints/` that was written to last, of those of an experiment.

    Args:
        experiment: `*` for any.
    """
    runs = Path("checkpoints").glob(f"{experiment}/*")
    unfinished = [run for run in runs if _is_resumable(run) and is_unfinished(run)]

    def last_written(run: Path) -> float:
        return max(p.stat().st_mtime for p in (run / "run.json", *checkpoints(run)) if p.exists())

    return max(unfinished, key=last_written, default=None)


def _is_resumable(folder: Path) -> bool:
    return is_file(folder / "run.json") or bool(checkpoints(folder))


def saved_record(run: Path, checkpoint: Path | None = None) -> dict[str, Any]:
    """The `config`, `run` and `metrics` of a run as of a checkpoint.

    If there is no such record, before the first checkpoint, `config` and `run` are those in the run folder.

    Args:
        checkpoint: None for the newest one with an undamaged record.

    Raises:
        UserError: if no undamaged record is left.
    """
    for folder in [checkpoint] if checkpoint else reversed(checkpoints(run)):
        sums = readable_record(folder / CHECKSUMS)
        if RECORD in sums and is_file(folder / RECORD) and fingerprint(folder / RECORD) == sums[RECORD]:
            return readable_record(folder / RECORD)
    return {"config": read_config(run), "run": read_run_json(run)}


def saved_config(
    folder: Path, composed: dict[str, Any], experiment: str, overrides: Sequence[str]
) -> dict[str, Any]:
    """The run's recorded configuration, with those of the overrides that may change.

    Args:
        folder: the run folder.
        composed: the configuration of this command line.
        experiment: the `+experiment=` of this command line (`default` if none was given).
        overrides: this command line's overrides.

    Raises:
        UserError: naming each override that differs from the run's.
    """
    record = saved_record(folder)
    saved: dict[str, Any] = record["config"]
    recorded = record["run"].get("experiment")
    path = folder / "config.yaml"
    if is_file(path) and fingerprint(path) == readable_record(folder / "run.json").get("config_sum"):
        saved = read_config(folder)  # has what was changed at a resume that saved no checkpoint
    repeats = _get(composed, "model.trust_remote_code")
    refuse_recorded_code(saved.get("model"), path, repeats=repeats, option="model.trust_remote_code=true")
    keys = [override.partition("=")[0].lstrip("+~") for override in overrides]
    differences = []
    if experiment not in ("default", recorded):
        differences.append(f"experiment: {experiment}, but the run has {recorded}")
    for override, key in zip(overrides, keys, strict=True):
        current, of_run = _as_recorded(_get(composed, key)), _as_recorded(_get(saved, key))
        if key in ("experiment", "resume") or key.startswith("hydra."):
            continue
        if key == "run_dir":
            if (other := user_path(composed["run_dir"], "run_dir")).resolve() != folder.resolve():
                differences.append(f"run_dir: {other}, but the run is in {folder}")
        elif key.partition(".")[0] == "tracking":
            saved["tracking"] = composed.get("tracking", {})
        elif may_change(key) or (key == _GLOSSARY and _names(current) == _names(of_run)):
            _set(saved, key, _get(composed, key))
        elif key in ("debug", "protocol"):
            differences.append(f"{override}: it changes what the run was started with")
        elif key in _GROUPS:  # options of the group may have overrides of their own
            of_run = of_run or {}
            differences += [
                f"{key}.{name}: {value}, but the run has {of_run.get(name)}"
                for name, value in (current or {}).items()
                if value != of_run.get(name) and f"{key}.{name}" not in keys
            ]
        elif current != of_run:
            differences.append(f"{key}: {current}, but the run has {of_run}")
    if differences:
        raise UserError(
            f"the run in {folder} was started with other settings:\n  " + "\n  ".join(differences) + "\n"
            "Leave these out to resume it (run length, device and logging may change), or start a new run "
            "without resume="
        )
    refuse_recorded_options(folder, saved, composed)
    for name in _SECTIONS:
        if missing := {**(composed.get(name) or {})}.keys() - {**(saved.get(name) or {})}.keys():
            raise UserError(
                f"the run in {folder} is of another version of this project, which had no option "
                f"{name}.{min(missing)}: resume it with that version, or start a new run without resume="
            )
    return saved | {"resume": str(folder)}


def _as_recorded(value: object) -> Any:
    """An option in the form of a record: a single value as a list, no columns as an empty mapping."""
    if isinstance(value, dict):
        return {name: _as_recorded(part) for name, part in value.items()} or None
    return [value] if isinstance(value, str) else value


def _names(glossary: str | Sequence[str] | None) -> list[str]:
    """The names of a glossary's files, whose folders may change."""
    return [Path(p).name for p in ([glossary] if isinstance(glossary, str) else glossary or ())]


def _get(config: dict[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _set(config: dict[str, Any], key: str, value: object) -> None:
    *parents, last = key.split(".")
    for part in parents:
        config = config.setdefault(part, {})
    config[last] = value


# ------------------------------------------------------------------ resuming it


def start_or_resume(
    run: RunFolder, config: dict[str, Any], experiment: str, *, resume: bool, **facts: object
) -> Path | None:
    """Open a new run's record, or continue that of the run in the folder.

    Args:
        config: the run's configuration, for the record.
        facts: for the record: what may differ when the run is resumed (the device).

    Returns:
        The checkpoint to resume from, if there is one.

    Raises:
        UserError: if the best model so far is lost, or the run is already longer than requested.
    """
    config = config | {"resume": None}
    checkpoint = _checkpoint_to_resume(run.path) if resume else None
    if checkpoint is None:
        if resume:
            log.warning("no checkpoint to resume from: starting again from step 0")
            experiment = read_run_json(run.path)["experiment"]
        run.start(config, experiment=experiment, seed=config["seed"], **facts)
        return None
    saved, state = saved_record(run.path, checkpoint), read_state(checkpoint)
    _check_length(saved["config"]["trainer"], config["trainer"], state)
    run.resume(config, state.step, saved, **facts)
    log.info("resuming from %s", checkpoint)
    return checkpoint


def _checkpoint_to_resume(run: Path) -> Path | None:
    """The newest usable checkpoint; later ones are removed."""
    recover(run)
    checkpoint = latest_checkpoint(run)
    if checkpoint is None and any(verify(path) is None for path in checkpoints(run)):
        raise UserError(
            f"the run in {run} has complete checkpoints, but the best model so far is damaged both in its "
            "step_* folder and in best/: a resumed run would report a worse one as the best.\n"
            "  - evaluate a complete checkpoint: idiomtune evaluate model=<its folder>\n"
            f"  - train this run again from its start: remove {run}/step_*, then resume"
        )
    drop_after(run, read_state(checkpoint).step if checkpoint else 0)
    return checkpoint


def _check_length(before: dict[str, Any], trainer: dict[str, Any], state: TrainerState) -> None:
    """Refuse a length below what is trained; warn of a new one, on which the learning rates depend."""
    epochs = state.epoch + (state.step_in_epoch > 0)
    max_epochs, max_steps = trainer["max_epochs"], trainer["max_steps"]
    if epochs > max_epochs or (max_steps is not None and state.step > max_steps):
        raise UserError(
            f"the run already has {state.step} steps in {epochs} epochs, more than "
            f"trainer.max_epochs={max_epochs} trainer.max_steps={max_steps}: leave these out "
            "to keep the run's length, or raise them"
        )
    names = ("max_epochs", "max_steps")
    changed = [n for n in names if before.get(n) != trainer[n]]
    if changed and trainer["schedule"] != "constant":
        log.warning(
            "%s: from step %d on the learning rate follows the %s schedule for the new length, and before "
            "that the one for the old length: a run with the new length from its start ends differently",
            ", ".join(f"trainer.{n} was {before.get(n)}, is {trainer[n]}" for n in changed),
            state.step,
            trainer["schedule"],
        )


def check_same_data(recorded: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Check that the data files, which may have moved since the start of the run, are the same.

    Args:
        recorded: path → SHA-256, from `run.json`.
        current: the same for the present files.

    Raises:
        UserError: naming the files that differ.
    """
    before, after = (
        {(Path(path).name, sum_): path for path, sum_ in sums.items()} for sums in (recorded, current)
    )
    if differing := [path for name, path in (before | after).items() if (name in before) != (name in after)]:
        changed = ", ".join(sorted({"/".join(Path(path).parts[-2:]) for path in differing}))
        raise UserError(
            f"the data is not what the run was started with: {changed} changed. Restore "
            "it (data.idiolink, data.train, IDIOM_DATA), or start a new run without resume="
        )
