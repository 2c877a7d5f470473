"""The Hydra sweeper that runs the trials of a search, see :mod:`idiomtune.training.search`.

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
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from idiomtune.config import TrainSettings, check
from idiomtune.config.compose import explained, plain
from idiomtune.config.sections import SearchSettings
from idiomtune.config.validation import no_such_score
from idiomtune.errors import UserError
from idiomtune.io.files import printable
from idiomtune.io.processes import has_peers

log = logging.getLogger(__name__)

_NAME = "hydra_plugins.idiomtune.OptunaSweeper"  # conf/hydra/sweeper/optuna.yaml
OnScores = Callable[[dict[str, float]], None]
_on_scores: OnScores | None = None


def register() -> None:
    """Make the sweeper known to Hydra, in this process."""
    Plugins.instance().class_name_to_class[_NAME] = OptunaSweeper


def scores_reporter() -> OnScores | None:
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
                "(or only optuna)"
            )
        if has_peers():
            raise UserError("a search starts its runs itself: start it in one process, idiomtune train -m …")
        settings: SearchSettings = check(SearchSettings, self._options, section="hydra.sweeper")
        from idiomtune.training.run_folder import RunFolder
        from idiomtune.training.search import Search, example

        params = [f"{key}={value}" for key, value in settings.params.items()]
        parser = OverridesParser.create(config_loader=self._loader)
        folder = Path(str(self._config.hydra.sweep.dir))
        search = Search(settings, folder, parser.parse_overrides([*params, *arguments]))
        self._check_scores(settings, [*search.fixed, *example(search.space)])
        with RunFolder(folder).locked():
            search.open()
            OmegaConf.save(self._config, folder / "multirun.yaml")
            search.run(self._settings_of, self._launch)
        print(printable(str(folder)))

    def _settings_of(self, overrides: Sequence[str]) -> TrainSettings:
        """The settings that a job with these overrides gets.

        Raises:
            UserError: if they are wrong.
        """
        try:
            config = self._loader.load_sweep_config(self._config, list(overrides))
            with read_write(config), open_dict(config):
                del config["hydra"]
            settings: TrainSettings = check(TrainSettings, plain(config, throw_on_missing=True))
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(explained(error)) from error
        return settings

    def _launch(self, overrides: Sequence[str], number: int, on_scores: OnScores | None) -> Exception | None:
        """Run a job; returns what it raised."""
        global _on_scores
        _on_scores = on_scores
        try:
            (job,) = self._launcher.launch([list(overrides)], initial_job_idx=number)
            with contextlib.redirect_stderr(io.StringIO()):  # Hydra's own words for what was raised
                _ = job.return_value
        except Exception as error:
            return error
        finally:
            _on_scores = None
        return None

    def _check_scores(self, settings: SearchSettings, overrides: Sequence[str]) -> None:
        """Check, before anything is trained, that runs have the scores that are searched for.

        Raises:
            UserError: if not.
        """
        run = self._settings_of(overrides)
        known, at_each = run.score_keys(None), run.score_keys(run.checkpoint_benchmarks)
        for key in settings.objectives or []:
            if key not in known:
                raise UserError(no_such_score(key, known), option="hydra.sweeper.objectives")
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
                "hydra.sweeper.n_jobs has no effect: for parallel trials, start the same command "
                "in several terminals, each with its own hydra.sweep.dir= and all with "
                "the same hydra.sweeper.storage="
            )
