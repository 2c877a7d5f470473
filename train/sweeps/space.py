"""The search space: Hydra's sweep notation as Optuna's distributions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from train.errors import UserError


def split_overrides(
    overrides: Iterable[Override],
) -> tuple[list[str], dict[str, BaseDistribution]]:
    """What is fixed, as overrides, and what is searched; of two for one option the later counts.

    Raises:
        UserError: if nothing is searched, or a range is not one.
    """
    fixed: dict[str, str] = {}
    space: dict[str, BaseDistribution] = {}
    for override in overrides:
        key = override.get_key_element()
        name = key.lstrip("+")
        for known in (fixed, space):
            for other in [k for k in known if k.lstrip("+") == name]:
                del known[other]
        if override.is_sweep_override():
            space[key] = _distribution(override)
        else:
            fixed[key] = str(override.input_line)
    if not space:
        raise UserError(
            "nothing is searched: name options in hydra.sweeper.params (a file in conf/sweep), or on the "
            "command line as 'trainer.learning_rate=tag(log,interval(1e-5,1e-4))'"
        )
    return list(fixed.values()), space


def as_overrides(params: Mapping[str, Any]) -> list[str]:
    """A trial's values on Hydra's command line."""
    return [f"{key}={value}" for key, value in params.items()]


def first_values(space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Some value of each parameter, to check a configuration with."""
    return {
        key: one.choices[0] if isinstance(one, CategoricalDistribution) else one.low  # type: ignore[attr-defined]
        for key, one in space.items()
    }


def _distribution(override: Override) -> BaseDistribution:
    value = override.value()
    try:
        if isinstance(value, IntervalSweep):
            assert value.start is not None
            assert value.end is not None
            log = "log" in value.tags
            if isinstance(value.start, int) and isinstance(value.end, int):
                return IntDistribution(value.start, value.end, log=log)
            return FloatDistribution(float(value.start), float(value.end), log=log)
        if isinstance(value, RangeSweep):
            points = [p if isinstance(p, int) else float(p) for p in value.range()]
            step = points[1] - points[0] if len(points) > 1 else 1
            low, high = min(points), max(points)
            if all(isinstance(p, int) for p in points):
                return IntDistribution(int(low), int(high), step=int(abs(step)))
            return FloatDistribution(low, high, step=round(abs(step), 12))
        return CategoricalDistribution(list(override.sweep_string_iterator()))
    except ValueError as error:
        raise UserError(f"{override.input_line}: {error}") from None
