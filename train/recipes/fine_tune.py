"""One fine-tuning run: build, score untrained, train, score the best, report."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from pydantic import TypeAdapter, ValidationError

from train.config import TrainerSettings, TrainSettings
from train.distributed.device import Placement, place, start_processes
from train.distributed.processes import Processes, is_lost_peer
from train.errors import Interrupted, Pruned, UserError
from train.evaluation.suite import Scorecard, Suite
from train.factory import (
    build_benchmarks,
    build_encoder,
    build_objective,
    build_retention,
    idiom_expressions,
    own_benchmarks,
    saved_modules,
)
from train.hub.card import model_card
from train.hub.push import check_can_push, push_or_warn
from train.io.files import fingerprints, set_aside, write_json, write_jsonl, write_text
from train.io.hub import is_network_error, without_secrets
from train.reports import write_run_page
from train.reports.console import EXTERNAL_NOTE, SAMPLE_NOTE, print_comparison
from train.reports.plots import learning_curve, violins
from train.runs.folder import RunFolder
from train.runs.resume import RECORD, check_same_base, check_same_data, parsed, read_config
from train.runs.tracking import tracked
from train.training.checkpoint import (
    TrainerState,
    checkpoints,
    drop_after,
    latest_checkpoint,
    read_state,
    recover,
    verify,
)
from train.training.early_stopping import check_monitor, monitor_name, monitored_if_any
from train.training.loop import OnScores, train_loop
from train.training.regularization import check_remedies
from train.training.signals import stopped_by_sigterm

log = logging.getLogger(__name__)


def fine_tune(
    settings: TrainSettings,
    config: dict[str, Any],
    experiment: str,
    run: RunFolder,
    *,
    record_start: Callable[[Path], None] | None = None,
    on_scores: OnScores | None = None,
) -> float:
    """Train, and leave a complete run folder.

    Args:
        settings: the checked configuration.
        config: the same as plain containers, for the record.
        experiment: its name, for the record.
        run: the run folder; with `settings.resume` it already holds the run to go on with. Of several
            processes that of the main one counts.
        record_start: writes how the run was started into its folder, once that is the run's own.
        on_scores: gets the scores of each evaluation but the last.

    Returns:
        The monitored score of the best checkpoint.

    Raises:
        UserError: for everything that the user can mend; `run.json` then says `failed`.
        KeyboardInterrupt: at SIGINT or SIGTERM; `run.json` then says `interrupted`.
        Pruned: if `on_scores` does; `run.json` then says `pruned`.
    """
    placement = place(settings.device, settings.precision)
    accelerator, processes = start_processes(placement)
    run.writes = processes.is_main
    try:
        with stopped_by_sigterm(), contextlib.ExitStack() as held:

            def start() -> tuple[Path, Path | None, dict[str, Any]]:
                resume = settings.resume is not None
                held.enter_context(run.claimed(resume=resume, record_start=record_start))
                log.info(placement.reason)
                check_can_push(settings.hub, config)
                checkpoint = _start(settings, config, experiment, run, placement)
                return run.path, checkpoint, run.recorded() or {}

            run.path, checkpoint, record = processes.from_main(start)
            step = read_state(checkpoint).step if checkpoint else 0
            with _recorded_end(run), tracked(run, settings.tracking, config, experiment, step):
                state = _run(settings, run, record, placement, accelerator, processes, checkpoint, on_scores)
            run.end("finished", best_step=state.best_step, steps=state.step)
            if processes.is_main:  # the others need not wait
                write_run_page(run.path)
                if settings.hub.push is not None:
                    push_or_warn(settings.hub, run.path)
    except OSError as error:
        mended = _as_user_error(error, run.path)
        if mended is None:
            raise
        raise mended from error
    except RuntimeError as error:
        if processes.count == 1 or not is_lost_peer(error):
            raise
        raise UserError(
            f"another process of this launch ended; see its message. Go on with resume={run.path}"
        ) from error
    assert state.best_score is not None
    return state.best_score


@contextlib.contextmanager
def _recorded_end(run: RunFolder) -> Iterator[None]:
    """Whatever ends the run before its time is in `run.json`."""
    try:
        yield
    except KeyboardInterrupt as error:
        with contextlib.suppress(OSError):  # a full disk must not hide what happened
            run.end("interrupted")
        raise Interrupted(f"{error or 'stopped'}; go on with: python -m train resume={run.path}") from None
    except Pruned as error:
        run.end("pruned", reason=str(error))
        raise
    except BaseException as error:
        with contextlib.suppress(OSError):
            run.end("failed", error=f"{type(error).__name__}: {error}")
        raise


_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)  # told without a file by some libraries


def _as_user_error(error: OSError, folder: Path) -> UserError | None:
    """What the user can mend of what the system reports; None for anything else."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        _, target, reason = error.args[0][0]  # of copying a folder
        what = f"a file could not be written: {target}: {reason}"
    elif error.filename is not None or error.errno in _OF_A_DISK:
        what = f"a file could not be read or written: {error}"
    elif is_network_error(error):
        what = f"the network failed: {without_secrets(str(error))}"
    else:
        return None
    last = latest_checkpoint(folder)
    return UserError(
        f"{what}. " + (f"The last checkpoint that is whole: {last}" if last else "No checkpoint is saved yet")
    )


