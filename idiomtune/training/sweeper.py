"""Searches over hyperparameters: a Hydra sweeper that runs the trials of an Optuna study.

Optuna draws, prunes and stores. Hydra finds it by `hydra_plugins/idiomtune.py`.
"""

from __future__ import annotations

import io
import logging
import shlex
from collections.abc import Mapping
from contextlib import redirect_stderr
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext
from omegaconf import DictConfig

from idiomtune.config import TrainSettings, validate
from idiomtune.config.compose import fill
from idiomtune.config.sections import SearchSettings
from idiomtune.errors import Pruned, UserError
from idiomtune.io.files import printable
from idiomtune.io.processes import has_peers
from idiomtune.training.resume import may_change
from idiomtune.training.run_folder import RunFolder

if TYPE_CHECKING:  # the command line must not wait for it
    import optuna

    from idiomtune.training.step import OnScore

log = logging.getLogger(__name__)

_on_score: OnScore | None = None


def score_reporter() -> OnScore | None:
    """A function that reports the current trial's score, if the trial may be pruned; else None."""
    return _on_score


class OptunaSweeper(Sweeper):
    """Trials, each a job in a folder of its own. The same command elsewhere, with one storage, adds a worker.

    Args:
        options: of `conf/hydra/sweeper/optuna.yaml`; checked when the sweep starts, because Hydra would wrap
            a message about them here.
    """

    def __init__(self, **options: object) -> None:
        self._options = options

    def setup(self, *, config: DictConfig, hydra_context: HydraContext, **task: Any) -> None:
        self._config, self._loader = config, hydra_context.config_loader
        launcher = Plugins.instance().instantiate_launcher
        self._launcher = launcher(config=config, hydra_context=hydra_context, **task)

    def sweep(self, arguments: list[str]) -> None:
        """Run the rest of the study, and show its results.

        Raises:
            UserError: for wrong settings; if all trials failed.
        """
        if has_peers():
            raise UserError("a search starts its runs itself: start it in one process, idiomtune train -m …")
        self._settings = validate(SearchSettings, self._options, section="hydra.sweeper")
        self._folder = Path(str(self._config.hydra.sweep.dir)).absolute()
        parser = OverridesParser.create(config_loader=self._loader)
        searched = parser.parse_overrides([*_overrides(self._settings.params), *arguments])
        self._fixed, self._space = split_overrides(searched)
        firsts = {key: getattr(d, "choices", [getattr(d, "low", "")])[0] for key, d in self._space.items()}
        config = self._loader.load_sweep_config(self._config, [*self._fixed, *_overrides(firsts)])
        validate(TrainSettings, fill(config).options)  # before any is trained
        with RunFolder(self._folder).lock():
            study = self._open()
            self._run(study)
        print(study.trials_dataframe(("number", "state", "value", "params")).to_string(index=False))
        for best in study.best_trials:
            print("the best:", shlex.join(_overrides(best.params)))
        print(printable(str(self._folder)))

    def _open(self) -> optuna.Study:
        """A new study, or the one of this name to go on with.

        Raises:
            UserError: if that one asks another question, or its storage cannot be read.
        """
        import optuna.storages.journal

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        settings = self._settings
        address = settings.storage or f"sqlite:///{self._folder / 'study.db'}?timeout=60"
        storage: str | optuna.storages.JournalStorage = address
        try:
            if address.startswith("journal:"):
                file = optuna.storages.journal.JournalFileBackend(address.removeprefix("journal:"))
                storage = optuna.storages.JournalStorage(file)
            study = optuna.create_study(
                study_name=settings.study, storage=storage, direction="maximize", load_if_exists=True
            )
            num_trials = len(study.trials)
            if not num_trials and any(path.name.isdigit() for path in self._folder.iterdir()):
                raise ValueError(f"it has no trial, but {self._folder} has runs of one")
        except Exception as error:  # of whatever database; a file that is cut off shows it in many ways
            cause = "" if "@" in address else f"{address}: {error}: "  # a password may hold any sign
            raise UserError(
                f"the study's storage cannot be opened: {cause}{type(error).__name__}. Restore it, or "
                "start another study in a new folder, hydra.sweep.dir=, with its own storage",
                option="hydra.sweeper.storage",
            ) from error
        # The seed moves on with the study: one that goes on must not draw the same trials again.
        sampling = {"seed": settings.seed + num_trials} | settings.sampler_options
        for part, options in (("sampler", sampling), ("pruner", settings.pruner_options)):
            try:
                setattr(study, part, getattr(getattr(optuna, f"{part}s"), getattr(settings, part))(**options))
            except (AttributeError, TypeError, ValueError) as error:
                raise UserError(str(error), option=f"hydra.sweeper.{part}") from None
        question = {
            "overrides": sorted(o for o in self._fixed if not may_change(o.partition("=")[0].lstrip("+~"))),
            "space": {key: repr(distribution) for key, distribution in sorted(self._space.items())},
        }
        is_new = not num_trials and study.direction.name == "MAXIMIZE"  # or else somebody else's
        if (recorded := study.user_attrs.get("question", question if is_new else None)) != question:
            raise UserError(
                f"the study {settings.study!r} was started with other settings: {recorded}, not {question}.\n"
                "Go on with it by the same command, or name another: hydra.sweeper.study=, in a new folder"
            )
        study.set_user_attr("question", question)
        return study

    def _run(self, study: optuna.Study) -> None:
        """Run the trials that are left.

        Raises:
            UserError: if all of them failed.
        """
        from optuna.trial import FrozenTrial, TrialState

        def num_finished() -> int:
            return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))

        for left in study.get_trials(states=[TrialState.RUNNING]):  # by a search that was killed
            if self._settings.storage is None or left.user_attrs.get("search") == str(self._folder):
                study.tell(left.number, state=TrialState.FAIL)
                study.enqueue_trial(left.params)
        before, most, done = num_finished(), self._settings.n_trials, list[FrozenTrial]()
        log.info("study %s: %d of hydra.sweeper.n_trials=%d trials finished", study.study_name, before, most)
        for _ in range(before, most):
            if num_finished() >= most:  # by other workers
                break
            trial, value, state = study.ask(self._space), None, None
            trial.set_user_attr("search", str(self._folder))
            try:
                value = self._value(trial)
            except Exception as error:
                state = TrialState.PRUNED if isinstance(error, Pruned) else TrialState.FAIL
                trial.set_user_attr("reason", str(error))
            done.append(study.tell(trial, value, state))
            outcome = done[-1].value or trial.user_attrs
            log.info("trial %d %s: %s", trial.number, done[-1].state.name.lower(), outcome)
        if done and num_finished() == before:  # of no worker
            first = done[0]
            raise UserError(f"all {len(done)} trials failed. The first, {first.number}: {first.user_attrs}")

    def _value(self, trial: optuna.Trial) -> float:
        """Run a trial's job; the monitored score of its best checkpoint. Raises what the run does."""
        global _on_score
        _on_score = reporter(trial)
        overrides = [*self._fixed, *_overrides(trial.params), f"hydra.sweep.subdir='{trial.number}'"]
        try:
            (job,) = self._launcher.launch([overrides], initial_job_idx=trial.number)
        finally:
            _on_score = None
        with redirect_stderr(io.StringIO()):  # where Hydra prints an error, which it raises here, too
            return float(job.return_value)


