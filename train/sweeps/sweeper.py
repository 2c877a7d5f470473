"""The Hydra sweeper that asks an Optuna study for trials and has a launcher run them.

Hydra takes sweepers from packages under `hydra_plugins` alone; this one is entered under such a name when
the command line starts, so that it works from a clone and from the wheel, and no other program sees it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from train.config import TrainSettings, check
from train.config.compose import plain
from train.config.messages import no_such_score
from train.config.search import SearchSettings
from train.distributed.processes import has_peers
from train.errors import UserError
from train.io.text import printable
from train.runs.resume import may_change

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

log = logging.getLogger(__name__)

_NAME = "hydra_plugins.idiomtune.OptunaSweeper"  # conf/hydra/sweeper/optuna.yaml


def register() -> None:
    """Make the sweeper known to Hydra, in this process."""
    Plugins.instance().class_name_to_class[_NAME] = OptunaSweeper


class OptunaSweeper(Sweeper):
    """Trials in batches of `n_jobs`, each a job of the launcher in a folder of its own.

    Args:
        options: of `conf/hydra/sweeper/optuna.yaml`; checked when the sweep starts, for Hydra would wrap
            what is said about them here.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._config: DictConfig = config
        self._loader = hydra_context.config_loader
        self._launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run what is left of the study.

        Raises:
            UserError: for wrong settings; if all trials failed.
        """
        try:
            self._sweep(arguments)
        except (UserError, HydraException, OmegaConfBaseException, OSError):
            raise
        except Exception as error:  # a database that goes away, say
            path = Path(str(self._config.hydra.sweep.dir)) / "error.log"
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            raise UserError(
                f"unexpected {type(error).__name__}: {error}\nThe traceback is in {path}"
            ) from error

    def _sweep(self, arguments: list[str]) -> None:
        if importlib.util.find_spec("optuna") is None:
            raise UserError(
                "a search needs the package optuna, which is not installed: pip install 'idiomtune[sweep]' "
                "(or optuna alone)"
            )
        if has_peers():
            raise UserError(
                "a search starts its runs by itself: start it in one process, python -m train -m …; several "
                "at once are hydra/launcher='s to run"
            )
        settings: SearchSettings = check(SearchSettings, self._options, section="hydra.sweeper")
        self._warn_of_password()
        from train.runs.folder import RunFolder
        from train.sweeps import report
        from train.sweeps.space import as_overrides, first_values, split_overrides
        from train.sweeps.study import num_finished, open_study, settle

        params = [f"{key}={value}" for key, value in settings.params.items()]
        parser = OverridesParser.create(config_loader=self._loader)
        fixed, space = split_overrides(parser.parse_overrides([*params, *arguments]))
        self._check_scores(settings, [*fixed, *as_overrides(first_values(space))])
        folder = Path(str(self._config.hydra.sweep.dir))
        with RunFolder(folder).locked():
            kept = [override for override in fixed if not may_change(override.partition("=")[0].lstrip("+~"))]
            study = open_study(settings, folder, kept, space)
            OmegaConf.save(self._config, folder / "multirun.yaml")
            settle(study, folder, settings.objectives, shared=settings.storage is not None)
            before = num_finished(study)
            budget = settings.n_trials - before
            to_go = max(budget, 0)
            log.info("study %s: %d trials finished, %d to go, in %s", settings.study, before, to_go, folder)
            failures: list[str] = []
            try:
                for done in range(0, budget, settings.n_jobs):
                    size = min(settings.n_jobs, budget - done)
                    failures += self._run_batch(study, settings, folder, fixed, space, size)
            finally:
                if study.get_trials(deepcopy=False):
                    report.write(study, settings, folder)
            report.show(study, settings, folder)
            if budget <= 0:
                log.info(
                    "nothing is left to do: raise hydra.sweeper.n_trials=%d, or name a new study, "
                    "hydra.sweeper.study=<name>",
                    settings.n_trials,
                )
            elif num_finished(study) == before:
                raise UserError(f"all {len(failures)} trials failed. The first: {failures[0]}")
            elif failures:
                log.warning("%d of %d trials failed", len(failures), budget)
        print(printable(str(folder)))

    def _warn_of_password(self) -> None:
        """Hydra records the options of a sweep and of each of its jobs as they were given."""
        given = OmegaConf.to_container(self._config.hydra.sweeper, resolve=False)
        storage = given.get("storage") if isinstance(given, dict) else None
        if re.search(r"://[^/@]*:[^/@]+@", str(storage)):
            log.warning(
                "hydra.sweeper.storage holds a password, which is recorded with the sweep and each of its "
                "runs: put the address into an environment variable, as "
                "'hydra.sweeper.storage=${oc.env:STUDY_STORAGE}'"
            )

    def _run_batch(
        self,
        study: optuna.Study,
        settings: SearchSettings,
        sweep_dir: Path,
        fixed: Sequence[str],
        space: Mapping[str, BaseDistribution],
        size: int,
    ) -> list[str]:
        """Ask for trials, have them run, tell how they ended; returns what went wrong."""
        from optuna.trial import TrialState

        from train.sweeps.space import as_overrides
        from train.sweeps.study import FOLDER, Outcome, describe, next_folder, outcome_of, tell

        first = next_folder(study, sweep_dir)
        trials: list[optuna.Trial] = []
        jobs, failures = [], []
        for _ in range(size):
            trial = study.ask(dict(space))
            overrides = [*fixed, *as_overrides(trial.params)]
            try:
                check(TrainSettings, self._composed(overrides))
            except (UserError, HydraException, OmegaConfBaseException) as error:
                failures.append(f"trial {trial.number} ({describe(trial.params)}): {error}")
                log.warning("%s", failures[-1])
                tell(study, trial.number, Outcome(TrialState.FAIL, reason=str(error)))
                continue
            number = first + len(trials)
            trial.set_user_attr(FOLDER, str((sweep_dir / str(number)).absolute()))
            trials.append(trial)
            jobs.append([*overrides, f"hydra.sweep.subdir='{number}'", f"hydra.sweeper.trial={trial.number}"])
        if not jobs:
            return failures
        returned = self._launch(jobs, first)
        for trial, raised in zip(trials, returned, strict=True):
            outcome = outcome_of(Path(trial.user_attrs[FOLDER]), settings.objectives, raised)
            tell(study, trial.number, outcome)
            what = f"trial {trial.number} ({describe(trial.params)})"
            if outcome.state == TrialState.FAIL:
                failures.append(f"{what}: {outcome.reason}")
                log.warning("%s failed: %s", what, outcome.reason)
            else:
                shown = ", ".join(f"{v:.4f}" for v in outcome.values or []) or outcome.reason
                log.info("%s %s: %s", what, outcome.state.name.lower(), shown)
        return failures

    def _launch(self, jobs: Sequence[Sequence[str]], first: int) -> list[Exception | None]:
        """Have jobs run; returns what each raised."""
        try:
            returns = self._launcher.launch(jobs, initial_job_idx=first)
        except Exception as error:  # the launcher's own; what its jobs left is looked at nevertheless
            log.warning("the launcher failed: %s: %s", type(error).__name__, error)
            return [error] * len(jobs)
        return [_error(job) for job in returns]

    def _check_scores(self, settings: SearchSettings, overrides: Sequence[str]) -> None:
        """Before anything is trained: runs have the scores that are searched for."""
        run: TrainSettings = check(TrainSettings, self._composed(overrides))
        known, at_each = run.score_keys(None), run.score_keys(run.checkpoint_benchmarks)
        for key in settings.objectives or []:
            if key not in known:
                raise UserError(f"hydra.sweeper.objectives: {no_such_score(key, known)}")
            if key not in at_each and settings.pruner != "none":
                raise UserError(
                    f"hydra.sweeper.pruner={settings.pruner} goes by {key!r} at each evaluation, but "
                    "eval.benchmarks leaves it out there: add it (eval.benchmarks=all), or use "
                    "hydra.sweeper.pruner=none"
                )
        if settings.pruner != "none" and run.eval.every == "end":
            log.warning("eval.every=end leaves nothing to prune trials by before their end")

    def _composed(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration that a job with these overrides gets."""
        config = self._loader.load_sweep_config(self._config, list(overrides))
        with read_write(config), open_dict(config):
            del config["hydra"]
        return plain(config, throw_on_missing=True)


def _error(job: JobReturn) -> Exception | None:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # Hydra's own words for it
            _ = job.return_value
    except Exception as error:
        return error
    return None