def _start(
    settings: TrainSettings, config: dict[str, Any], experiment: str, run: RunFolder, placement: Placement
) -> Path | None:
    """Open the run's record, or go on with it; returns the checkpoint to go on from."""
    if experiment == "default" and settings.resume is None:
        log.info("no +experiment= given: training with the defaults of conf/config.yaml")
    config = config | {"resume": None}
    where = {"device": placement.device, "precision": placement.precision, "reason": placement.reason}
    recorded = run.recorded() if settings.resume is not None else None
    if recorded:
        recover(run.path)
    checkpoint = latest_checkpoint(run.path) if recorded else None
    if recorded and not checkpoint and any(verify(path) is None for path in checkpoints(run.path)):
        raise UserError(
            f"the run in {run.path} has whole checkpoints, but the best model so far is damaged both in its "
            "step_* folder and in best/: going on would report a worse one as the best.\n"
            "  - evaluate a checkpoint that is whole: python -m train.evaluate model=<its folder>\n"
            f"  - train this run again from its start: remove {run.path}/step_*, then resume"
        )
    if recorded:
        drop_after(run.path, read_state(checkpoint).step if checkpoint else 0)
    if recorded and checkpoint:
        state = read_state(checkpoint)
        _check_length(settings.trainer, state)
        _tell_new_length(read_config(run.path)["trainer"], settings.trainer, state)
        run.go_on(config, state.step, parsed(checkpoint / RECORD), **where)
        log.info("going on from %s", checkpoint)
    else:
        if recorded:
            log.warning("no checkpoint to go on from: starting again from step 0")
            experiment = recorded["experiment"]
        run.start(config, experiment=experiment, seed=settings.seed, **where)
    return checkpoint


def _check_length(trainer: TrainerSettings, state: TrainerState) -> None:
    """A run cannot be made shorter than it is: its record would tell of another training than it had."""
    epochs = state.epoch + (state.step_in_epoch > 0)
    if epochs > trainer.max_epochs or (trainer.max_steps is not None and state.step > trainer.max_steps):
        raise UserError(
            f"the run has {state.step} steps in {epochs} epochs behind it, more than trainer.max_epochs="
            f"{trainer.max_epochs} trainer.max_steps={trainer.max_steps}: leave these out to go on as "
            "before, or give as many or more"
        )


