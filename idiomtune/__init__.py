"""Fine-tune and judge idiom-aware embedding models: `import idiomtune as it`, then `it.train("idiolink_ft")`.

The functions, and the classes of what they return, are in :mod:`idiomtune.api`; each is a program as well,
`idiomtune train …` in a shell.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from idiomtune.io.version import __version__

if TYPE_CHECKING:
    from idiomtune.api import (
        Comparison,
        Page,
        Run,
        Scores,
        check,
        evaluate,
        explore,
        find,
        glossary,
        learn,
        push,
        report,
        resume,
        train,
        usage,
        write,
    )
    from idiomtune.errors import UserError
    from idiomtune.glossaries.encoder import GlossaryEncoder as Encoder

__all__ = [
    "Comparison",
    "Encoder",
    "Page",
    "Run",
    "Scores",
    "UserError",
    "__version__",
    "check",
    "evaluate",
    "explore",
    "find",
    "glossary",
    "learn",
    "push",
    "report",
    "resume",
    "train",
    "usage",
    "write",
]
_PLACES = {"Encoder": ("glossaries.encoder", "GlossaryEncoder"), "UserError": ("errors", "UserError")}

warnings.filterwarnings("ignore", "IProgress not found")  # tqdm's, in a notebook: our bars need no widgets


def __getattr__(name: str) -> Any:
    # Lazily: `idiomtune --help` need not wait for torch.
    if name not in __all__:
        raise AttributeError(f"module 'idiomtune' has no attribute {name!r}")
    module, attribute = _PLACES.get(name, ("api", name))
    return getattr(import_module(f"idiomtune.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
