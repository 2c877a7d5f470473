"""Outputs: nothing of the user's is lost, whoever works there, and however a program ends."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.mistakes import OWN, PAIRS, Mistake, run_mistake, run_sound
from tests.programs import program_env, run
from tests.tiny_runs import composed
from tests.tiny_runs import train as train_run
from train.encoder.encoder import Encoder
from train.encoder.glossary import Meanings
from train.errors import UserError
from train.io.claims import MovedError, TakenError, claimed

KILLS = int(os.environ.get("OUTPUT_KILLS", "1"))  # of whole programs, at random times
RECORD = "record.json"
MINE = {"out/thesis.txt": "all of it"}
EVALUATE = ("data=sample", "benchmark=[idiolink]", "device=cpu", "benchmark.idiolink.bm25_modes=[]")
LEARN = ("glossary=mine.tsv", "sentences=4", "steps=6", "device=cpu", "output=out")
GLOSSARY = {"mine.tsv": "expression\tmeaning\nmiss the boat\tbe too late\ntie the knot\tget married\n"}
SCORES = {"scores.json": '{"scores": {"a/b/c/d": 0.5}, "baseline": {}, "meta": {}}'}

MISTAKES = [
    Mistake(
        "export_to_a_users_folder",
        ["format=static", "output=out", "data=sample", "overwrite=true"],
        ["output=out: contains something else: choose a new folder"],
        MINE,
        "train.export",
    ),
    Mistake("learn_to_a_users_folder", LEARN, ["output=out", "new folder"], MINE | GLOSSARY, "train.learn"),
    Mistake(
        "scores_over_scores",
        [*EVALUATE, "output=scores.json"],
        ["output=scores.json: already exists", "overwrite=true"],
        SCORES,
        "train.evaluate",
    ),
    Mistake(
        "queries_over_queries",
        [*EVALUATE, "per_query=q.jsonl"],
        ["per_query=q.jsonl", "overwrite=true"],
        {"q.jsonl": "{}\n"},
        "train.evaluate",
    ),
    Mistake(
        "predictions_among_others",
        [*EVALUATE, "predictions=out", "overwrite=true"],
        ["predictions=out: contains something else: choose a new folder"],
        MINE,
        "train.evaluate",
    ),
    Mistake(
        "plots_among_others", [*EVALUATE, "plots=out"], ["plots=out", "new folder"], MINE, "train.evaluate"
    ),
    Mistake(
        "one_file_for_both",
        [*EVALUATE, "output=a.json", "per_query=a.json"],
        ["per_query=a.json: another process is working there"],
        program="train.evaluate",
    ),
    Mistake(
        "a_folder_as_file", [*EVALUATE, "output=out"], ["output=out", "new file"], MINE, "train.evaluate"
    ),
    Mistake(
        "below_a_file",
        [*EVALUATE, "output=mine.txt/scores.json"],
        ["output=mine.txt/scores.json cannot be written", "Not a directory"],
        {"mine.txt": "mine"},
        "train.evaluate",
    ),
    Mistake(
        "page_over_a_page",
        ["minilm", "corpus=sample", "output=page.html"],
        ["output=page.html: already exists", "overwrite=true"],
        {"page.html": "mine"},
        "train.explore",
    ),
    Mistake(
        "space_over_a_readme",
        ["minilm", "corpus=sample", "space=out"],
        ["space=out/README.md", "overwrite=true"],
        {"out/README.md": "mine"},
        "train.explore",
    ),
    Mistake("overwrite_what", ["minilm", "overwrite=perhaps"], ["overwrite", "perhaps"], {}, "train.explore"),
    Mistake(
        "report_over_a_table",
        ["scores.json", "output=out"],
        ["output=out/table.md: already exists: choose another"],
        SCORES | {"out/table.md": "mine"},
        "train.report",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_an_output_that_is_taken_is_refused_first(mistake: Mistake, tmp_path: Path, tiny_path: Path) -> None:
    if mistake.program in ("train.explore", "train.report"):  # have no `model=`
        done = run_without_model(mistake, tmp_path)
        printed = done.stdout + done.stderr
        assert done.returncode == mistake.status, printed
        assert all(part in printed for part in mistake.says), printed
    else:
        printed = run_mistake(mistake, tmp_path, tiny_path).stderr
    assert "scored" not in printed  # nothing was computed for it
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(mistake.files)
    for name, content in mistake.files.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == content


def run_without_model(mistake: Mistake, folder: Path) -> Any:
    for name, content in mistake.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return run(mistake.program, *mistake.options, cwd=folder)


@pytest.mark.slow
def test_what_may_be_written_is(tmp_path: Path, tiny_path: Path) -> None:
    """Empty files and folders (`mktemp`), new ones, and with overwrite=true the scores of before."""
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    outputs = ("per_query=new/q.jsonl", "predictions=folder", "plots=new/plots")
    done = run_sound((*EVALUATE, "output=empty", *outputs), tmp_path, tiny_path, program="train.evaluate")
    assert done.returncode == 0, done.stderr
    before = json.loads((tmp_path / "empty").read_text())["scores"]
    assert before
    (tmp_path / "empty").write_text("{}")
    again = (*EVALUATE, "output=empty", "overwrite=true")
    done = run_sound(again, tmp_path, tiny_path, program="train.evaluate")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "empty").read_text())["scores"] == before
    for _ in range(2):  # a report is made again of the same scores
        done = run("train.report", "empty", "output=report", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


# ---------------------------------------------------------------- one claim, in all ways it can end


def write_file(new: Path, text: str) -> None:
    new.write_text(text)


def write_folder(new: Path, text: str) -> None:
    for name in (RECORD, "weights"):
        (new / name).write_text(text)


def content(path: Path) -> list[str]:
    """Of a file, or of a folder's files; [] where there is nothing."""
    files = [path] if path.is_file() else sorted(path.glob("*"))
    return [file.read_text() for file in files]