def _tell_new_length(before: dict[str, Any], trainer: TrainerSettings, state: TrainerState) -> None:
    """The learning rate of each step depends on how long the run is to be."""
    names = ("max_epochs", "max_steps")
    changed = [n for n in names if before.get(n) != getattr(trainer, n)]
    if changed and trainer.schedule != "constant":
        log.warning(
            "%s: from step %d on the learning rate follows the %s schedule of this length, up to there it "
            "followed that of the old one: a run that has this length from its start ends otherwise",
            *(", ".join(f"trainer.{n} was {before.get(n)}, is {getattr(trainer, n)}" for n in changed),),
            *(state.step, trainer.schedule),
        )


def _run(
    settings: TrainSettings,
    run: RunFolder,
    record: dict[str, Any],
    placement: Placement,
    accelerator: Accelerator,
    processes: Processes,
    checkpoint: Path | None,
    on_scores: OnScores | None,
) -> TrainerState:
    with accelerator.local_main_process_first():  # what must be downloaded is downloaded once
        objective = build_objective(settings)
        check_remedies(settings.retain, objective)
        benchmarks, not_scored = build_benchmarks(settings)
    check_monitor(settings.trainer, not_scored)
    untrained = Suite(benchmarks, processes)
    suite = Suite([*benchmarks, *own_benchmarks(settings, objective.modules)], processes)
    expressions, naming = idiom_expressions(settings.model, objective)
    files = [*objective.files, *naming, *(path for b in suite.benchmarks for path in b.files)]
    data = fingerprints(files)
    if checkpoint is not None:
        check_same_data(record.get("data", {}), data)
    run.update(data=data, sample=settings.data.sample, not_scored=not_scored, trained_on=objective.describe())
    log.info("objective %s: %s", settings.objective.name, objective.describe())
    if processes.count > 1:
        log.info("%d processes share each step's texts; the batch is the same as in one", processes.count)

    baseline = _baseline(settings, run, untrained, placement, accelerator, processes)
    retention = build_retention(settings, placement, objective, checkpoint, expressions, processes)
    encoder = retention.encoder
    objective.modules.to(placement.device)
    if retention.base is not None:
        if checkpoint is not None:
            check_same_base(record.get("base_weights"), retention.base)
        run.update(base_weights=retention.base)
    if encoder.idiom_tokens is not None:
        for line in encoder.idiom_tokens.describe(objective.idiom_sentences):
            log.info(line)
    for option, text in settings.objective.special_texts.items():
        encoder.check_special(text, option)
    has_tokens = encoder.idiom_tokens is not None
    state = train_loop(
        retention,
        objective,
        suite,
        accelerator,
        processes,
        run,
        settings.trainer,
        settings.eval,
        seed=settings.seed,
        card=processes.from_main(lambda: _card(settings, run, has_tokens)),
        checkpoint=checkpoint,
        on_saved=_push_each(settings) if settings.hub.push == "every" else None,
        on_scores=on_scores,
    )
    # What is reported is what was saved: the folder, loaded as a user loads it.
    saved = run.path / "best"
    own_suite = own_benchmarks(settings, saved_modules(str(saved), placement))
    best = Suite([*benchmarks, *own_suite], processes).run(build_encoder(settings.model, placement, saved))
    names = [benchmark.name for benchmark in benchmarks]

    def report() -> None:
        _report(settings, record["experiment"], run, state, best, baseline, objective.describe(), names)
        write_text(saved / "README.md", _card(settings, run, has_tokens, with_scores=True))

    processes.from_main(report)
    return state


def _card(settings: TrainSettings, run: RunFolder, has_tokens: bool, *, with_scores: bool = False) -> str:
    path = run.path / "scores.json"
    scores = json.loads(path.read_text(encoding="utf-8")) if with_scores else None
    return model_card(run.path, scores=scores, licence=settings.hub.license, idiom_tokens=has_tokens)


def _push_each(settings: TrainSettings) -> Callable[[Path], None]:
    """Pushes a checkpoint to a branch of its own name."""
    return lambda saved: push_or_warn(settings.hub, saved, saved.name)


