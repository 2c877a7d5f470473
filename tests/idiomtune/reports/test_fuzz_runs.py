"""Run folders: whatever is in their files, a report has them, with a note, or refuses them by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from idiomtune.errors import UserError
from idiomtune.reports.frames import group_runs
from idiomtune.reports.runs import find_runs, read_runs
from idiomtune.reports.score_tables import as_csv, as_markdown, paper_tables
from tests.fuzzing import ODD, damaged_bytes, fuzz
from tests.planted_runs import plant

FILES = ["run.json", "config.yaml", "scores.json"]
NDCG = "idiolink/val/sentence/ndcg@10"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("runs") / "mine", scores={NDCG: 0.5}, seed=42)


def reported_or_refused(path: Path) -> None:
    try:
        (run,) = read_runs(find_runs([path]))
        groups = group_runs([run])
        assert all(note.strip() for note in run.notes)
        assert isinstance(run.metrics[1], int)
        as_csv(groups)
        as_markdown(groups, paper_tables(groups), [], run.notes)
        [note for group in groups for note in group.notes()]
    except UserError as error:
        assert path.name in str(error)  # noqa: PT017


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [above, *(path for key in keys for path in places(value[key], (*above, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path or not isinstance(value, dict | list):
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    try:
        copy[path[0]] = put(copy[path[0]], path[1:], new)
    except (KeyError, IndexError, TypeError):  # an earlier change has taken it away
        return value
    return copy


def test_what_names_no_score_or_model_is_shown(tmp_path: Path) -> None:
    for number, (key, records) in enumerate(
        {"idiolink": [1], "x/dim=²": [{"benchmark": "idiolink"}], "": [{"dimension": []}]}.items()
    ):
        run = plant(tmp_path / f"{number}")
        card = {"scores": {key: 0.5}, "baseline": {}, "meta": {}}
        (run / "scores.json").write_text(json.dumps(card))
        (run / "config.yaml").write_text(json.dumps({"model": {"path": ["a"]}} if key else {"model": []}))
        assert key in as_csv(group_runs(read_runs(find_runs([run]))))
        (run / "scores.json").write_text(json.dumps(card | {"records": records}))
        reported_or_refused(run)


@pytest.mark.parametrize("name", [*FILES, "metrics.jsonl"])
def test_values_and_bytes_changed_at_random(name: str, run: Path) -> None:
    path = run / name
    good = path.read_bytes()

    def tried(damaged: bytes) -> None:
        path.write_bytes(damaged)
        reported_or_refused(run)

    def with_values(changes: list[tuple[tuple[Any, ...], Any]]) -> bytes:
        damaged = content
        for place, value in changes:
            damaged = put(damaged, place, value)
        return json.dumps(damaged).encode()  # which is YAML too

    fuzz(damaged_bytes(good), tried)
    if name in FILES:
        content = yaml.safe_load(good)
        change = st.tuples(st.sampled_from(places(content)), ODD)
        fuzz(st.lists(change, min_size=1, max_size=3).map(with_values), tried)
    path.write_bytes(good)
