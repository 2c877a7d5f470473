"""How many planted faults the tests find, by the kind of code that has them.

    python -m tests.mutants [--num 300] [--only losses] [--out mutants.json]

A mutant is the code with one slip: a comparison, an operator, a constant or a condition changed. Each runs
the tests of its kind, in a fork of a process that has imported the libraries, on a copy of the repository.
It is killed if a test fails or hangs. Which slips are planted is a function of the code alone.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT = 150  # seconds of a mutant's tests
# Kind → its modules, and the tests that should find a slip there.
KINDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "losses": (
        [f"idiomloss/{n}.py" for n in ("infonce", "triplet", "groups", "similarity", "ranking")],
        ["tests/idiomloss"],
    ),
    "steps": (
        [
            "idiomtune/objectives/steps.py",
            "idiomtune/objectives/contrastive.py",
            "idiomtune/objectives/mixture.py",
        ],
        ["tests/idiomtune/objectives"],
    ),
    "training": (
        ["idiomtune/training/step.py", "idiomtune/training/loop.py"],
        ["tests/idiomtune/training/test_loop.py", "tests/idiomtune/training/test_selection.py"],
    ),
    "spans": (
        ["idiomtune/encoder/forward.py"],
        ["tests/idiomtune/encoder/test_encoder.py", "tests/idiomtune/encoder/test_families.py"],
    ),
    "ranking": (
        ["idiomtune/benchmarks/retrieval.py"],
        ["tests/idiomtune/benchmarks"],
    ),
    "expressions": (
        ["idiomtune/expressions.py"],
        ["tests/idiomtune/test_expressions.py", "tests/idiomtune/encoder/test_meanings.py"],
    ),
    "statistics": (
        ["idiomtune/reports/statistics.py", "idiomtune/benchmarks/epsilon/scoring.py"],
        ["tests/idiomtune/reports/test_statistics.py", "tests/idiomtune/benchmarks/test_epsilon.py"],
    ),
    "checkpoints": (
        ["idiomtune/training/checkpoint.py", "idiomtune/training/resume.py"],
        ["tests/idiomtune/training/test_resume.py", "tests/idiomtune/training/test_damage.py"],
    ),
}
_COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def slips(tree: ast.Module) -> Iterator[tuple[int, str, Any]]:
    """Each possible slip: its line, what it is, and a function that makes it and one that takes it back."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
            yield node.lineno, "comparison", (node.ops, 0, _COMPARED[type(node.ops[0])]())
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            if not (isinstance(node.op, ast.BitOr) and _is_type(node)):
                yield node.lineno, "operator", (node, "op", _OPERATORS[type(node.op)]())
        elif isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node.lineno, "condition", (node, "op", other)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert | ast.USub):
            yield node.lineno, "sign", (node, "op", ast.UAdd() if isinstance(node.op, ast.USub) else None)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node.lineno, "truth", (node, "value", not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield node.lineno, "number", (node, "value", node.value + 1)
        elif isinstance(node, ast.If | ast.IfExp):
            yield node.lineno, "branch", (node, "test", ast.UnaryOp(ast.Not(), node.test))


def _is_type(node: ast.BinOp) -> bool:
    """Whether `a | b` joins types."""
    return any(isinstance(n, ast.Constant) and n.value is None for n in ast.walk(node))


def mutants(paths: Sequence[str], num: int, rng: random.Random) -> Iterator[tuple[str, int, str, str]]:
    """Path, line, kind of slip and the mutated source of some slips, drawn evenly over the modules."""
    chosen = [(path, n) for path in paths for n in range(len(list(slips(_parsed(path)))))]
    for path, number in rng.sample(chosen, min(num, len(chosen))):
        tree = _parsed(path)
        line, kind, (place, name, value) = list(slips(tree))[number]
        if value is None:  # a sign that goes
            for parent in ast.walk(tree):
                for field, child in ast.iter_fields(parent):
                    if child is place:
                        setattr(parent, field, place.operand)
                    elif isinstance(child, list) and place in child:
                        child[child.index(place)] = place.operand
        elif isinstance(place, list):
            place[name] = value
        else:
            setattr(place, name, value)
        yield path, line, kind, ast.unparse(ast.fix_missing_locations(tree))


def _parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def survives(copy: Path, tests: Sequence[str]) -> bool:
    """Whether the tests pass on the copy, in a fork."""
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        os.setsid()
        os.chdir(copy)
        for name in [
            name for name in sys.modules if name.partition(".")[0] in ("tests", "train", "idiomloss")
        ]:
            del sys.modules[name]  # those of the repository, not of its copy
        sys.path.insert(0, str(copy))
        os.environ |= {"PYTHONPATH": str(copy), "IDIOM_DATA": str(ROOT.parent / "shared" / "data")}
        import pytest

        quiet = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            "-m",
            "not slow",
        ]
        os._exit(int(pytest.main([*quiet, *tests])))
    end = time.monotonic() + _TIMEOUT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num", type=int, default=300)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import accelerate  # noqa: F401
    import peft  # noqa: F401
    import sentence_transformers  # noqa: F401
    import torch

    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    kinds = {given.only: KINDS[given.only]} if given.only else KINDS
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        copy = Path(folder) / "copy"
        left_out = shutil.ignore_patterns(".git", ".venv", "checkpoints", "__pycache__", "build", ".*_cache")
        shutil.copytree(ROOT, copy, ignore=left_out)
        for kind, (paths, tests) in kinds.items():
            if not survives(copy, tests):
                raise SystemExit(f"{kind}: {' '.join(tests)} fail on the code as it is")
            lived, killed = [], 0
            for path, line, slip, source in mutants(paths, given.num // len(kinds), random.Random(kind)):
                whole = (copy / path).read_text(encoding="utf-8")
                (copy / path).write_text(source, encoding="utf-8")
                if survives(copy, tests):
                    lived.append(f"{path}:{line} {slip}")
                else:
                    killed += 1
                (copy / path).write_text(whole, encoding="utf-8")
            result[kind] = {"killed": killed, "of": killed + len(lived), "lived": lived}
            print(f"{kind}: {killed} of {killed + len(lived)} killed", flush=True)
            if given.out:
                given.out.write_text(json.dumps(result, indent=1))
    killed, num = (sum(kind[key] for kind in result.values()) for key in ("killed", "of"))
    print(f"in all: {killed} of {num} killed")


if __name__ == "__main__":
    main()
