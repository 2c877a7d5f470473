"""Programs that are killed, raced and disturbed: learn, sweeps and searches.

What is expected:

- After kills the same command ends as if there had been none, bit for bit, and leaves nothing else behind. An
  output is complete or not there.
- Of two programs with one output one wins, whole, and the other exits with status 2.
- What a user puts in the place of an output meanwhile survives.
- A damaged study is reported by name, and is made again or refused.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.harmed import Harm
from tests.own_data import write, write_pairs
from tests.programs import ROOT, run
from tests.tiny_runs import assert_same_run

Damages = Mapping[str, Callable[[Path, random.Random], object]]
Report = Callable[[str, str, str], None]  # program, kind of harm, what was done
_MAX_KILLS = 3
_OUTPUT, _MINE = "out", "mine.txt"
_WORDS = "cat rate bag ice word king dog tree house river moon star fish bird road lamp hand foot song wind"


@dataclass(frozen=True)
class Ended:
    """How a program ended; a negative status is a signal's."""

    status: int
    output: str


@dataclass(frozen=True)
class Whole:
    """What a program that was left alone does: its time, its points, its files."""

    seconds: float
    points: int
    files: dict[str, bytes]


def contents(folder: Path) -> dict[str, bytes]:
    """All files, without those of locks."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "lock")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class Program(ABC):
    """A program with its inputs, and what harms it.

    Args:
        place: a folder for all that it makes.
        model: a tiny one.
        report: called with each harm.
    """

    name: str
    module: str
    watch: Sequence[str]

    def __init__(self, place: Path, model: Path, damages: Damages, report: Report) -> None:
        self.place, self.model, self.damages, self._report = place / self.name, model, damages, report
        self._number = 0
        self._is_prepared = False
        self.place.mkdir(parents=True)
        self.give()

    @abstractmethod
    def give(self) -> None:
        """Its inputs and options."""

    @abstractmethod
    def prepare(self) -> None:
        """How it ends when left alone."""

    @abstractmethod
    def rounds(self) -> Sequence[Callable[[Path, random.Random], None]]:
        """Each harms the program in a new folder, and raises AssertionError for what is not as expected."""

    def round(self, draw: random.Random) -> None:
        """One of them, in turn."""
        if not self._is_prepared:
            self.prepare()
            self._is_prepared = True
        rounds = self.rounds()
        folder = self.folder()
        rounds[self._number % len(rounds)](folder, draw)
        shutil.rmtree(folder)

    def folder(self) -> Path:
        self._number += 1
        folder = self.place / f"round_{self._number}"
        folder.mkdir()
        return folder

    def start(self, folder: Path, options: Sequence[str], harm: Harm | None = None) -> Ended:
        harm = replace(harm or Harm(), watch=list(self.watch))
        done = run(
            *("tests.harmed", json.dumps(asdict(harm)), self.module, *options),
            cwd=folder,
            environment={"PYTHONPATH": str(ROOT), "IDIOM_CACHE": str(self.place / "cache")},
        )
        ended = Ended(done.returncode, done.stdout + done.stderr)
        assert "Traceback" not in ended.output, ended.output
        return ended

    def whole(self, folder: Path, options: Sequence[str]) -> Whole:
        began = time.perf_counter()
        ended = self.start(folder, options, Harm(count="../points"))
        assert ended.status == 0, ended.output
        seconds = time.perf_counter() - began
        points = (self.place / "points").read_text().splitlines()
        return Whole(seconds, len(points), contents(folder))

    def kill(self, folder: Path, options: Sequence[str], whole: Whole, draw: random.Random) -> bool:
        """Start it and kill it; false if it had ended before."""
        if draw.random() < 0.75:
            at = draw.randint(1, whole.points)
            harm, words = Harm(at=at), f"at point {at} of {whole.points}"
        else:
            after = draw.uniform(0, whole.seconds)
            harm, words = Harm(after=after), f"after {after:.2f} s"
        ended = self.start(folder, options, harm)
        assert ended.status <= 0, ended.output
        if ended.status < 0:
            self._report(self.name, "kills", f"killed {words}")
        return ended.status < 0

    def both(self, folder: Path, first: Sequence[str], second: Sequence[str]) -> tuple[Ended, Ended]:
        """Two at once."""
        with ThreadPoolExecutor(2) as pool:
            one, other = (pool.submit(self.start, folder, options) for options in (first, second))
            return one.result(), other.result()


class Output(Program):
    """A program that makes a folder."""

    options: list[str]
    others: list[str]  # of a competing program
    watch = (_OUTPUT, f".{_OUTPUT}", ".tmp")

    def prepare(self) -> None:
        self._wholes = []
        for options in (self.options, self.options, self.others):
            self._wholes.append(self.whole(self.folder(), options))
        first, again, _ = self._wholes
        assert first.files.keys() == again.files.keys()
        # Such as those with a date, or with seconds.
        self._volatile = {name for name in first.files if first.files[name] != again.files[name]}

    def rounds(self) -> Sequence[Callable[[Path, random.Random], None]]:
        return [self._killed, self._killed, self._raced, self._disturbed]

    def _killed(self, folder: Path, draw: random.Random) -> None:
        whole = self._wholes[0]
        for _ in range(draw.randint(1, _MAX_KILLS)):
            if not self.kill(folder, self.options, whole, draw):
                break
            if (folder / _OUTPUT).exists():
                self._check(folder, whole)
                break
        else:
            ended = self.start(folder, self.options)
            assert ended.status == 0, ended.output
        if (folder / _OUTPUT).exists():  # the next start of all clears away what was left
            self.start(folder, self.options)
        self._check(folder, whole)
        assert [path.name for path in folder.iterdir()] == [_OUTPUT], list(folder.iterdir())

    def _raced(self, folder: Path, draw: random.Random) -> None:  # noqa: ARG002
        ended = self.both(folder, self.options, self.others)
        self._report(self.name, "races", "two programs with one output")
        statuses = [one.status for one in ended]
        assert sorted(statuses) == [0, 2], (statuses, *(one.output for one in ended))
        self._check(folder, self._wholes[0 if statuses[0] == 0 else 2])
        assert [path.name for path in folder.iterdir()] == [_OUTPUT], list(folder.iterdir())

    def _disturbed(self, folder: Path, draw: random.Random) -> None:
        """A user's folder appears in the output's place."""
        at = draw.randint(1, self._wholes[0].points)
        harm = Harm(at=at, how="put", path=f"{_OUTPUT}/{_MINE}", content="mine")
        ended = self.start(folder, self.options, harm)
        self._report(self.name, "races", f"a user's folder appears at point {at}")
        assert ended.status in (0, 2), ended.output
        mine = folder / _OUTPUT / _MINE
        assert mine.read_text(encoding="utf-8") == "mine", ended.output
        if ended.status == 0:  # the output was there already
            mine.unlink()
            self._check(folder, self._wholes[0])
        self.start(folder, self.options)
        left = {path.name for path in folder.iterdir()}
        assert left <= {_OUTPUT, f"{_OUTPUT}-2"}, left

    def _check(self, folder: Path, whole: Whole) -> None:
        files = contents(folder / _OUTPUT)
        expected = {name.removeprefix(f"{_OUTPUT}/"): content for name, content in whole.files.items()}
        assert files.keys() == expected.keys(), sorted(files.keys() ^ expected.keys())
        differing = [
            name
            for name in files
            if files[name] != expected[name] and f"{_OUTPUT}/{name}" not in self._volatile
        ]
        assert not differing, f"other than of an undisturbed program: {differing}"


class Learn(Output):
    name, module = "learn", "train.learn"

    def give(self) -> None:
        rows = {
            f"{verb} the {noun}": f"to {verb} it"
            for verb in ("kick", "spill", "tie")
            for noun in _WORDS.split()[:4]
        }
        lines = [f"{expression}\t{meaning}" for expression, meaning in rows.items()]
        mine = write(self.place / "mine.tsv", "\n".join(["expression\tmeaning", *lines]))
        other = write(self.place / "other.tsv", "expression\tmeaning\nbreak the ice\tmake people relax\n")
        common = ["model=pretrained", f"model.path={self.model}", "sentences=4", "steps=6", "device=cpu"]
        self.options = [*common, f"glossary={mine}", f"output={_OUTPUT}"]
        self.others = [*common, f"glossary={other}", f"output={_OUTPUT}"]


class Sweeps(Program):
    """Sweeps, and searches by Optuna."""

    name, module, watch = "sweeps", "train", ("sweep", "checkpoints")

    def give(self) -> None:
        pairs = write_pairs(self.place / "train.csv", 48)
        common = ["-m", "+experiment=own", "device=cpu", f"data.train={pairs}", "data.val_share=0.25"]
        common += ["model=pretrained", f"model.path={self.model}", "trainer.batch_size=16", "eval.every=1"]
        self._sweep = [*common, "trainer.max_epochs=1", "seed=1,2", "hydra.sweep.dir=sweep"]
        self._search = [*common, "trainer.max_epochs=1", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2"]
        self._search += ["trainer.learning_rate=choice(1e-3,1e-4)", "hydra.sweeper.sampler=random"]

    def prepare(self) -> None:
        first, second = self.folder(), self.folder()
        self._swept, self._searched = self.whole(first, self._sweep), self.whole(second, self._search)
        self._jobs, self._study = first / "sweep", second / "checkpoints" / "searches" / "search"

    def rounds(self) -> Sequence[Callable[[Path, random.Random], None]]:
        return [self._swept_again, self._searched_again, self._swept_again, self._damaged]

    def _swept_again(self, folder: Path, draw: random.Random) -> None:
        for _ in range(draw.randint(1, _MAX_KILLS)):
            finished = self._finished(folder / "sweep")
            is_killed = self.kill(folder, self._sweep, self._swept, draw)
            assert finished.items() <= self._finished(folder / "sweep").items()
            if not is_killed:
                break
        ended = self.start(folder, self._sweep)
        assert ended.status == 0, ended.output
        assert len(self._finished(folder / "sweep")) == len(list(self._jobs.glob("[0-9]")))
        for job in self._jobs.glob("[0-9]"):
            assert_same_run(job, folder / "sweep" / job.name)
        assert {path.name for path in (folder / "sweep").iterdir()} == {p.name for p in self._jobs.iterdir()}

    def _finished(self, sweep: Path) -> dict[str, str]:
        records = {path.parent.name: path.read_text(encoding="utf-8") for path in sweep.glob("*/run.json")}
        return {name: text for name, text in records.items() if json.loads(text)["status"] == "finished"}

    def _searched_again(self, folder: Path, draw: random.Random) -> None:
        study = folder / "checkpoints" / "searches" / "search"
        for _ in range(draw.randint(1, _MAX_KILLS)):
            finished = self._finished(study)
            is_killed = self.kill(folder, self._search, self._searched, draw)
            assert finished.items() <= self._finished(study).items()
            if not is_killed:
                break
        ended = self.start(folder, self._search)
        assert ended.status == 0, ended.output
        trials = json.loads((study / "search.json").read_text(encoding="utf-8"))["trials"]
        complete = [trial for trial in trials if trial["state"] == "complete"]
        assert len(complete) == 2, trials
        assert {Path(trial["folder"]).name for trial in complete} == self._finished(study).keys(), trials

    def _damaged(self, folder: Path, draw: random.Random) -> None:
        study = folder / "checkpoints" / "searches" / "search"
        shutil.copytree(self._study, study)
        kind = draw.choice([kind for kind in self.damages if kind != "flipped"])  # SQLite has no sums
        self.damages[kind](study / "study.db", draw)
        before = contents(study)
        ended = self.start(folder, self._search)
        self._report(self.name, "damages", f"study.db {kind}")
        assert ended.status == 2, ended.output
        assert "study.db" in ended.output, ended.output
        after = contents(study)
        assert {n: c for n, c in after.items() if n != "study.db"} == {
            n: c for n, c in before.items() if n != "study.db"
        }


PROGRAMS: dict[str, type[Program]] = {one.name: one for one in (Learn, Sweeps)}
