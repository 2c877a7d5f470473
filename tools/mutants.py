"""Strength of the tests: which planted faults they find, module by module.

    make mutants
    python -m tools.mutants [--only infonce] [--num 60] [--workers 2] [--redo]

A mutant is a module with one slip: a comparison, an operator, a condition, a number or a truth value changed.
Its tests are the quick ones of its module (`MODULES`) that run its line, the shortest first. It is killed if
one fails, or takes much longer than without the slip; a mutant that survives them is given all tests of its
module. Results are kept in `build/mutants.jsonl`, from which an interrupted command goes on: a mutant is
tried again if its module has changed, or if it survived and a test of its module has. Mutants that do the
same as the code, and those that survive for a reason, are listed in `tools/mutants.tsv`.

Each mutant is a fork of a process that has collected the tests: there, only the code of the function with
the slip is replaced. A slip outside functions is imported anew, which takes seconds.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import importlib.util
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "mutants.jsonl"
LISTED = ROOT / "tools" / "mutants.tsv"
_LEAST, _TIMES = 15, 8  # a mutant has so many seconds, or so many times what its tests take

_TESTS, _BENCHMARKS = "tests/idiomtune", "tests/idiomtune/benchmarks"
_LOSSES = ["tests/idiomloss"]
_OBJECTIVES = [f"{_TESTS}/objectives"]
_SPANS = [f"{_TESTS}/encoder/test_{name}.py" for name in ("encoder", "forward", "families", "meanings")]
# Module → the tests that should find a slip there.
MODULES: Mapping[str, Sequence[str]] = {
    **{
        f"idiomloss/{name}.py": _LOSSES
        for name in (
            *("groups", "infonce", "metric_learning", "ranking", "sentence_transformers"),
            *("similarity", "trainer_data", "triplet"),
        )
    },
    "idiomtune/expressions.py": [f"{_TESTS}/test_expressions.py"],
    "idiomtune/statistics.py": [f"{_TESTS}/test_statistics.py"],
    "idiomtune/benchmarks/retrieval.py": [
        f"{_BENCHMARKS}/test_{name}.py"
        for name in ("retrieval", "idiolink_benchmark", "own_retrieval", "bm25")
    ],
    "idiomtune/benchmarks/epsilon/scoring.py": [f"{_BENCHMARKS}/test_epsilon.py"],
    "idiomtune/benchmarks/idiolink/scoring.py": [
        *(f"{_BENCHMARKS}/test_{name}.py" for name in ("idiolink_benchmark", "bm25", "held_out")),
        f"{_TESTS}/reports/test_report.py",
    ],
    "idiomtune/benchmarks/user/retrieval.py": [f"{_BENCHMARKS}/test_own_retrieval.py"],
    "idiomtune/benchmarks/pairs.py": [f"{_BENCHMARKS}/test_{name}.py" for name in ("pairs", "own_sts")],
    "idiomtune/benchmarks/semeval2022.py": [
        *(f"{_BENCHMARKS}/test_{name}.py" for name in ("semeval2022_benchmark", "suite")),
        f"{_TESTS}/reports/test_report.py",
    ],
    **{f"idiomtune/objectives/{name}.py": _OBJECTIVES for name in ("steps", "triplets")},
    "idiomtune/objectives/contrastive.py": [*_OBJECTIVES, f"{_TESTS}/programs/test_build.py"],
    "idiomtune/objectives/mixture.py": [*_OBJECTIVES, f"{_TESTS}/config/test_mixture_settings.py"],
    "idiomtune/data/idiolink.py": [
        f"{_TESTS}/data/test_idiolink.py",
        f"{_TESTS}/data/test_download.py",
        *_OBJECTIVES,
    ],
    "idiomtune/encoder/reading.py": _SPANS,
    "idiomtune/encoder/forward.py": [
        *_SPANS,
        *(f"{_TESTS}/encoder/test_{name}.py" for name in ("kernels",)),
    ],
    "idiomtune/training/checkpoint.py": [
        f"{_TESTS}/training/test_{name}.py"
        for name in ("checkpoint", "damage", "durable_writes", "resume", "selection")
    ],
    "idiomtune/training/resume.py": [
        f"{_TESTS}/training/test_{name}.py" for name in ("resume", "checkpoint")
    ],
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
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Slip:
    """One change of a module.

    Attributes:
        lines: first and last line of the statement, or of the head of a compound one.
        code: the first of these lines that has the slip, without indentation.
        change: what stands there, and what instead.
        key: code and change, with a number where a line has several alike.
        make: changes the tree of which the slip was found.
    """

    lines: tuple[int, int]
    code: str
    change: str
    key: str
    make: Callable[[], None]


def slips(tree: ast.Module, source: str) -> list[Slip]:
    """All slips of a module, in the order of its lines."""
    lines = source.splitlines()
    found: list[tuple[int, int, tuple[int, int], str, Callable[[], None]]] = []

    def visit(node: ast.AST, statement: tuple[int, int]) -> None:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            statement = (node.lineno, body[0].lineno - 1 if body else node.end_lineno or node.lineno)
            statement = (statement[0], max(statement))
        for change, make in _changes(node):
            line, column = statement[0], 0
            if isinstance(node, ast.expr | ast.stmt):
                line, column = node.lineno, node.col_offset
            found.append((line, column, statement, change, make))
        for child in ast.iter_child_nodes(node):
            if not _is_left_out(node, child):
                visit(child, statement)

    visit(tree, (1, 1))
    result, numbers = [], Counter[tuple[str, str]]()
    for line, _, statement, change, make in sorted(found, key=lambda place: place[:2]):
        code = lines[line - 1].strip()
        numbers[code, change] += 1
        number = numbers[code, change]
        key = f"{change} ({number})" if number > 1 else change
        result.append(Slip(statement, code, change, key, make))
    return result


def _is_left_out(parent: ast.AST, child: ast.AST) -> bool:
    """Types, decorators' options, and `zip(…, strict=…)`, which guards against what cannot happen."""
    if isinstance(parent, ast.arg | ast.AnnAssign) and child is parent.annotation:
        return True
    if isinstance(parent, ast.FunctionDef | ast.ClassDef) and child in (
        *parent.decorator_list,
        getattr(parent, "returns", None),
    ):
        return True
    if isinstance(child, ast.keyword) and child.arg == "strict":
        return True
    return isinstance(parent, ast.If) and isinstance(parent.test, ast.Name) and child in parent.body


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """What could be changed in a node itself: what it says, and a function that does it."""

    def put(place: Any, name: Any, value: Any) -> Callable[[], None]:
        if isinstance(place, list):
            return lambda: place.__setitem__(name, value)
        return lambda: setattr(place, name, value)

    match node:
        case ast.Compare():
            for number, operator in enumerate(node.ops):
                if other := _COMPARED.get(type(operator)):
                    yield f"{_sign(operator)} → {_sign(other())}", put(node.ops, number, other())
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _OPERATORS and not _is_type(node):
            other_op = _OPERATORS[type(node.op)]()
            yield f"{_sign(node.op)} → {_sign(other_op)}", put(node, "op", other_op)
        case ast.BoolOp():
            joined = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield f"{_sign(node.op)} → {_sign(joined)}", put(node, "op", joined)
        case ast.UnaryOp(op=ast.USub()):
            yield "- left out", put(node, "op", ast.UAdd())
        case ast.UnaryOp(op=ast.Not()):
            yield "not left out", put(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        case ast.UnaryOp(op=ast.Invert()):
            yield "~ left out", put(node, "operand", ast.UnaryOp(ast.Invert(), node.operand))
        case ast.Constant(value=bool(truth)):
            yield f"{truth} → {not truth}", put(node, "value", not truth)
        case ast.Constant(value=int(number) | float(number)):
            other_number = number + 1 if abs(number) < 1e9 else number / 2
            yield f"{number} → {other_number}", put(node, "value", other_number)
        case ast.Name(id=name) if name in _CALLED and isinstance(node.ctx, ast.Load):
            yield f"{name} → {_CALLED[name]}", put(node, "id", _CALLED[name])
        case ast.If() | ast.IfExp() | ast.While() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            yield "condition negated", put(node, "test", ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension():
            for number, test in enumerate(node.ifs):
                if not isinstance(test, ast.Compare | ast.UnaryOp):
                    yield "filter negated", put(node.ifs, number, ast.UnaryOp(ast.Not(), test))


def _sign(operator: ast.AST) -> str:
    names = {
        **{"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!=", "Is": "is"},
        **{"IsNot": "is not", "In": "in", "NotIn": "not in", "Add": "+", "Sub": "-", "Mult": "*"},
        **{"Div": "/", "FloorDiv": "//", "Mod": "%", "BitAnd": "&", "BitOr": "|", "And": "and", "Or": "or"},
    }
    return names[type(operator).__name__]


def _is_type(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether `a | b` joins types."""
    if not isinstance(node, ast.BinOp):
        return False
    return any(isinstance(n, ast.Constant) and (n.value is None or n.value is ...) for n in ast.walk(node))


class Mutants:
    """A module's mutants."""

    def __init__(self, module: str) -> None:
        self.path = ROOT / module
        self.source = self.path.read_text(encoding="utf-8")
        self._code = compile(ast.parse(self.source), str(self.path), "exec")
        self.slips = self._slips()[1]

    def _slips(self) -> tuple[ast.Module, list[Slip]]:
        tree = ast.parse(self.source)
        return tree, slips(tree, self.source)

    def compiled(self, number: int) -> CodeType:
        """The module's code with a slip."""
        tree, found = self._slips()
        found[number].make()
        return compile(ast.fix_missing_locations(tree), str(self.path), "exec")

    def replaced(self, number: int) -> dict[tuple[str, int], CodeType] | None:
        """The functions that a slip changes, by name and line; None if it is outside functions."""
        slipped = self.compiled(number)
        if dict(_functions(self._code, False)) != dict(_functions(slipped, False)):
            return None
        before, after = dict(_functions(self._code, True)), dict(_functions(slipped, True))
        return {key: code for key, code in after.items() if before[key] != code}


def _functions(code: CodeType, functions: bool) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """All functions in a module's code; or else the module and its classes, without what is in them."""
    if bool(code.co_flags & 1) == functions:  # optimised: a function
        whole = functions or not any(isinstance(constant, CodeType) for constant in code.co_consts)
        alone = tuple(constant for constant in code.co_consts if not isinstance(constant, CodeType))
        yield (code.co_qualname, code.co_firstlineno), code if whole else code.replace(co_consts=alone)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _functions(constant, functions)


def forked(do: Callable[[], int], seconds: float, output: str = os.devnull) -> int | None:
    """What a function returns in a fork, which prints into a file; None if it takes longer."""
    child = os.fork()
    if child == 0:
        os.setsid()
        opened = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for stream in range(3):
            os.dup2(opened, stream)
        code = 1
        try:
            code = do()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class Session:
    """A pytest plugin that tries mutants instead of running the tests once.

    Args:
        mutants: of the module.
        todo: their numbers.
        record: is called with a number, how it ended, the tests run and the seconds; with "import" for those
            that must be imported anew.
    """

    def __init__(
        self, mutants: Mutants, todo: Sequence[int], record: Callable[[int, str, int, float], None]
    ) -> None:
        self._mutants, self._todo, self._record = mutants, todo, record
        self.failed: list[str] = []

    def pytest_runtestloop(self, session: Any) -> bool:
        gc.unfreeze()  # what is frozen is not listed
        live = defaultdict(list)
        path = str(self._mutants.path)
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename == path:
                live[found.__code__.co_qualname, found.__code__.co_firstlineno].append(found)
        gc.freeze()
        took, lines, self.failed = self._baseline(session.items)
        if self.failed:
            return True
        for number in self._todo:
            codes = self._mutants.replaced(number)
            if codes is None or not any(live[key] for key in codes):  # or what only the import calls
                self._record(number, "import", 0, sum(took))
                continue
            first, last = self._mutants.slips[number].lines
            by_file: dict[Path, float] = defaultdict(float)
            running = [
                n for n in range(len(took)) if any(line in lines[n] for line in range(first, last + 1))
            ]
            for n in running:
                by_file[session.items[n].path] += took[n]
            running.sort(key=lambda n: (by_file[session.items[n].path], str(session.items[n].path), took[n]))
            start = time.monotonic()
            ended = self._tried(session.items, running, codes, live, took) if running else "not run"
            others = [n for n in range(len(took)) if n not in running]
            if ended == "survived" and others:
                ended = self._tried(session.items, others, codes, live, took)
            self._record(number, ended, len(running), time.monotonic() - start)
        return True

    def _tried(
        self, items: Sequence[Any], running: Sequence[int], codes: Any, live: Any, took: Sequence[float]
    ) -> str:
        def run() -> int:
            for key, code in codes.items():
                for function in live[key]:
                    function.__code__ = code
            for number, following in zip(running, [*running[1:], None], strict=True):
                if _fails(items[number], None if following is None else items[following]):
                    return 1
            return 0

        ended = forked(run, max(_LEAST, _TIMES * sum(took[n] for n in running)))
        return {None: "timed out", 0: "survived"}.get(ended, "killed")

    def _baseline(self, items: Sequence[Any]) -> tuple[list[float], list[set[int]], list[str]]:
        """What each test takes in seconds, which of the module's lines it runs, and those that fail."""
        path, reading = str(self._mutants.path), RESULTS.with_suffix(f".{os.getpid()}")

        def run() -> int:
            took, lines, failed = [], [], []
            for item, following in zip(items, [*items[1:], None], strict=True):
                seen: set[int] = set()

                def trace(frame: Any, _event: str, _: Any, seen: set[int] = seen) -> Any:
                    if frame.f_code.co_filename != path:
                        return None
                    seen.add(frame.f_lineno)
                    return trace

                start = time.monotonic()
                threading.settrace(trace)
                sys.settrace(trace)
                if _fails(item, following):
                    failed.append(item.nodeid)
                sys.settrace(None)
                took.append(time.monotonic() - start)
                lines.append(sorted(seen))
            reading.write_text(json.dumps([took, lines, failed]), encoding="utf-8")
            return 0

        if forked(run, 600) != 0:
            return [], [], ["they took too long, or ended the process"]
        took, lines, failed = json.loads(reading.read_text(encoding="utf-8"))
        reading.unlink()
        return took, [set(of_one) for of_one in lines], failed


def _fails(item: Any, following: Any) -> bool:
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, nextitem=following, log=False))


def _quiet(tests: Sequence[str], plugin: object | None = None) -> int:
    """The quick ones of these tests, in this process, to the first that fails."""
    import pytest

    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported before
    return int(pytest.main([*options, *tests], plugins=[plugin] if plugin else None))


def _imported_anew(mutants: Mutants, number: int, tests: Sequence[str]) -> int:
    """Runs the tests with a module that has a slip, in a process that has not imported it."""
    loader = importlib.machinery.SourceFileLoader
    code, get_code = mutants.compiled(number), loader.get_code

    def get(self: Any, name: str) -> CodeType | None:
        return code if self.path == str(mutants.path) else get_code(self, name)

    loader.get_code = get  # type: ignore[assignment,method-assign]
    return _quiet(tests)


def _digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def listed() -> dict[tuple[str, str, str], tuple[str, str]]:
    """Module, code and change → "equivalent" or "accepted", and the reason."""
    rows = (line.split("\t") for line in LISTED.read_text(encoding="utf-8").splitlines()[1:])
    return {(module, code, change): (verdict, reason) for module, code, change, verdict, reason in rows}


def results() -> dict[tuple[str, str, str], dict[str, Any]]:
    """The latest result of each mutant of a module as it is now."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.is_file() else []
    kept: dict[tuple[str, str, str], dict[str, Any]] = {}
    digests = {module: _digest(ROOT / module) for module in MODULES}
    for row in map(json.loads, lines):
        if row["source"] == digests.get(row["module"]):
            kept[row["module"], row["code"], row["change"]] = row
    return kept


def drawn(mutants: Mutants, num: int | None) -> list[int]:
    """The numbers of the mutants to try: all, or so many, the same at every call."""
    every = range(len(mutants.slips))
    if num is None or num >= len(every):
        return list(every)
    return sorted(random.Random(mutants.path.name).sample(every, num))


def try_module(module: str, num: int | None, redo: bool) -> None:
    """Tries what has not been tried of a module, and adds it to the results."""
    mutants, tests, known = Mutants(module), MODULES[module], {} if redo else results()
    now, source = _digest(*(ROOT / test for test in tests)), _digest(mutants.path)
    same = {key[1:] for key, (verdict, _) in listed().items() if key[0] == module and verdict == "equivalent"}
    todo = []
    for number in drawn(mutants, num):
        slip = mutants.slips[number]
        row = known.get((module, slip.code, slip.key))
        tried = row is not None and (row["ended"] in ("killed", "timed out") or row["tests"] == now)
        if not tried and (slip.code, slip.key) not in same:
            todo.append(number)
    if not todo:
        return
    seconds = 0.0
    anew: list[int] = []

    def record(number: int, ended: str, num_tests: int, took: float) -> None:
        nonlocal seconds
        if ended == "import":
            anew.append(number)
            seconds = took
            return
        slip = mutants.slips[number]
        row = {"module": module, "line": slip.lines[0], "code": slip.code, "change": slip.key}
        row |= {"ended": ended, "run": num_tests, "seconds": round(took, 2), "tests": now, "source": source}
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    start = time.monotonic()
    pending = RESULTS.with_suffix(f".anew{os.getpid()}")
    log = RESULTS.with_name(f"mutants-{module.replace('/', '-')}.log")

    def session() -> int:
        plugin = Session(mutants, todo, record)
        code = _quiet(tests, plugin)
        if plugin.failed:
            print(f"{module}: fails without a slip: {plugin.failed}", file=sys.stderr)
            code = 3
        pending.write_text(json.dumps([code, anew, seconds]), encoding="utf-8")
        return 0

    if forked(session, 3 * 3600, str(log)) != 0:
        raise SystemExit(f"{module}: {' '.join(tests)} cannot be run: see {log}")
    code, anew, seconds = json.loads(pending.read_text(encoding="utf-8"))
    pending.unlink()
    if code == 3:
        raise SystemExit(f"{module}: {' '.join(tests)} fail on the code as it is")
    for number in list(anew):
        begun = time.monotonic()
        ended = forked(lambda n=number: _imported_anew(mutants, n, tests), 60 + _TIMES * seconds)  # type: ignore[misc]
        record(number, {None: "timed out", 0: "survived"}.get(ended, "killed"), -1, time.monotonic() - begun)
    print(f"{module}: {len(todo)} tried in {time.monotonic() - start:.0f} s", flush=True)


def table(modules: Sequence[str], num: int | None) -> str:
    """What became of the mutants, in Markdown, and those that survived for no listed reason."""
    known, reasons = results(), listed()
    rows, survivors, total = [], [], Counter[str]()
    for module in modules:
        mutants, counts, seconds = Mutants(module), Counter[str](), 0.0
        for number in drawn(mutants, num):
            slip = mutants.slips[number]
            key = (module, slip.code, slip.key)
            verdict = reasons.get(key, ("", ""))[0]
            row = known.get(key)
            counts["mutants"] += 1
            if verdict == "equivalent":
                counts["equivalent"] += 1
            elif row is None:
                counts["not tried"] += 1
            elif row["ended"] in ("killed", "timed out"):
                counts["killed"] += 1
                counts["timed out"] += row["ended"] == "timed out"
            else:
                counts["survived"] += 1
                if not verdict:
                    survivors.append(f"{module}:{row['line']}: `{slip.code}`: {slip.key} ({row['ended']})")
            seconds += row["seconds"] if row else 0
        counts["seconds"] = round(seconds)
        total += counts
        rows.append((module, counts))
    rows.append(("all", total))
    names = ("mutants", "killed", "timed out", "equivalent", "survived", "not tried", "seconds")
    lines = [f"| module | {' | '.join(names)} | killed of those not equivalent |", "|---" * 9 + "|"]
    for module, counts in rows:
        of = counts["killed"] + counts["survived"]
        share = f"{100 * counts['killed'] / of:.1f}%" if of else ""
        lines.append(f"| {module} | {' | '.join(str(counts[name]) for name in names)} | {share} |")
    return "\n".join(
        [*lines, *(["", "Survived, without a reason in tools/mutants.tsv:"] if survivors else []), *survivors]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="modules whose path has this in it")
    parser.add_argument("--num", type=int, help="a seeded sample of so many per module, instead of all")
    parser.add_argument("--workers", type=int, default=1, help="modules at a time")
    parser.add_argument("--redo", action="store_true", help="also what has been tried")
    parser.add_argument("--table", action="store_true", help="only the table of what has been tried")
    given = parser.parse_args()
    modules = [module for module in MODULES if (given.only or "") in module]
    RESULTS.parent.mkdir(exist_ok=True)
    if not given.table:
        _try_all(modules, given.num, given.redo, given.workers)
    print(table(modules, given.num))


def _try_all(modules: Sequence[str], num: int | None, redo: bool, workers: int) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import accelerate  # noqa: F401
    import mteb  # noqa: F401
    import pandas  # noqa: F401
    import peft  # noqa: F401
    import scipy.stats  # noqa: F401
    import sentence_transformers  # noqa: F401
    import torch

    torch.set_num_threads(1)
    reading, writing = os.pipe()
    os.write(writing, bytes(range(len(modules))))
    os.close(writing)
    started = []
    for _ in range(workers):
        if (child := os.fork()) == 0:
            failed = 0
            while taken := os.read(reading, 1):
                try:
                    try_module(modules[taken[0]], num, redo)
                except SystemExit as error:
                    print(error, flush=True)
                    failed = 1
            os._exit(failed)
        started.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in started]
    if any(statuses):
        print("Some modules could not be tried: see above.")


if __name__ == "__main__":
    main()