Claim = Callable[..., Any]
KINDS = {
    "file": (partial(claimed, "output"), write_file, 1),
    "folder": (partial(claimed, "output", record=RECORD), write_folder, 2),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> tuple[Claim, Callable[[Path, str], None], int]:
    found: tuple[Claim, Callable[[Path, str], None], int] = KINDS[request.param]
    return found


@pytest.mark.parametrize("theirs", ["file", "folder", "empty file", "empty folder"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_appears_meanwhile_stays(
    tmp_path: Path, kind: tuple[Claim, Callable[[Path, str], None], int], theirs: str, overwrite: bool
) -> None:
    claim, write, num = kind
    out = tmp_path / "out"
    (tmp_path / "out-2").mkdir()  # taken, too
    inodes = []

    def work() -> None:
        with claim(out, overwrite=overwrite) as new:
            write(new, "ours")
            if "file" in theirs:
                out.write_text("theirs" * (theirs == "file"))
            else:
                out.mkdir()
                if theirs == "folder":
                    (out / "thesis.txt").write_text("theirs")
            inodes.append(out.stat().st_ino)

    with pytest.raises(MovedError, match=f"output={out}: something else .* stays: the output is {out}-3"):
        work()
    assert [out.stat().st_ino] == inodes
    assert content(out) == {"empty file": [""], "empty folder": []}.get(theirs, ["theirs"])
    assert content(tmp_path / "out-3") == ["ours"] * num
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out-2", "out-3"]


def test_a_folder_that_fills_meanwhile_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    def work() -> None:
        with claimed("output", tmp_path / "out", record=RECORD, overwrite=True) as new:
            write_folder(new, "ours")
            (tmp_path / "out" / "thesis.txt").write_text("theirs")

    with pytest.raises(MovedError, match="out-2"):
        work()
    assert content(tmp_path / "out") == ["theirs"]


def test_one_output_that_is_taken_does_not_cost_the_other(tmp_path: Path) -> None:
    def work() -> None:
        with claimed("per_query", tmp_path / "b") as other, claimed("output", tmp_path / "a") as new:
            write_file(new, "ours")
            write_file(other, "ours, too")
            (tmp_path / "a").write_text("theirs")

    with pytest.raises(MovedError, match="a-2"):
        work()
    assert content(tmp_path / "a-2") == ["ours"]
    assert content(tmp_path / "b") == ["ours, too"]


def test_a_failure_leaves_nothing(
    tmp_path: Path, kind: tuple[Claim, Callable[[Path, str], None], int]
) -> None:
    claim, write, num = kind
    with claim(tmp_path / "out") as new:
        write(new, "before")

    def fail(error: BaseException) -> None:
        with claim(tmp_path / "out", overwrite=True) as new:
            write(new, "ours")
            raise error

    for error in (UserError("slip"), KeyboardInterrupt(), OSError("disk")):
        with pytest.raises(type(error)):
            fail(error)
        assert content(tmp_path / "out") == ["before"] * num
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_read_only_place_is_named(tmp_path: Path) -> None:
    for path in (Path("/proc/out"), Path("/sys/out/deep"), Path("/"), tmp_path / ("a" * 300)):
        with pytest.raises(UserError, match=r"^output="), claimed("output", path, record=RECORD):
            pass
    assert not list(tmp_path.iterdir())


class Child:
    """A forked process that claims an output, and is killed before the `at`-th change to the file system."""

    EVENTS = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "open", "shutil.rmtree", "os.truncate")

    def __init__(self, work: Callable[[], None], at: int | None = None) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        status, seen = 1, 0

        def count(event: str, _: object) -> None:
            nonlocal seen
            if event in self.EVENTS:  # which the kill is not, an event itself
                seen += 1
                if seen == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        if at is not None:
            sys.addaudithook(count)
        try:
            work()
            status = 0
        except MovedError:
            status = 4
        except TakenError:
            status = 3
        except UserError:
            status = 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def end(self) -> int:
        """Exit status, or minus the signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize("replaces", [False, True])
def test_killed_at_any_point(
    tmp_path: Path, kind: tuple[Claim, Callable[[Path, str], None], int], replaces: bool
) -> None:
    """Nothing, the old one or the new one is there, complete; the next start has it, and leaves no stray."""
    claim, write, num = kind

    def work(text: str, overwrite: bool = replaces) -> None:
        with claim(tmp_path / "out", overwrite=overwrite) as new:
            write(new, text)

    for at in range(1, 200):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        if replaces:
            work("old")
        status = Child(partial(work, "new"), at).end()
        assert status in (0, -signal.SIGKILL)
        there = content(tmp_path / "out")
        complete = [["new"] * num, ["old"] * num] if replaces else [["new"] * num]
        is_refused = False
        try:
            work("again", overwrite=False)
        except UserError:
            is_refused = True
        after = content(tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["out"], at
        assert after in [*complete, ["again"] * num], at
        if there not in ([], [""]):  # the touch of a moment, or a folder just made
            assert there in complete
            assert is_refused
            assert after == there, at
        elif replaces:
            assert is_refused
            assert after == ["old"] * num, at
        if status == 0:
            assert at > 10
            return
    raise AssertionError("never came to its end")


def test_of_a_race_one_wins(tmp_path: Path, kind: tuple[Claim, Callable[[Path, str], None], int]) -> None:
    claim, write, num = kind

    def work(text: str) -> None:
        with claim(tmp_path / "out") as new:
            write(new, text)
            time.sleep(random.random() / 100)

    for number in range(4):
        ended = [child.end() for child in [Child(partial(work, f"{number}-{i}")) for i in range(5)]]
        assert ended.count(0) == 1, ended
        assert set(ended) <= {0, 2, 3}
        assert content(tmp_path / "out") == [f"{number}-{ended.index(0)}"] * num
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


# ---------------------------------------------------------------- whole programs


def start(program: str, *options: str, folder: Path) -> warm.Program:
    log = (folder / f"{program}.log").open("ab")
    with Path(os.devnull).open("rb") as none, log:
        arguments, env = ["-m", program, *options], program_env()
        return warm.Program(arguments, cwd=folder, env=env, streams=[none, log, log])


@pytest.mark.slow
@pytest.mark.parametrize("program", ["train.learn", "train.export", "train.evaluate"])
def test_of_two_programs_with_one_output_one_wins(program: str, tmp_path: Path, tiny_path: Path) -> None:
    """The other exits with status 2 and names the output, of which not a byte is its own."""
    (tmp_path / "one.tsv").write_text(GLOSSARY["mine.tsv"])
    (tmp_path / "two.tsv").write_text("expression\tmeaning\nspill the beans\ttell a secret\n")
    model = ("model=pretrained", f"model.path={tiny_path}", "output=out")
    ways: dict[str, list[tuple[str, ...]]] = {
        "train.learn": [(*LEARN, f"glossary={name}.tsv") for name in ("one", "two")],
        "train.export": [("format=static", "data=sample", f"truncate_dim={n}") for n in (8, 16)],
        "train.evaluate": [(*EVALUATE, f"model.max_length={n}") for n in (63, 64)],
    }
    with ThreadPoolExecutor(2) as threads:
        starts = [threads.submit(run, program, *way, *model, cwd=tmp_path) for way in ways[program]]
        ended = [start.result() for start in starts]
    assert sorted(done.returncode for done in ended) == [0, 2], ended
    winner = [done.returncode for done in ended].index(0)
    loser = ended[1 - winner].stderr
    assert "output=out: another process is working there" in loser or "output=out: is there" in loser
    if program == "train.learn":
        record = json.loads((tmp_path / "out" / "learnt.json").read_text())
        assert Path(record["glossary"]["files"][0]).name == f"{('one', 'two')[winner]}.tsv"
        assert len(record["reached"]) == 2 - winner
    elif program == "train.export":
        assert Encoder.from_pretrained(tmp_path / "out", device="cpu").dimension == (8, 16)[winner]
    else:
        meta = json.loads((tmp_path / "out").read_text())["meta"]
        assert meta["config"]["model"]["max_length"] == (63, 64)[winner]
    assert {path.name for path in tmp_path.iterdir()} == {"one.tsv", "two.tsv", "out"}


@pytest.mark.slow
def test_an_export_leaves_a_folder_that_appears_meanwhile(tmp_path: Path, tiny_path: Path) -> None:
    model = ("model=pretrained", f"model.path={tiny_path}")
    program = start("train.export", "format=static", "data=sample", "output=out", *model, folder=tmp_path)
    while not (tmp_path / ".out.partial" / "new" / "out").exists():
        assert program.poll() is None
        time.sleep(0.005)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("all of it")
    assert program.wait(60) == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]
    assert "something else was put there meanwhile" in (tmp_path / "train.export.log").read_text()
    assert Encoder.from_pretrained(tmp_path / "out-2", device="cpu").dimension > 0


def files_of(path: Path) -> dict[str, bytes]:
    """What does not depend on the time: of scores no speeds, of an export neither record nor card."""
    if path.is_file():
        return {"scores": json.dumps(json.loads(path.read_text())["scores"]).encode()}
    names = {"export.json"} | {"README.md"} if (path / "export.json").is_file() else set()
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name not in names]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


LEARNT = ("glossary=mine.tsv", "corpus=corpus.txt", "sentences=2", "steps=6", "epochs=4", "device=cpu")
PROGRAMS = {
    "tokens": ("train.learn", *LEARNT, "into=tokens"),
    "weights": ("train.learn", *LEARNT, "into=weights"),
    "export": ("train.export", "format=static", "data=sample"),
    "evaluate": ("train.evaluate", *EVALUATE),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_killed_at_random_it_ends_as_if_it_had_not_been(name: str, tmp_path: Path, tiny_path: Path) -> None:
    """A learnt model is the same bit for bit, and no start leaves a stray that the next does not remove."""
    program, *options = PROGRAMS[name]
    (tmp_path / "mine.tsv").write_text(GLOSSARY["mine.tsv"])
    (tmp_path / "corpus.txt").write_text("They tied the knot in May.\nHe missed the boat.\nIt rained.\n")
    options += ["model=pretrained", f"model.path={tiny_path}"]
    whole, cut, log = (tmp_path / part for part in ("whole", "cut", f"{program}.log"))
    seconds = 0.0
    for _ in range(2):  # first with the imports of a session's first program
        assert not whole.exists() or not (shutil.rmtree if whole.is_dir() else Path.unlink)(whole)
        began = time.monotonic()
        assert start(program, *options, "output=whole", folder=tmp_path).wait(100) == 0
        seconds = time.monotonic() - began
    for _ in range(KILLS):
        while True:
            started = start(program, *options, "output=cut", folder=tmp_path)
            time.sleep(random.uniform(0.2, 1.1) * seconds)
            started.kill()
            status = started.wait(10)
            if cut.exists() and files_of(cut):  # if at all, complete
                assert files_of(cut) == files_of(whole)
            if status not in (0, -signal.SIGKILL):  # it was complete, and was killed after
                assert "output=cut: already exists" in log.read_text().splitlines()[-1]
            if status != -signal.SIGKILL:
                break
        assert files_of(cut) == files_of(whole)
        assert not list(tmp_path.glob(".*"))
        (shutil.rmtree if cut.is_dir() else Path.unlink)(cut)


@pytest.mark.slow
def test_killed_after_its_last_expression_a_learnt_model_is_the_same(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start reads no text: its tokenizer truncates as it would have by then."""
    from train.config import LearnSettings, check
    from train.programs import learn as recipe

    (tmp_path / "mine.tsv").write_text(GLOSSARY["mine.tsv"])

    def learn(name: str) -> Path:
        options = [f"glossary={tmp_path / 'mine.tsv'}", "sentences=2", "steps=2", "device=cpu"]
        options += ["model=pretrained", f"model.path={tiny_path}", f"output={tmp_path / name}"]
        return recipe.learn(check(LearnSettings, composed("learn", *options)))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    whole = learn("whole")
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "learnt_card", killed)
        with pytest.raises(KeyboardInterrupt, match="repeat the command to resume it"):
            learn("cut")
    assert not (tmp_path / "cut").exists()
    assert files_of(learn("cut")) == files_of(whole)
    assert json.loads((whole / "tokenizer.json").read_text())["truncation"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "mine.tsv", "whole"]


# ---------------------------------------------------------------- all of a model's files


@pytest.fixture
def knowing(tmp_path: Path, tiny_path: Path) -> Path:
    """A model that was saved with a glossary and an idiom token."""
    encoder = Encoder.from_pretrained(tiny_path, device="cpu")
    encoder.add_idiom_tokens(["spill the beans"], start="random")
    encoder.meanings = Meanings({"break the ice": ["make people relax"]})
    encoder.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["glossary.json", "idiom_tokens.json"])