def split_overrides(overrides: list[Override]) -> tuple[list[str], dict[str, Any]]:
    """Fixed overrides, and searched options; the later of two for one option counts.

    Raises:
        UserError: if nothing is searched, or a range is not one.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    last = {override.get_key_element().lstrip("+"): override for override in overrides}.values()
    space: dict[str, Any] = {}
    for override in (override for override in last if override.is_sweep_override()):
        key, value = override.get_key_element(), override.value()
        try:
            if isinstance(value, IntervalSweep):
                is_whole = {type(value.start), type(value.end)} == {int}
                kind: Any = IntDistribution if is_whole else FloatDistribution
                space[key] = kind(value.start, value.end, log="log" in value.tags)
            else:
                space[key] = CategoricalDistribution([*override.sweep_string_iterator()])
        except ValueError as error:
            raise UserError(f"{override.input_line}: {error}") from None
    if not space:
        raise UserError(
            "nothing is searched: name options in hydra.sweeper.params (a file in conf/sweep), or on the "
            "command line as 'trainer.learning_rate=tag(log,interval(1e-5,1e-4))'"
        )
    return [str(override.input_line) for override in last if not override.is_sweep_override()], space


def _overrides(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def reporter(trial: optuna.Trial) -> OnScore:
    """Reports the monitored score to a trial, after each evaluation; the run may then be given up.

    A study that cannot be reached is a warning: the run goes on. A score that is not finite only counts.

    Returns:
        What raises :class:`~idiomtune.errors.Pruned` if other trials were better after as many evaluations.
    """
    evaluations = count(1)

    def report(score: float | None) -> None:
        number, is_hopeless = next(evaluations), False
        try:
            if score is not None:
                trial.report(score, number)
                is_hopeless = trial.should_prune()
        except Exception as error:
            log.warning("the run goes on without its study: %s: %s", type(error).__name__, error)
        if is_hopeless:
            raise Pruned(f"{score:.4f} after {number} evaluations, where others were better")

    return report
