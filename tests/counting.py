"""How much work a call is: the lines of this project that it runs, which no other program changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import idiomtune

_OURS = str(Path(idiomtune.__file__).parent)


def lines_run(call: Callable[[], object], *, without_caches_of: ModuleType) -> int:
    """The lines of the package that a call runs, once for each time.

    Args:
        without_caches_of: a module whose `lru_cache`s are emptied before: other tests have filled them.
    """
    for function in vars(without_caches_of).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()
    count, before = 0, sys.gettrace()

    def on_line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(_OURS) else None

    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
