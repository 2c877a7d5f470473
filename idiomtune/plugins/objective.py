"""The declaration of an objective."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from idiomtune.plugins.dataset import DataSettings, UserData
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import ConfigSection
from idiomtune.plugins.score import Score


class ObjectiveOptions(ConfigSection, ABC):
    """The options of an objective, in `conf/objective/<name>.yaml`; `name` is among them."""

    name: str

    @property
    def trains_head(self) -> bool:
        """Whether it trains anything in addition to the encoder."""
        return False

    @property
    def special_tokens(self) -> Sequence[str]:
        """Those of the options `mask` and `separator` that texts contain; None = the model's own token."""
        return ()

    @property
    def fold_split(self) -> str | None:
        """The split that it trains on, if that is a fold of cross-validation."""
        return None

    def splits(self, benchmark: str) -> list[str]:
        """Splits that it adds to a benchmark, as a mixture its parts."""
        del benchmark
        return []

    def possible_scores(self, splits: Callable[[str], Sequence[str]]) -> list[Score]:
        """Scores of what it trains in addition to the encoder.

        Args:
            splits: benchmark → those that are scored; none if the benchmark is left out.
        """
        del splits
        return []

    def own_data(self, data: DataSettings) -> Mapping[str, UserData]:
        """Part of a mixture ("" without a mixture) → the user's own data that it is trained on."""
        del data
        return {}

    def build(self, inputs: RunInputs) -> Any:
        """The :class:`idiomtune.objectives.Objective`, its data read and checked.

        Raises:
            UserError: if the data is wrong, or does not fit the options.
        """
        raise NotImplementedError

    def check_with(self, inputs: RunInputs, section: str = "objective") -> None:
        """Check the options against the rest of the configuration.

        Args:
            section: where the options are; they may be those of a mixture's part.

        Raises:
            ValueError: saying which options do not.
        """

    def check_files(self, data: DataSettings) -> None:
        """Check the data files quickly, before heavy imports.

        Raises:
            UserError: naming the file or option.
        """


@dataclass(frozen=True)
class ObjectiveType:
    """An objective: its options, how it is built, and what it trains on.

    Attributes:
        name: in `objective.name`.
        options: the class of its section.
        build: (inputs, options) → the objective, its data read and checked; by default the method of
            `options`. A function, or "module:function" if the module is heavy.
        datasets: a run's section `objective` → names of the data sets that it trains on, for the licence and
            the card. None: nothing is known of them, and no licence is concluded.
        card: the model card's sentence about what is trained in addition to the encoder.
        saved: of what its modules write into a model's folder (:class:`idiomtune.objectives.SavesFiles`), the
            files; a folder that has the first holds such modules.
        load: "module:function", (folder, :class:`idiomtune.encoder.device.DeviceAndPrecision`) → those
            modules again.
    """

    name: str
    options: type[ObjectiveOptions]
    build: Callable[[RunInputs, Any], Any] | str = lambda inputs, options: options.build(inputs)
    datasets: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    card: str = ""
    saved: Sequence[str] = ()
    load: str = ""
