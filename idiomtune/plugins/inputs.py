"""What benchmarks and objectives are built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from idiomtune.plugins.dataset import DataSettings, UserData
from idiomtune.plugins.models import ModelSettings


@dataclass(frozen=True)
class RunInputs:
    """The settings of a program that its benchmarks and its objective need.

    Attributes:
        data: which data, and where it is.
        model: that is trained or scored.
        device, precision: as in the settings, such as `auto`.
        scored: benchmark → the splits that are scored, of each chosen benchmark.
        own_data: part of a mixture ("" without a mixture) → the user's own data, if it is read.
        seed: of a training, as the following.
        batch_size: anchors of an optimizer step.
        accumulation: micro-steps of a step.
        max_epochs: at most.
        is_resumed: whether the run goes on from a checkpoint.
    """

    data: DataSettings
    model: ModelSettings
    device: str
    precision: str
    scored: Mapping[str, Sequence[str]]
    own_data: Mapping[str, UserData] = field(default_factory=dict)
    seed: int = 0
    batch_size: int = 1
    accumulation: int = 1
    max_epochs: int = 1
    is_resumed: bool = False

    def splits(self, benchmark: str) -> Sequence[str]:
        """The splits that a benchmark is scored on; none if it is not chosen."""
        return self.scored.get(benchmark, ())
