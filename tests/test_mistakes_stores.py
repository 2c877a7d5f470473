"""Planted mistakes: stores of embeddings, folders of sweeps and searches, options that Hydra refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mistakes import OWN, PAIRS, Mistake, run_mistake, run_sound
from tests.own_data import write_collection

STORE = [
    *("device=cpu", "benchmarks=[own_retrieval]", "benchmark.own_retrieval.path=mine"),
    *("benchmark.own_retrieval.store=store", "benchmark.own_retrieval.shard_size=2", "output=scores.json"),
]
SHARD = "store/mine/sentence/00000.npy"
SHORT = [*OWN, "trainer.batch_size=16", "trainer.max_epochs=1"]
SEARCH = ["-m", *SHORT, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=1", "trainer.learning_rate=1e-4,1e-3"]
FINISHED = '{"status": "finished", "experiment": "own"}'

MISTAKES = [
    Mistake(
        "an option that is not there",
        [*SHORT, "run_dir=runs/new", "trainer.epochs=3"],
        ["trainer.epochs: there is no such option"],
        {"train.csv": PAIRS},
        "train",
    ),
    Mistake(
        "a model that is not there",
        [*SHORT, "run_dir=new", "model=minilmm"],
        ["model=minilmm: there is no such choice"],
        {"train.csv": PAIRS},
        "train",
    ),
    Mistake(
        "a reference to no option",
        [*SHORT, "run_dir=new", "trainer.max_steps=${trainer.steps}"],
        ["trainer.steps"],
        {"train.csv": PAIRS},
        "train",
    ),
    Mistake(
        "a run_dir below a file",
        [*SHORT, "run_dir=train.csv/new"],
        ["train.csv/new", "cannot be written"],
        {"train.csv": PAIRS},
        "train",
    ),
    Mistake(
        "an empty study.db",
        [*SEARCH, "hydra.sweep.dir=search"],
        ["search/study.db", "empty", "restore it from a copy", "hydra.sweep.dir="],
        {
            "train.csv": PAIRS,
            "search/study.db": "",
            "search/0/run.json": FINISHED,
            "search/search.json": "{}",
        },
        "train",
    ),
    Mistake(
        "a study.db that is gone",
        SEARCH,
        ["checkpoints/searches/search/study.db", "has runs of one"],
        {"train.csv": PAIRS, "checkpoints/searches/search/0/run.json": FINISHED},
        "train",
    ),
    Mistake(
        "a sweep in the folder of another",
        ["-m", *SHORT, "seed=1,2", "hydra.sweep.dir=sweep"],
        ["job 0", "sweep/0 already contains a run", "resume=", "hydra.sweep.dir="],
        {
            "train.csv": PAIRS,
            **{f"sweep/{job}/run.json": FINISHED for job in (0, 1)},
            "sweep/0/.hydra/overrides.yaml": "- seed=7\n",
        },
        "train",
    ),
    Mistake(
        "vectors without their record",
        STORE,
        ["store/mine/sentence", "contains files without their store.json", "benchmark.own_retrieval.store="],
        {SHARD: ""},
        "train.evaluate",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistakes(mistake: Mistake, tmp_path: Path, tiny_path: Path) -> None:
    """They change no file (Optuna gives an empty database its tables), and leave no folder."""
    write_collection(tmp_path / "mine")
    run_mistake(mistake, tmp_path, tiny_path)
    for name, content in mistake.files.items():
        assert name.endswith(".db") or (tmp_path / name).read_text(encoding="utf-8") == content
    left = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert left == {"mine", *(name.partition("/")[0] for name in mistake.files)}


def test_a_damaged_store_is_reported_and_mended(tmp_path: Path, tiny_path: Path) -> None:
    write_collection(tmp_path / "mine")
    assert run_sound(STORE, tmp_path, tiny_path, program="train.evaluate").returncode == 0
    scores = (tmp_path / "scores.json").read_text()
    whole = (tmp_path / SHARD).read_bytes()
    again = [*STORE[:-1], "output=again.json"]
    sound = run_sound(again, tmp_path, tiny_path, program="train.evaluate")
    assert "damaged" not in sound.stdout + sound.stderr
    (tmp_path / SHARD).write_bytes(whole[:200] + bytes(8) + whole[208:])
    mistake = Mistake(
        "", [*STORE[:-1], "output=mended.json"], [f"{SHARD} is damaged"], {}, "train.evaluate", 0
    )
    run_mistake(mistake, tmp_path, tiny_path)
    assert (tmp_path / SHARD).read_bytes() == whole
    first, *others = (json.loads((tmp_path / f"{n}.json").read_text())["scores"] for n in ("again", "mended"))
    assert [json.loads(scores)["scores"], *others] == [first, first]


def test_a_sweep_is_resumed_by_the_same_command(tmp_path: Path, tiny_path: Path) -> None:
    """What is finished is skipped, what was interrupted is resumed, what never started is run."""
    options = ["-m", *SHORT, "hydra.sweep.dir=sweep"]
    first = run_sound([*options, "seed=1,2"], tmp_path, tiny_path, {"train.csv": PAIRS}, "train")
    assert first.returncode == 0, first.stderr
    jobs = [tmp_path / "sweep" / str(number) for number in range(3)]
    record = json.loads((jobs[1] / "run.json").read_text())
    (jobs[1] / "run.json").write_text(json.dumps(record | {"status": "running"}))
    before = (jobs[0] / "run.json").read_bytes()
    again = run_sound([*options, "seed=1,2,3"], tmp_path, tiny_path, program="train")
    assert again.returncode == 0, again.stderr
    assert "sweep/0: this job is finished, and is skipped" in again.stderr
    assert (jobs[0] / "run.json").read_bytes() == before
    ended = [json.loads((job / "run.json").read_text()) for job in jobs]
    assert [run["status"] for run in ended] == ["finished"] * 3
    assert ["resumed" in run for run in ended] == [False, True, False]
    assert [run["seed"] for run in ended] == [1, 2, 3]


def test_a_search_without_a_folder_is_that_of_its_study(tmp_path: Path, tiny_path: Path) -> None:
    """Also where a kill left an empty file before the study's first record: nothing is lost there."""
    files = {"train.csv": PAIRS, "checkpoints/searches/search/study.db": ""}
    for left in (
        "0 of hydra.sweeper.n_trials=1 trials finished",
        "1 of hydra.sweeper.n_trials=1 trials finished",
    ):
        done = run_sound(SEARCH, tmp_path, tiny_path, files, "train")
        assert done.returncode == 0, done.stderr
        assert left in done.stdout + done.stderr
        files = {}
    (study,) = (tmp_path / "checkpoints").rglob("study.db")
    assert study.parent == tmp_path / "checkpoints" / "searches" / "search"
    assert (study.parent / "0" / "best").is_dir()
