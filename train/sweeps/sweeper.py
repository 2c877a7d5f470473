"""The Hydra sweeper that asks an Optuna study for trials and runs them, one after the other.

Hydra takes sweepers from packages under `hydra_plugins` alone; this one is entered under such a name when
the command line starts, so that it works from a clone and from the wheel, and no other program sees it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
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

log = logging.getLogger(__name__)

_NAME = "hydra_plugins.idiomtune.OptunaSweeper"  # conf/hydra/sweeper/optuna.yaml
_on_scores: Callable[[dict[str, float]], None] | None = None


def register() -> None:
    """Make the sweeper known to Hydra, in this process."""
    Plugins.instance().class_name_to_class[_NAME] = OptunaSweeper


def scores_reporter() -> Callable[[dict[str, float]], None] | None:
    """If the current run is a trial that may be pruned: what reports its scores."""
    return _on_scores


class OptunaSweeper(Sweeper):
    """Trials, each a job in a folder of its own. The same command elsewhere, with one storage, adds a worker.

    Args:
        options: of `conf/hydra/sweeper/optuna.yaml`; checked when the sweep starts, because Hydra would wrap
            a message about them here.
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
        if importlib.util.find_spec("optuna") is None:
            raise UserError(
                "a search needs the package optuna, which is not installed: pip install 'idiomtune[sweep]' "
                "(or optuna alone)"
            )
        if has_peers():
            raise UserError("a search starts its runs itself: start it in one process, python -m train -m …")
        self._settings: SearchSettings = check(SearchSettings, self._options, section="hydra.sweeper")
        from train.runs.folder import RunFolder
        from train.sweeps import report
        from train.sweeps.space import as_overrides, first_values, split_overrides
        from train.sweeps.study import num_finished, open_study, settle

        settings = self._settings
        params = [f"{key}={value}" for key, value in settings.params.items()]
        parser = OverridesParser.create(config_loader=self._loader)
        fixed, space = split_overrides(parser.parse_overrides([*params, *arguments]))
        self._check_scores([*fixed, *as_overrides(first_values(space))])
        folder = Path(str(self._config.hydra.sweep.dir))
        with RunFolder(folder).locked():
            asked = [
                override for override in fixed if not may_change(override.partition("=")[0].lstrip("+~"))
            ]
            study = open_study(settings, folder, asked, space)
            OmegaConf.save(self._config, folder / "multirun.yaml")
            settle(study, folder, settings.objectives, shared=settings.storage is not None)
            before = num_finished(study)
            budget = settings.n_trials - before
            to_go = max(budget, 0)
            log.info("study %s: %d trials finished, %d to go, in %s", settings.study, before, to_go, folder)
            failures: list[str] = []
            try:
                for _ in range(budget):
                    if num_finished(study) < settings.n_trials:  # other workers may have finished some
                        failures += self._run(study, study.ask(dict(space)), folder, fixed)
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

    def _run(
        self, study: optuna.Study, trial: optuna.Trial, sweep_dir: Path, fixed: Sequence[str]
    ) -> list[str]:
        """Run a trial, and tell the study how it ended; returns what went wrong."""
        from optuna.trial import TrialState

        from train.sweeps.space import as_overrides
        from train.sweeps.study import FOLDER, REASON, Outcome, describe, next_folder, outcome_of

        overrides = [*fixed, *as_overrides(trial.params)]
        try:
            run: TrainSettings = check(TrainSettings, self._composed(overrides))
        except (UserError, HydraException, OmegaConfBaseException) as error:
            outcome = Outcome(TrialState.FAIL, reason=str(error))
        else:
            number = next_folder(study, sweep_dir)
            folder = (sweep_dir / str(number)).absolute()
            trial.set_user_attr(FOLDER, str(folder))
            raised = self._launch([*overrides, f"hydra.sweep.subdir='{number}'"], number, trial, run)
            outcome = outcome_of(folder, self._settings.objectives)
            if outcome.state == TrialState.FAIL and raised is not None:
                outcome = outcome._replace(reason=str(raised))
        if outcome.reason:
            trial.set_user_attr(REASON, outcome.reason)
        study.tell(trial, outcome.values, state=outcome.state)
        what = f"trial {trial.number} ({describe(trial.params)})"
        if outcome.state == TrialState.FAIL:
            log.warning("%s failed: %s", what, outcome.reason)
            return [f"{what}: {outcome.reason}"]
        shown = ", ".join(f"{v:.4f}" for v in outcome.values or []) or outcome.reason
        log.info("%s %s: %s", what, outcome.state.name.lower(), shown)
        return []

    def _launch(
        self, overrides: Sequence[str], number: int, trial: optuna.Trial, run: TrainSettings
    ) -> Exception | None:
        """The trial's run; returns what it raised."""
        global _on_scores
        from train.sweeps.study import TrialReport

        if self._settings.pruner != "none":
            _on_scores = TrialReport(trial, self._settings.objectives or run.trainer.monitor)
        try:
            (job,) = self._launcher.launch([list(overrides)], initial_job_idx=number)
            with contextlib.redirect_stderr(io.StringIO()):  # Hydra's own words for what was raised
                _ = job.return_value
        except Exception as error:
            return error
        finally:
            _on_scores = None
        return None

    def _check_scores(self, overrides: Sequence[str]) -> None:
        """Before anything is trained: runs have the scores that are searched for."""
        settings = self._settings
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
        if settings.n_jobs != 1:
            log.warning(
                "hydra.sweeper.n_jobs does nothing: trials at once are the same command in several "
                "terminals, each with a hydra.sweep.dir= of its own and one hydra.sweeper.storage="
            )

    def _composed(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration that a job with these overrides gets."""
        config = self._loader.load_sweep_config(self._config, list(overrides))
        with read_write(config), open_dict(config):
            del config["hydra"]
        return plain(config, throw_on_missing=True)
