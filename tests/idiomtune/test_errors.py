"""A user error says where it is, once, and survives being sent to another process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from idiomtune.errors import UserError

PLACES: dict[str, dict[str, Any]] = {
    "data.train": {"option": "data.train"},
    "a.csv": {"file": Path("a.csv")},
    "data.train=a.csv": {"option": "data.train", "file": "a.csv"},
    "a.csv, row 3, field 'x'": {"file": "a.csv", "row": 3, "field": "x"},
    "line 3": {"row": "line 3"},
}


@pytest.mark.parametrize("place", PLACES)
def test_place_precedes_message(place: str) -> None:
    error = UserError("is empty", **PLACES[place])
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert str(copy) == f"{place}: is empty"
        named = {name: getattr(copy, name) for name in ("option", "file", "row", "field")}
        assert {name: value for name, value in named.items() if value is not None} == PLACES[place]
