"""Where Hydra finds the sweeper of `idiomtune train -m +sweep=…` (conf/hydra/sweeper/optuna.yaml)."""

from idiomtune.training.sweeper import OptunaSweeper


class Study(OptunaSweeper):
    """The sweeper by a name in `hydra_plugins`, without which Hydra takes none."""
