"""The examples of docstrings: what users call first has one that asserts something, and all of them run."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

import idiomloss
import idiomloss.metric_learning
import idiomloss.sentence_transformers
import idiomtune as it
from tests.test_structure import SOURCES, module, parsed

METHODS = ("encode", "find", "search", "similarity", "usage")
FUNCTIONS = ("evaluate", "find", "learn", "train", "usage")


def losses() -> dict[str, Any]:
    """Of all three packages of losses; of the classes and functions that end in `Loss` or `loss`."""
    packages = idiomloss, idiomloss.metric_learning, idiomloss.sentence_transformers
    parts = {name: part for package in packages for name, part in vars(package).items()}
    named = {n: p for n, p in parts.items() if n.lower().endswith("loss") and not n.startswith("_")}
    return {n: p for n, p in named.items() if p.__module__.startswith("idiomloss")} | {
        "WithinGroupMiner": parts["WithinGroupMiner"]
    }


def objectives() -> dict[str, Any]:
    """The classes whose name ends in `Objective` and that make a loss."""
    return {
        node.name: getattr(importlib.import_module(module(path)), node.name)
        for path in SOURCES
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Objective") and not _is_abstract(node)
    }


def _is_abstract(node: ast.ClassDef) -> bool:
    """Whether others are made of it: a base, or one with a method that has no body."""
    decorators = (name for part in node.body for name in getattr(part, "decorator_list", ()))
    return node.name == "BaseObjective" or any(getattr(n, "id", "") == "abstractmethod" for n in decorators)


class Checker(doctest.OutputChecker):
    """What a program prints is no part of its example."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


EXAMPLES = {
    **{f"Encoder.{name}": getattr(it.Encoder, name) for name in METHODS},
    **{f"it.{name}": getattr(it, name) for name in FUNCTIONS},
    **losses(),
    **objectives(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_asserts_and_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    part = EXAMPLES[name]
    names = {
        "it": it,
        "torch": torch,
        "Encoder": it.Encoder,
        **vars(importlib.import_module(part.__module__)),
    }
    examples = [t for t in doctest.DocTestFinder(recurse=False).find(part, name, globs=names) if t.examples]
    assert any("assert " in example.source for test in examples for example in test.examples), name
    runner = doctest.DocTestRunner(Checker(), verbose=False)
    for test in examples:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
