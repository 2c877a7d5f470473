"""The house rules that can be checked by reading the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "train").rglob("*.py"), *(ROOT / "idiomloss").rglob("*.py")])


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    """Modules that a file imports, anywhere or when it is itself imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def touches(path: Path, *packages: str) -> set[str]:
    return {m for m in imports(path) if any(m == p or m.startswith(f"{p}.") for p in packages)}


@pytest.mark.parametrize("path", sorted((ROOT / "idiomloss").rglob("*.py")), ids=lambda p: p.name)
def test_losses_know_neither_trainer_nor_models(path: Path) -> None:
    assert not touches(
        path, "train", "transformers", "sentence_transformers", "hydra", "accelerate", "pydantic"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "train" / "benchmarks").rglob("*.py")), ids=lambda p: p.name)
def test_benchmarks_know_no_trainer_and_no_model(path: Path) -> None:
    assert not touches(
        path,
        *("train.loop", "train.encoder", "train.suite", "train.objectives", "train.settings", "train.build"),
        *("sentence_transformers", "transformers", "accelerate", "hydra"),
    )


@pytest.mark.parametrize("path", sorted((ROOT / "train" / "objectives").rglob("*.py")), ids=lambda p: p.name)
def test_objectives_know_no_loop_and_no_model(path: Path) -> None:
    assert not touches(
        path,
        *("train.loop", "train.encoder", "train.suite", "train.benchmarks", "train.settings", "train.build"),
        *("sentence_transformers", "transformers", "accelerate", "hydra"),
    )


@pytest.mark.parametrize("path", sorted((ROOT / "train" / "reports").rglob("*.py")), ids=lambda p: p.name)
def test_reports_read_what_runs_left_and_load_no_model(path: Path) -> None:
    assert not touches(
        path,
        *("torch", "sentence_transformers", "transformers", "accelerate", "hydra", "matplotlib"),
        *("train.loop", "train.encoder", "train.suite", "train.benchmarks", "train.build", "train.plots"),
    )


def test_only_the_command_line_touches_hydra() -> None:
    """And the sweeper, which is a part of it."""
    found = [str(p.relative_to(ROOT / "train")) for p in SOURCES if touches(p, "hydra", "omegaconf")]
    assert found == ["cli.py", "search/space.py", "search/sweeper.py"]


def test_mteb_is_asked_for_on_demand_alone() -> None:
    """It is an extra, and takes seconds to import."""
    assert [p.name for p in SOURCES if touches(p, "mteb", "datasets")] == ["mteb_tasks.py"]
    assert not [p.name for p in SOURCES if touches(p, "train.mteb_tasks", "idiomloss.sentence_transformers")]


LIGHT = (
    *("__init__", "__main__", "evaluate", "report", "push", "cli", "search.sweeper", "resume"),
    *("scorekeys", "errors", "paths"),
    "processes",
)


@pytest.mark.parametrize(
    "path",
    [
        *(ROOT / "train" / f"{name.replace('.', '/')}.py" for name in LIGHT),
        *sorted((ROOT / "train" / "settings").rglob("*.py")),
    ],
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)
def test_what_answers_config_errors_imports_nothing_heavy(path: Path) -> None:
    heavy = ("torch", "transformers", "sentence_transformers", "accelerate", "numpy", "scipy", "matplotlib")
    light = {"train", *(f"train.{name}" for name in LIGHT)}
    found = {m for m in imports(path, top_level=True) if not m.startswith("train.settings")}
    assert not {m for m in found if m.split(".")[0] in heavy}
    assert {m for m in found if m.startswith("train")} <= light


def test_every_module_says_what_it_is_for() -> None:
    for path in SOURCES:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_every_option_is_explained_where_its_default_stands() -> None:
    """Each line of conf/objective, conf/trainer and conf/model that sets a value has a comment, or its
    name says all."""
    plain = {"name", "split", "path", "batch_size", "max_epochs", "temperature", "bm25_modes", "query_modes"}
    plain |= {"sample", "root", "weight_decay"}
    plain |= {
        "revision",
        "licence",
        "parameters",
        "pooling",
        "max_tokens",
        "remote_code",
        "papers",
    }  # of a model
    for group in ("objective", "trainer", "model"):
        for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
            for line in path.read_text(encoding="utf-8").splitlines():
                key = re.match(r"\s*(\w+): \S", line)
                if key and key[1] not in plain:
                    assert "#" in line, f"{path.name}: {line}"


def test_no_pickle_anywhere() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"torch\.(load|save)\(|import pickle|pickle\.", text), path
