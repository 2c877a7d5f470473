"""Imports of the heavy libraries, without looking for garbage in between."""

from __future__ import annotations

import gc
import sys

import pytest
import torch  # noqa: F401  as in all programs that have begun

from train.cli.quick_imports import quick_imports


def test_no_garbage_is_collected_while_libraries_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """And afterwards it is again, also where an import fails; a later run of the process imports nothing."""
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("once"))
    with quick_imports():
        assert gc.isenabled()
    monkeypatch.delitem(sys.modules, "torch")
    with quick_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), quick_imports():
        raise ImportError
    assert gc.isenabled()
    assert frozen == ["once"]
