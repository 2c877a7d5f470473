"""YAML, read by libyaml where PyYAML was built with it: the same values, many times as fast."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 100


def parse_yaml(text: str) -> Any:
    """What `yaml.safe_load` gives.

    Raises:
        yaml.YAMLError: if it is not valid YAML, or is nested so deep that building it would end the process.
    """
    depth = 0
    for event in yaml.parse(text, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise yaml.YAMLError("nested too deep")
    return yaml.load(text, _LOADER)  # a safe loader: plain values alone
