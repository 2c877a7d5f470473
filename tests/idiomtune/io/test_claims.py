"""One output, in all ways its making can end: nothing of the user's is lost, and none is there in part."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from idiomtune.errors import UserError
from idiomtune.io.outputs import reserved_output
from tests.programs import ROOT

RECORD = "record.json"


@dataclass
class Kind:
    is_folder: bool

    def make(
        self, path: Path, text: str, *, overwrite: bool = False, then: Callable[[], object] = str
    ) -> None:
        """Claim it, write it, and do something else before the claim ends."""
        with reserved_output(
            "output", path, record=RECORD if self.is_folder else None, overwrite=overwrite
        ) as new:
            for file in [new / RECORD, new / "weights"] if self.is_folder else [new]:
                file.write_text(text)
            then()

    def whole(self, text: str) -> list[str]:
        return [text, text] if self.is_folder else [text]


def content(path: Path) -> list[str]:
    return [file.read_text() for file in ([path] if path.is_file() else sorted(path.glob("*")))]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.fixture(params=["file", "folder"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param == "folder")


@pytest.mark.parametrize("appearing", ["a file", "a folder", "an empty folder"])
def test_what_appears_stays(
    tmp_path: Path, kind: Kind, appearing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The output gets the next free name, and a warning gives it."""
    out, is_empty = tmp_path / "out", appearing == "an empty folder"
    (tmp_path / "out-2").mkdir()  # taken, too

    def appear() -> None:
        if "folder" in appearing:
            out.mkdir()
        if not is_empty:
            (out / "thesis.txt" if out.is_dir() else out).write_text("theirs")

    kind.make(out, "ours", overwrite=not is_empty, then=appear)
    assert f"the output is {out}-3" in caplog.text
    assert content(out) == ([] if is_empty else ["theirs"])
    assert content(tmp_path / "out-3") == kind.whole("ours")
    assert names(tmp_path) == ["out", "out-2", "out-3"]


def test_a_failure_leaves_nothing(tmp_path: Path, kind: Kind) -> None:
    kind.make(tmp_path / "out", "before")
    for error in (UserError("slip"), KeyboardInterrupt(), OSError("disk")):
        with pytest.raises(type(error)):
            kind.make(tmp_path / "out", "ours", overwrite=True, then=Mock(side_effect=error))
        assert content(tmp_path / "out") == kind.whole("before")
        assert names(tmp_path) == ["out"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for path in (Path("/proc/out"), Path("/sys/out/deep"), Path("/"), tmp_path / ("a" * 300)):
        with pytest.raises(UserError, match=r"^output="), reserved_output("output", path, record=RECORD):
            pass
    assert not names(tmp_path)


EVENTS = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "open", "shutil.rmtree", "os.truncate")


def forked(work: Callable[[], None], at: int | None = None) -> int:
    """A process that claims an output, and is killed before the `at`-th change to the file system."""
    pid = os.fork()
    if pid:
        return pid
    seen, status = 0, 1

    def count(event: str, _: object) -> None:
        nonlocal seen
        seen += event in EVENTS  # which the kill is not, an event itself
        if event in EVENTS and seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        work()
        status = 0
    except UserError:
        status = 2
    finally:
        os._exit(status)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("is_folder", [False, True])
def test_killed_at_any_point(tmp_path: Path, is_folder: bool) -> None:
    """In a process that is small, so that to fork it takes a millisecond."""
    code = f"import sys, tests.idiomtune.io.test_claims as t; t.kill_at_each_point(sys.argv[1], {is_folder})"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)


def kill_at_each_point(folder: str, replaces: bool) -> None:
    """Nothing, the old one or the new one is there, complete; the next start has it, and leaves no stray."""
    tmp_path, kind = Path(folder), Kind(replaces)
    out = tmp_path / "out"
    complete = [kind.whole("new"), *([kind.whole("old")] if replaces else [])]
    for at in range(1, 200):
        emptied(tmp_path)
        if replaces:
            kind.make(out, "old")
        status = ended(forked(partial(kind.make, out, "new", overwrite=replaces), at))
        assert status in (0, -signal.SIGKILL)
        there, is_refused = content(out), False
        try:
            kind.make(out, "again")
        except UserError:
            is_refused = True
        after = content(out)
        assert names(tmp_path) == ["out"], at
        assert after in [*complete, kind.whole("again")], at
        if there not in ([], [""]):  # the touch of a moment, or a folder just made
            assert (is_refused, after) == (True, there), at
            assert there in complete
        elif replaces:
            assert (is_refused, after) == (True, kind.whole("old")), at
        if status == 0:
            assert at > 10
            return
    raise AssertionError("never came to its end")


def test_of_a_race_one_wins(tmp_path: Path, kind: Kind) -> None:
    """Of three processes at once; the others are refused, and leave nothing."""
    wait = partial(time.sleep, 0.01)
    processes = [forked(partial(kind.make, tmp_path / "out", text, then=wait)) for text in "abc"]
    statuses = [ended(process) for process in processes]
    assert sorted(statuses) == [0, 2, 2]
    assert content(tmp_path / "out") == kind.whole("abc"[statuses.index(0)])
    assert names(tmp_path) == ["out"]