def _baseline(
    settings: TrainSettings,
    run: RunFolder,
    suite: Suite,
    placement: Placement,
    accelerator: Accelerator,
    processes: Processes,
) -> dict[str, float]:
    """Scores of the untrained model; kept in `baseline.json` for when the run is resumed."""
    path = run.path / "baseline.json"

    def read() -> dict[str, float] | None:
        if not path.is_file():
            return None
        try:
            return TypeAdapter(dict[str, float]).validate_json(path.read_bytes())
        except ValidationError:
            aside = set_aside(path)
            log.warning("%s is damaged, kept as %s: scoring the untrained model again", path, aside.name)
            return None

    known = processes.from_main(read)
    if known is not None:
        return known
    with accelerator.local_main_process_first():
        encoder = build_encoder(settings.model, placement)
    scorecard = suite.run(encoder)
    score = monitored_if_any(scorecard.scores, settings.trainer)
    log.info(
        "untrained: %s %s (%d texts scored in %.1f s)",
        *(monitor_name(settings.trainer), "none" if score is None else f"{score:.4f}"),
        *(scorecard.num_texts, scorecard.seconds),
    )

    def write() -> None:
        if settings.eval.per_query:  # before the file that says that this is done
            _write_per_query(run.path / "per_query_baseline", scorecard)
        write_json(path, scorecard.scores)

    processes.from_main(write)
    return scorecard.scores


def _write_per_query(folder: Path, scorecard: Scorecard) -> None:
    for name, records in scorecard.per_query.items():
        write_jsonl(folder / f"{name}.jsonl", records)


def _report(
    settings: TrainSettings,
    experiment: str,
    run: RunFolder,
    state: TrainerState,
    best: Scorecard,
    baseline: dict[str, float],
    trained_on: str,
    suite_names: list[str],
) -> None:
    """`scores.json`, plots, the table, and in words whether training helped."""
    notes = [SAMPLE_NOTE] if settings.data.sample else []
    notes += [EXTERNAL_NOTE.format(extra=settings.data.extra)] if settings.data.extra else []
    write_json(
        run.path / "scores.json",
        {
            "scores": best.scores,
            "baseline": baseline,
            "meta": {
                "checkpoint": f"step_{state.best_step}",
                "model": settings.model.path,
                "seed": settings.seed,
                "monitor": settings.trainer.monitor,
                "data": "; ".join([", ".join(suite_names), *notes]),
                "not_scored": (run.recorded() or {}).get("not_scored", {}),
                "trained_on": trained_on,
                "notes": best.notes,
                "files": (run.recorded() or {}).get("data", {}),
                "num_texts": best.num_texts,
                "seconds": round(best.seconds, 3),
                "encoder_seconds": round(best.encoder_seconds, 3),
            },
        },
    )
    for tracker in run.trackers:
        tracker.summarise(best.scores)
    if settings.eval.per_query:
        _write_per_query(run.path / "per_query", best)
    if settings.eval.predictions:
        for name, text in best.predictions.items():
            write_text(run.path / "predictions" / name, text)
    learning_curve(
        run.metrics(),
        baseline,
        [k for k in best.scores if k.endswith(("/ndcg@10", "/spearman")) and "/bm25" not in k],
        state.best_step,
        f"{experiment}, seed {settings.seed}",
        run.path / "plots" / "learning_curve.png",
    )
    for name, distributions in best.plots.items():
        violins(distributions, run.path / "plots" / f"{name}.png")
    for note in best.notes:
        log.info("%s", note)
    title = f"untrained → best checkpoint (step {state.best_step})"
    print_comparison(baseline, best.scores, ", ".join([title, *notes]))
    before, after = (monitored_if_any(scores, settings.trainer) for scores in (baseline, best.scores))
    if before is None or after is None:  # what is scored is there since training alone
        return
    verdict = "beats" if after > before else "does NOT beat"
    log.info("the best trained checkpoint %s the untrained model: %.4f, was %.4f", verdict, after, before)