def test_a_file_that_a_model_was_saved_with_is_missed(knowing: Path, name: str) -> None:
    texts = ["They broke the ice, and spilled the beans."]
    before = Encoder.from_pretrained(knowing, device="cpu").encode(texts)
    config = knowing / "config_sentence_transformers.json"
    (knowing / name).rename(knowing / "aside")
    with pytest.raises(UserError, match=f"{name}, which it was saved with, is missing"):
        Encoder.from_pretrained(knowing, device="cpu")
    (knowing / "aside").rename(knowing / name)
    assert torch.equal(Encoder.from_pretrained(knowing, device="cpu").encode(texts), before)
    facts = json.loads(config.read_text())
    del facts["idiomtune_files"]  # a model that was saved before
    config.write_text(json.dumps(facts))
    assert torch.equal(Encoder.from_pretrained(knowing, device="cpu").encode(texts), before)


def test_other_libraries_read_and_save_it_as_before(knowing: Path, tmp_path: Path) -> None:
    """What sentence-transformers saves again has none of these files, and does not claim to."""
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(str(knowing), device="cpu")
    plain.save_pretrained(str(tmp_path / "plain"))
    assert "idiomtune_files" not in (tmp_path / "plain" / "config_sentence_transformers.json").read_text()
    Encoder.from_pretrained(tmp_path / "plain", device="cpu")


@pytest.mark.slow
def test_a_run_without_its_glossary_is_not_scored(tmp_path: Path, tiny_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text(GLOSSARY["mine.tsv"])
    (tmp_path / "train.csv").write_text(PAIRS)
    options = [*OWN, "trainer.max_steps=1", "trainer.batch_size=8", "model=pretrained"]
    options += [f"data.train={tmp_path / 'train.csv'}", f"model.glossary=[{tmp_path / 'mine.tsv'}]"]
    train_run(tmp_path / "run", [*options, f"model.path={tiny_path}"])
    (tmp_path / "run" / "best" / "glossary.json").unlink()
    done = run("train.evaluate", *EVALUATE, "model=pretrained", "model.path=run/best", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "run/best: glossary.json, which it was saved with, is missing" in done.stderr
