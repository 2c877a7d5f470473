"""Importing torch, transformers and all else that takes seconds, without looking for garbage in between."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Around the first import of the heavy libraries: no garbage is collected, and what they leave never is.

    Their million objects all stay, and collections that look through them take a sixth of the time. It does
    nothing once torch is imported, since a sweep's earlier runs may have left garbage.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
