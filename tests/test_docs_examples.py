"""The worked examples of docs/: a user's own package brings a loss, a benchmark and data."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from idiomtune.programs.new import TEMPLATES
from tests.doc_pages import page_files, put_into, shell_lines
from tests.programs import ROOT, run

pytestmark = pytest.mark.slow

SEARCH = "own_retrieval/search/ndcg@10"
PACKAGE = (
    *("--config-dir", "my_idioms/conf", "data=sample", "device=cpu", "data.rewording=rewordings"),
    *("extensions=[my_idioms.rewording,my_idioms.contrast]", "benchmark=[semeval2022,rewording]"),
)


def python(folder: Path, *arguments: str, status: int = 0) -> str:
    """What `python -m <arguments>` prints, without line breaks, which tables have."""
    done = run(*arguments, cwd=folder, environment={"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"})
    assert done.returncode == status, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the project with what the pages show."""
    folder = tmp_path_factory.mktemp("extension")
    pages = ("adding-a-loss", "adding-an-objective", "adding-a-benchmark")
    touched = [path for page in pages for path in put_into(folder, page_files(ROOT / "docs" / f"{page}.md"))]
    code = sorted({str(path) for path in touched if path.suffix == ".py"})
    assert len(code) == 7
    settings = ("--config", str(ROOT / "pyproject.toml"), "--config", f'src=["{ROOT}", "{folder}"]')
    for command in (("check",), ("format", "--check")):
        python(folder, "ruff", *command, *settings, *code)
    return folder


