"""Whatever an option is given: it is accepted with sense, or refused by its full name."""

import copy
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

from idiomtune.config import EvaluateSettings, TrainSettings, validate
from idiomtune.config.words import overrides_of
from idiomtune.errors import UserError
from tests.fuzzing import FUZZED, TEXTS, VALUES
from tests.tiny_runs import composed

pytestmark = pytest.mark.slow

CONFIGS = ["idiolink_ft", "adaptive_triplet", "admire_experts", "evaluate"]
MAY_BE_EMPTY = {
    *("also", "glossary", "extensions", "query_modes", "bm25_modes", "dimensions", "no_decay"),
    *("plain_usages", "papers", "columns", "positive_weights"),
}
MAY_BE_BLANK = {"query_prompt", "document_prompt", "separator"}
MAY_BE_ZERO = {
    *("glossary_dropout", "seed", "fold", "num_hard", "num_soft", "single_positive_every"),
    *("trained_layers", "warmup_ratio", "warmup_steps", "weight_decay", "hard_weight", "soft_weight"),
    *("idiomatic", "simplification", "sense", "mining_margin", "margin", "triplet_weight", "property_weight"),
    *("correct_weight", "rank_weight", "sense_weight", "sum_weight", "meaning_weight", "min_delta"),
    *("weight_interpolation", "distillation", "dropout", "range_min"),
}


@lru_cache
def config_of(name: str) -> tuple[type[TrainSettings] | type[EvaluateSettings], dict[str, Any]]:
    if name == "evaluate":
        return EvaluateSettings, composed("evaluate")
    return TrainSettings, composed("train", f"+experiment={name}")


def leaves(config: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)


def changed(config: dict[str, Any], option: tuple[str, ...], value: Any) -> dict[str, Any]:
    config = copy.deepcopy(config)
    section = config
    for part in option[:-1]:
        section = section[part]
    section[option[-1]] = value
    return config


def assert_sensible(option: tuple[str, ...], value: Any) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        assert math.isfinite(value)
        assert 0 <= value < 2**64
        assert value or option[-1] in MAY_BE_ZERO
    elif isinstance(value, str):
        assert value.strip() or option[-1] in MAY_BE_BLANK
    elif isinstance(value, list):
        assert value or option[-1] in MAY_BE_EMPTY
        assert all(isinstance(item, str) and item.strip() for item in value)
    else:
        assert value == {}
        assert option[-1] in MAY_BE_EMPTY


def refusal(kind: type[TrainSettings] | type[EvaluateSettings], config: dict[str, Any]) -> str | None:
    try:
        validate(kind, config)
    except UserError as error:
        return str(error)
    return None


def is_of_several(option: tuple[str, ...], message: str) -> bool:
    """Whether the message is of a check of several options, and names this one by its last name at least."""
    if "cross-validation needs" in message or "trainer.monitor: this run has no score" in message:
        return True
    section = ".".join(option[:-1])
    return option[-1] in message and any(line.startswith(f"  {section}:") for line in message.splitlines())


@pytest.mark.parametrize("name", CONFIGS)
def test_every_option_refuses_what_makes_no_sense(name: str) -> None:
    """All options, each with every odd value; what is accepted must make sense, what is refused is named."""
    kind, config = config_of(name)
    seen = {leaf for before in CONFIGS[: CONFIGS.index(name)] for leaf in leaves(config_of(before)[1])}
    for option in leaves(config):
        for value in () if option in seen else VALUES:
            message = refusal(kind, changed(config, option, value))
            if message is None:
                assert_sensible(option, value)
            else:
                is_named = ".".join(option) in message or is_of_several(option, message)
                assert is_named, (option, value, message)


def test_sections_of_the_wrong_shape_are_named() -> None:
    kind, config = config_of("idiolink_ft")
    for section in ("model", "benchmark", "objective"):
        values: list[Any] = [None, 3, [config[section]]]
        for value in values:
            assert section in (refusal(kind, changed(config, (section,), value)) or "")
        without = {key: value for key, value in config.items() if key != section}
        assert f"{section}: " in (refusal(kind, without) or "")


@FUZZED
@given(TEXTS, st.sampled_from(["model.path", "data.idiolink", "output"]))
@example("a\\'b\\\\'", "output")
def test_hydra_reads_back_the_path_that_was_given(text: str, key: str) -> None:
    path = "in/" + text.replace("\x00", "").rstrip("'\"")  # those around a value are the shell's
    for given_as, place in ((f"{key}={path}", 0), (f"model={path}", 1)):
        rewritten = overrides_of([given_as], "train", "")
        assert OverridesParser.create().parse_override(rewritten[place]).value() == path
