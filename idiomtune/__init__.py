"""Fine-tune and judge idiom-aware embedding models: `import idiomtune as it`, then `it.train("idiolink_ft")`.

The functions, and the classes of what they return, are in :mod:`idiomtune.verbs`.

A file `train.py` of the user's own, which is a common name, hides `train` from scripts beside it, but not
this package: `idiomtune` finds `train` where it was installed, and its modules are those of `train`.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idiomtune import Encoder, __version__
    from idiomtune.errors import UserError
    from idiomtune.verbs import (
        Comparison,
        Page,
        Run,
        Scores,
        check,
        evaluate,
        explore,
        export,
        gate,
        glossary,
        learn,
        push,
        report,
        resume,
        train,
    )

_VERBS = (
    *("check", "evaluate", "explore", "export", "gate", "glossary", "learn", "push", "report", "resume"),
    "train",
)
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
    "export",
    "gate",
    "glossary",
    "learn",
    "push",
    "report",
    "resume",
    "train",
]


def _ours() -> ModuleType:
    """The package `train` beside this one, imported from its folder, whatever else has that name.

    Raises:
        ImportError: if another module of that name is imported already.
    """
    source = Path(__file__).resolve().parent.parent / "train" / "__init__.py"
    known = sys.modules.get("train")
    if known is not None:
        found = getattr(known, "__file__", None)
        if found is None or Path(found).resolve() != source:
            raise ImportError(
                f"another module is imported as train already ({found}): import idiomtune before it, "
                "or give it another name"
            )
        return known
    spec = importlib.util.spec_from_file_location("train", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module
    spec.loader.exec_module(module)
    return module


def _original(name: str) -> str:
    return "train" + name.removeprefix("idiomtune")


class _SameModules(MetaPathFinder, Loader):
    """`idiomtune.requests` is `idiomtune.requests`, and no second copy of it."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("idiomtune.") or name == "idiomtune.__main__":
            return None
        found = importlib.util.find_spec(_original(name))
        return None if found is None else ModuleSpec(name, self, loader_state=found)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(_original(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state  # its own, which the import has replaced

    def get_code(self, name: str) -> CodeType | None:
        """For `python -m idiomtune.report`."""
        found = importlib.util.find_spec(_original(name))
        assert found is not None
        assert isinstance(found.loader, InspectLoader)
        return found.loader.get_code(found.name)


_train = _ours()
sys.meta_path.insert(0, _SameModules())


class _Package(ModuleType):
    """The package; a module that is imported as `idiomtune.report` does not replace the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _VERBS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return __all__


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # Lazily, as in train: `idiomtune --help` need not wait for torch.
    if name == "UserError":
        return importlib.import_module("idiomtune.errors").UserError
    if name in __all__ and name not in _train.__all__ and name != "__version__":
        return getattr(importlib.import_module("idiomtune.verbs"), name)
    return getattr(_train, name)
