"""A user error says where it is, once, and survives being sent to another process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from idiomtune.errors import UserError


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"option": "data.train"}, "data.train: is empty"),
        ({"file": Path("a.csv")}, "a.csv: is empty"),
        ({"option": "data.train", "file": "a.csv"}, "data.train=a.csv: is empty"),
        ({"file": "a.csv", "row": 3, "field": "x"}, "a.csv, row 3, field 'x': is empty"),
        ({"row": "line 3"}, "line 3: is empty"),
    ],
)
def test_place_precedes_message(where: dict[str, Any], expected: str) -> None:
    error = UserError("is empty", **where)
    sent = pickle.loads(pickle.dumps(error))
    for one in (error, sent):
        assert str(one) == expected
        assert {name: getattr(one, name) for name in ("option", "file", "row", "field")} == {
            name: where.get(name) for name in ("option", "file", "row", "field")
        }
