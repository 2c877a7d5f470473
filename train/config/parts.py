"""The parts of a mixture, with every option that they do not name filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from train.errors import UserError

Compose = Callable[..., Mapping[str, Any]]  # (override) → the configuration that it makes


def with_parts_filled(config: dict[str, Any], compose: Compose) -> dict[str, Any]:
    """The configuration, each part of a mixture as its experiment or objective has it, and as it says.

    Of an experiment the objective is taken with its options; what it says of the model, the trainer and the
    benchmarks is not, since a run has one of each.

    Args:
        config: the composed configuration; without a mixture it comes back as it is.
        compose: raises UserError for a choice that there is not.

    Raises:
        UserError: naming the part.
    """
    objective = config.get("objective")
    if not isinstance(objective, dict) or objective.get("name") != "mixture":
        return config
    parts, each = objective.get("parts"), objective.get("each_part")
    if not isinstance(parts, dict) or not isinstance(each, dict):
        return config  # refused where types are checked
    filled, models = {}, {}
    for key, given in parts.items():
        name = str(key)
        filled[name], models[name] = _filled(f"objective.parts.{name}", given, each, compose)
    _check_idiom_tokens(config, filled, models)
    return config | {"objective": objective | {"parts": filled}}


def _filled(
    place: str, given: Any, each: dict[str, Any], compose: Compose
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """A part, and the section `model` of its experiment."""
    if not isinstance(given, dict):
        raise UserError(
            f"{place}={given}: a part has options, such as {place}.data.train=<file> or "
            f"{place}.experiment=<name>"
        )
    experiment, named = given.get("experiment"), given.get("objective")
    override = f"+experiment={experiment}" if experiment else f"objective={named or each.get('objective')}"
    try:
        base = compose(override)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    objective = base["objective"]["name"]
    if objective == "mixture":
        raise UserError(f"{place}: {override.lstrip('+')} is a mixture; give its parts beside this one")
    if experiment and named not in (None, objective):
        raise UserError(
            f"{place}: experiment={experiment} has the objective {objective}, not {named}: give one of them"
        )
    options = _merged(base["objective"], given.get("options") or {})
    part = _merged(each, given) | {"experiment": experiment, "objective": objective, "options": options}
    return part, base["model"] if experiment else {}


def _merged(base: Any, given: Any) -> Any:
    """`given` over `base`, section by section; where `base` has an empty section, any names may be given."""
    if not isinstance(base, dict) or not isinstance(given, dict):
        return given
    return base | {key: _merged(base.get(key), value) for key, value in given.items()}


def _check_idiom_tokens(
    config: dict[str, Any], parts: Mapping[str, dict[str, Any]], models: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check that the model has the idiom tokens that experiments among the parts train."""
    needed = {
        name: model["idiom_tokens_start"] for name, model in models.items() if model.get("idiom_tokens")
    }
    chosen = (config.get("model") or {}).get("idiom_tokens")
    of_one = chosen if isinstance(chosen, str) and chosen.startswith("train/") else None
    for name in needed:
        if chosen is None or (of_one and of_one != f"train/{name}"):
            part = parts[name]
            raise UserError(
                f"objective.parts.{name}: experiment={part['experiment']} reads each of its idioms as a "
                f"token of its own, but model.idiom_tokens={'null' if chosen is None else chosen}: give "
                f"model.idiom_tokens={'train' if len(needed) > 1 else f'train/{name}'}, or name its "
                "objective alone, which does without: "
                f"objective.parts.{name}.objective={part['objective']}"
            )
    if len(set(needed.values())) > 1:
        ways = ", ".join(f"objective.parts.{name}: {start}" for name, start in needed.items())
        raise UserError(
            f"model.idiom_tokens_start: experiments among the parts need different tokens ({ways}), and a "
            "model has one kind: leave one of them out, or name its objective instead"
        )
