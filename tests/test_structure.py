"""The house rules that can be checked by reading the code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for package in ("idiomtune", "idiomloss") for path in (ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, *, top_level: bool = False) -> frozenset[str]:
    """Modules that a file imports, anywhere or when it is itself imported."""
    tree = parsed(path)
    nodes = tree.body if top_level else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return frozenset(names)


def touches(path: Path, *packages: str) -> set[str]:
    return {m for m in imports(path) if any(m == p or m.startswith(f"{p}.") for p in packages)}


# The plan of the house: each package and module right in idiomtune/ may import what stands on a lower line.
FLOORS = """
__init__ testing                                 the doors; checks for those who plug in
__main__ api                                     the programs as functions
cli programs                                     words and values → a program's result; whole programs
training admire explorer extend integrations writing   the loop, runs, searches; what stands aside
benchmarks glossaries hub                        scores from embeddings; what expressions mean; publishing
encoder objectives reports                       text → embedding; batches, losses; tables and pages of runs
config data                                      conf/ → settings; data sets, readers of tables
io plugins                                       files, network, processes; what a configuration can name
errors requests expressions idiomloss            the ground
"""
FLOOR = {
    room: number
    for number, line in enumerate(FLOORS.strip().splitlines())
    for room in re.split(" {2,}", line)[0].split()
}

# What a room, or a module, may not import though it stands on a lower floor; and which libraries.
# Those that import what is heavy once they need it.
LIGHT = ("find", "report", "new", "explore", "push", "search", "write")
_MODELS = ["sentence_transformers", "transformers", "accelerate"]
_HEAVY = ["torch", *_MODELS, "numpy", "scipy", "matplotlib"]
DATA_SETS = ("admire", "astitch", "idiolink", "magpie", "ncimp", "places", "semeval2022")
WALLS = {
    "idiomloss": ["idiomtune", "transformers", "sentence_transformers", "hydra", "accelerate", "pydantic"],
    "objectives": ["idiomtune.encoder", "idiomtune.config", *_MODELS],
    "benchmarks": ["idiomtune.encoder", "idiomtune.config", *_MODELS],
    "reports": ["idiomtune.encoder", "idiomtune.benchmarks", "torch", *_MODELS],
    "integrations": ["idiomtune.cli"],
    "config": _HEAVY,
    "encoder": [f"idiomtune.data.{name}" for name in DATA_SETS],
    "glossaries": [f"idiomtune.data.{name}" for name in DATA_SETS],
    **{f"programs/{name}.py": _HEAVY for name in LIGHT},
    "cli": _HEAVY,
}
# What embeds for the benchmarks; and what is imported once the settings are checked.
EXCEPTIONS = {
    *((f"benchmarks/{name}.py", "idiomtune.encoder") for name in ("suite", "embeddings")),
    ("benchmarks/suite.py", "idiomtune.config"),
}
TOUCH_HYDRA = {
    *("cli.py", "training/sweeper.py", "training/start.py"),
    *("config/compose.py", "config/words.py"),
}


def module(path: Path) -> str:
    """`idiomtune/io/__init__.py` is `idiomtune.io`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room(path: Path) -> str:
    """`idiomtune/io/files.py` is in `io`, `idiomtune/errors.py` in `errors`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0] if parts[0] == "idiomloss" else parts[1]


def room_of(module: str) -> str | None:
    """The room of a module of this project."""
    first, _, rest = module.partition(".")
    if first == "idiomloss":
        return first
    return rest.partition(".")[0] or "__init__" if first == "idiomtune" else None


def inside(path: Path) -> str:
    return path.relative_to(ROOT / path.relative_to(ROOT).parts[0]).as_posix()


def test_the_plan_names_every_room() -> None:
    assert {room(path) for path in SOURCES} == FLOOR.keys()
    assert len([name for name, number in FLOOR.items() if number > 2]) <= 24  # the programs apart


def test_imports_run_down() -> None:
    not_below = [
        (inside(path), module)
        for path in SOURCES
        for module in sorted(imports(path))
        if (other := room_of(module)) is not None
        and other != room(path)
        and FLOOR[room(path)] >= FLOOR[other]
    ]
    assert not_below == []


def test_no_circle_of_modules() -> None:
    """However far apart: a circle is named by its members.

    A package's declaration may build what a module inside of it defines: it imports that when it is asked to.
    """
    graph = {module(path): imports(path) for path in SOURCES}
    for path in SOURCES:
        if path.name == "__init__.py":
            own = {name for name in imports(path) if name.startswith(f"{module(path)}.")}
            graph[module(path)] -= own - imports(path, top_level=True)
    known = graph.keys()
    # `from idiomtune.data import astitch` names a module too, but only its package is seen: no harm.
    TopologicalSorter({name: sorted(found & known - {name}) for name, found in graph.items()}).prepare()


def test_walls_stand() -> None:
    through = {
        (inside(path), module.rpartition(".")[0] if module.count(".") > 1 else module)
        for path in SOURCES
        for place in (room(path), inside(path))
        for module in touches(path, *WALLS.get(place, []))
    }
    assert through <= EXCEPTIONS


def test_libraries_are_used_in_few_places() -> None:
    """Hydra by the command line, what composes its options, and the sweeper; mteb takes seconds to import."""
    hydra, matplotlib, mteb = (
        [inside(path) for path in SOURCES if touches(path, *libraries)]
        for libraries in (("hydra", "omegaconf"), ("matplotlib",), ("mteb", "datasets"))
    )
    assert set(hydra) <= TOUCH_HYDRA
    assert matplotlib == [
        *("benchmarks/epsilon/report.py", "benchmarks/idiolink/report.py"),
        *("reports/benchmark_report.py", "reports/plots.py"),
    ]
    assert mteb == ["data/user/source.py", "integrations/mteb.py", "training/negatives.py"]
    on_demand = ("idiomtune.integrations.mteb", "idiomloss.sentence_transformers")
    assert not [inside(path) for path in SOURCES if touches(path, *on_demand)]


def test_what_answers_config_errors_imports_nothing_heavy() -> None:
    """Whatever an entry point imports at its start, however far down."""
    seen: set[str] = set()
    waiting = ["idiomtune", "idiomtune.cli", *(f"idiomtune.programs.{name}" for name in LIGHT)]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        base = ROOT / module.replace(".", "/")
        path = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
        if not path.is_file():  # a name in a module
            continue
        found = imports(path, top_level=True)
        assert not {m for m in found if m.split(".")[0] in {*_HEAVY, "pandas", "sklearn", "optuna"}}, module
        waiting += [m for m in found if room_of(m)]
        waiting += [".".join(module.split(".")[:depth]) for depth in range(1, module.count(".") + 1)]


# Options whose name says all.
PLAIN = {
    *("about", "batch_size", "bm25_modes", "defaults", "document_prompt", "instruction_prompt", "licence"),
    *("max_epochs", "max_tokens", "name", "papers", "parameters", "path", "pooling", "query_modes"),
    *("query_prompt", "remote_code", "revision", "sample", "split", "temperature", "weight_decay"),
}


@pytest.mark.parametrize("group", ["objective", "trainer", "model"])
def test_every_option_is_explained_where_its_default_stands(group: str) -> None:
    for path in (ROOT / "conf" / group).rglob("*.yaml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            key = re.match(r"\s*(\w+): \S", line)
            assert not key or key[1] in PLAIN or "#" in line, f"{path.name}: {line}"


def test_every_module_says_what_it_is_for_and_pickles_nothing() -> None:
    for path in SOURCES:
        assert ast.get_docstring(parsed(path)), path
        assert not re.search(r"torch\.(load|save)\(|import pickle|pickle\.", path.read_text()), path


def test_no_class_name_exists_twice() -> None:
    classes = [
        node.name.lstrip("_")
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted(name for name, number in Counter(classes).items() if number > 1) == []


# Pronouns and participles: a name is the noun of what it holds.
NO_NAMES = {
    *("one", "some", "each", "both", "what", "which", "who", "how", "why", "there", "thing"),
    *("found", "given", "known", "kept", "made", "told", "asked", "said", "apart", "place", "places"),
}
# Words that words.md has another word for, in bold there.
OTHER_WORDS = set(re.findall(r"\*\*(\w+)\*\*", (ROOT / "docs" / "words.md").read_text(encoding="utf-8")))


def names_in(path: Path) -> Iterator[tuple[str, bool]]:
    """Each name that a module gives, and whether it is a function's."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            is_value = any(
                getattr(d, "id", getattr(d, "attr", "")).endswith("property") for d in node.decorator_list
            )
            yield node.name, isinstance(node, ast.FunctionDef) and not is_value
        elif isinstance(node, ast.arg):
            yield node.arg, False
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield getattr(node, "id", getattr(node, "attr", "")), False


def test_names_are_nouns_and_functions_verbs() -> None:
    parts = re.compile(r"[A-Z]?[a-z]+")
    for path in SOURCES:
        has_checks = path.name == "testing.py"  # whose names users write
        for name, is_function in names_in(path):
            word = name.strip("_")
            assert word not in NO_NAMES, f"{path}: {name}"
            assert not (OTHER_WORDS | {"cut"}) & {part.lower() for part in parts.findall(name)}, (
                f"{path}: {name}"
            )
            is_adjective = is_function and re.fullmatch(r"[a-z]+ed", word) and word not in {"embed", "seed"}
            assert not is_adjective or has_checks, f"{path}: {name}"


def test_pages_use_the_words() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "conf").rglob("*.yaml"), ROOT / "README.md"]
    others = re.compile(rf"\b({'|'.join(OTHER_WORDS - {'ours', 'theirs'})})\b", re.IGNORECASE)
    for page in pages:
        prose = re.sub(
            r"```.*?```|\*[^*\n]+\*|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        match = others.search(prose) if page.name != "words.md" else None
        assert match is None, f"{page}: {match[0]}"