@pytest.mark.usefixtures("shown")
def test_a_users_own_package(package: Path, tiny_path: Path) -> None:
    """Its tests pass; with the same checks, tables, comparisons and card as what comes with the project."""
    python(package, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests")
    python(
        package,
        *("train", *PACKAGE, "+experiment=contrast", f"model={tiny_path}", "run_dir=run"),
        *("trainer.max_steps=2", "eval.every=1", "trainer.monitor=rewording/val/accuracy"),
    )
    trained = read(package / "run" / "scores.json")
    for scores in (trained["scores"], trained["baseline"]):
        assert 0 <= scores["rewording/val/accuracy"] <= 1
    assert any(path.endswith("rewordings/val.csv") for path in trained["meta"]["files"])
    steps = [json.loads(line) for line in (package / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [s["step"] for s in steps if "loss" in s] == [1, 2]
    assert "rewording/val/accuracy" in (package / "run" / "best" / "README.md").read_text(encoding="utf-8")
    assert "rewording" in (package / "run" / "report.html").read_text(encoding="utf-8")
    python(package, "train", "resume=run", status=2)  # its record alone imports nothing
    python(package, "train", "resume=run", PACKAGE[5])
    python(package, "idiomtune", "report", "run", "extensions=my_idioms.rewording", "output=own")
    assert "Rewording, val" in (package / "own" / "table.md").read_text(encoding="utf-8")
    assert "rewording/val/accuracy" in (package / "own" / "table.csv").read_text(encoding="utf-8")
    python(package, "idiomtune", "report", "run", "output=plain")  # who does not have the package
    assert "rewording, val" in (package / "plain" / "table.md").read_text(encoding="utf-8")
    evaluated = (f"model={tiny_path}", "benchmark=[rewording]", "output=scores.json")
    python(package, "idiomtune", "evaluate", *PACKAGE[:-1], *evaluated)
    assert list(read(package / "scores.json")["scores"]) == ["rewording/val/accuracy"]


def test_what_an_extension_declares_is_chosen_without_a_file(package: Path, tiny_path: Path) -> None:
    split = "benchmark.rewording.split=val"
    chosen = (*PACKAGE[2:-1], f"model={tiny_path}", "benchmark=[rewording]", "objective=contrast")
    options = ("objective.loss.temperature=0.1", "trainer.monitor=rewording/val/accuracy")
    python(package, "idiomtune", "check", *chosen, split, *options)
    for missing in (split, options[0]):
        given = [option for option in (*chosen, split, *options) if option != missing]
        assert missing.partition("=")[0] in python(package, "idiomtune", "check", *given, status=2)


def test_a_slip_is_named(package: Path, tiny_path: Path) -> None:
    for options, named in (
        ("trainer.monitor=rewording/val/acuracy", "rewording/val/acuracy rewording/val/accuracy"),
        (
            "benchmark.rewording.split=[] objective.loss.temperature=0",
            "benchmark.rewording.split objective.loss.temperature",
        ),
        ("extensions=[no_such_module]", "extensions no_such_module"),
        ("extensions=[json]", "extensions json DECLARED"),
    ):
        given = [option for option in PACKAGE if "extensions" not in options or "extensions" not in option]
        given += ["+experiment=contrast", f"model={tiny_path}", *options.split()]
        output = python(package, "train", *given, status=2)
        assert all(part in output for part in named.split()), output
        assert "Traceback" not in output


def commands(folder: Path, name: str, model: Path) -> list[list[str]]:
    """The commands of a page that are run here, its files put into a folder; a smaller model, two steps.

    They are marked; where none is, those that name a file.
    """
    page = ROOT / "docs" / name
    put_into(folder, page_files(page))
    text = page.read_text(encoding="utf-8").replace("\\\n", " ").replace("<user/name>", "me/name")
    marked = re.findall(r"run by tests/test_docs_examples.py -->\n```\n(.*?)```", text, flags=re.DOTALL)
    lines = marked or [
        line for line in shell_lines(page) if re.search(r"^idiomtune [^<]*\.(?:csv|jsonl?)\b", line)
    ]
    found = []
    for line in lines:
        _, program, *arguments = shlex.split(line)
        arguments = [argument for argument in arguments if argument != "model=minilm"]
        names = {argument.partition("=")[0] for argument in arguments}
        if program not in ("push", "report"):  # precision: else chosen by what is faster now
            arguments += ["device=cpu", *(["precision=fp32"] if program in ("train", "evaluate") else [])]
            arguments += [f"model={model}"] if "model" not in names else []
        if program == "learn":
            arguments += ["steps=2" if "into=tokens" in arguments else "epochs=1", "sentences=2"]
        if program == "train":
            arguments += ["trainer.max_steps=2", *(["run_dir=run"] if "run_dir" not in names else [])]
        found.append(["idiomtune", program, *arguments])
    return found


@pytest.mark.usefixtures("shown")
def test_the_tutorial_from_the_list_to_the_dry_run(tmp_path: Path, tiny_path: Path) -> None:
    shutil.copytree(TEMPLATES, tmp_path, dirs_exist_ok=True)
    found = commands(tmp_path, "tutorial.md", tiny_path)
    said = {command[1]: python(tmp_path, *command) for command in found}
    assert "in order" in said["check"]
    assert (tmp_path / "runs" / "idioms" / "report.html").is_file()
    assert all(part in said["push"] for part in ("model.safetensors", "cc-by-4.0", "me/name"))
    assert "spilled the beans" not in said["push"]  # the card quotes no sentence
    assert "on held-out rows of the user's own data" in said["push"]  # its limits are not IdioLink's
    names = ("idioms/scores.json", "learned.json")
    trained, learned = (read(tmp_path / "runs" / name)["scores"] for name in names)
    assert trained.keys() == learned.keys()
    assert learned != trained
    assert 1 <= trained["own_val/span/median_rank"] <= 29


def test_a_configuration_of_ones_own(tmp_path: Path, tiny_path: Path) -> None:
    """The page's experiment and model, whose weights are elsewhere, are taken."""
    ((package, program, *arguments),) = commands(tmp_path, "configuration.md", tiny_path)
    assert "in order" in python(tmp_path, package, program, *arguments, f"model.path={tiny_path}")
    shown = python(tmp_path, "train", *arguments, "--cfg", "job")
    assert all(part in shown for part in ("max_epochs: 2", "path: intfloat/e5-small-v2", "split: - val "))


def test_a_mixture_is_trained_and_each_part_scored(tmp_path: Path, tiny_path: Path) -> None:
    (command,) = commands(tmp_path, "objectives.md", tiny_path)
    python(tmp_path, *command)
    scores = read(tmp_path / "run" / "scores.json")["scores"]
    assert {"own_val/score", "own_val/faq/ndcg@10", "own_val/rated/spearman"} <= scores.keys()


def test_own_data_is_scored_and_monitored(tmp_path: Path, tiny_path: Path) -> None:
    """The page's commands on the page's files."""
    found = commands(tmp_path, "own-data-scoring.md", tiny_path)
    assert len(found) == 3
    for command in found:
        assert "own_" in python(tmp_path, *command)
    trained, scored = read(tmp_path / "run" / "scores.json"), read(tmp_path / "search.json")
    assert trained["baseline"][SEARCH] == pytest.approx(scored["scores"][SEARCH])
    assert {"own_sts/pairs/spearman", SEARCH} <= trained["scores"].keys()
    assert not any("idiolink" in name for name in trained["scores"])


def test_own_data_from_the_file_to_the_scores(tmp_path: Path, tiny_path: Path) -> None:
    """Three ways: checked, trained, scored again."""
    found = commands(tmp_path, "own-data.md", tiny_path)
    assert [command[1] for command in found] == ["check", "train", "evaluate"] * 3
    for command in found:
        before = sorted(tmp_path.iterdir())
        said = python(tmp_path, *command)
        if command[1] == "check":
            assert sorted(tmp_path.iterdir()) == before
            assert all(part in said for part in ("steps an epoch", "benchmark own_", "in order"))
    for name in ("pairs", "senses", "search"):
        key = "own_val/span/ndcg@10" if name == "senses" else "own_val/score"
        trained = read(tmp_path / "runs" / name / "scores.json")
        assert trained["scores"][key] == pytest.approx(read(tmp_path / f"{name}.json")["scores"][key])
        assert key in trained["baseline"]


def test_ten_expressions_from_start_to_finish(tmp_path: Path, minilm_path: str) -> None:
    """The page on knowledge: its table is scored with, learned, and scored again with nothing inserted."""
    (path,) = put_into(tmp_path, page_files(ROOT / "docs" / "knowledge.md"))
    sample = (
        *("data=sample", "device=cpu", "benchmarks=[idiolink]", "split=[val+train]"),
        *("benchmark.idiolink.query_modes=[span]", "benchmark.idiolink.bm25_modes=[]"),
    )

    def evaluated(name: str, *model: str) -> str:
        output = (f"output={name}.json", f"per_query={name}.jsonl")
        return python(tmp_path, "idiomtune", "evaluate", *model, *sample, *output)

    said = evaluated("beside", f"model={minilm_path}", f"model.glossary={path}")
    assert "with a glossary (my_idioms.tsv)" in said
    assert "take someone for a ride" in said.partition("in none of these texts: ")[2]
    evaluated("without", f"model={minilm_path}")
    python(tmp_path, "idiomtune", "report", "without.json", "beside.json", "output=compared")
    compared = (tmp_path / "compared" / "table.md").read_text(encoding="utf-8")
    assert "with a glossary (my_idioms.tsv)" in compared
    assert re.search(r"\| pull the plug \| [+-]0\.", compared)
    few = ("output=my_model", "device=cpu", "precision=fp32", "sentences=4", "epochs=1")
    assert "my_model" in python(
        tmp_path, "idiomtune", "learn", f"model={minilm_path}", f"glossary={path}", *few
    )
    assert "with a glossary, learned (my_idioms.tsv)" in evaluated("learned", "model=my_model")
    without, beside, learned = (read(tmp_path / f"{name}.json") for name in ("without", "beside", "learned"))
    assert without["meta"]["glossary"] is None
    assert beside["meta"]["glossary"]["licences"] == ["CC0-1.0"]
    assert learned["meta"]["glossary_learned"][0]["licences"] == ["CC0-1.0"]
    key = "idiolink/val+train/span/recall_at_r/sense"
    assert min(beside["scores"][key], learned["scores"][key]) > without["scores"][key]
