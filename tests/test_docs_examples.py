"""The worked examples of docs/: a user's own package brings a loss, a benchmark and data."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from idiomtune.programs.new import TEMPLATES
from tests.doc_pages import page_files, put_into, shell_lines
from tests.programs import ROOT, run

CONF = ("--config-dir", "my_idioms/conf")
SEARCH = "own_retrieval/search/ndcg@10"
OWN = "extensions=[my_idioms.rewording,my_idioms.contrast]"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the project with what the pages show."""
    folder = tmp_path_factory.mktemp("extension")
    pages = ("adding-a-loss", "adding-an-objective", "adding-a-benchmark", "is-my-objective-right")
    touched = [path for page in pages for path in put_into(folder, page_files(ROOT / "docs" / f"{page}.md"))]
    code = sorted({str(path) for path in touched if path.suffix == ".py"})
    assert len(code) == 6
    settings = ("--config", str(ROOT / "pyproject.toml"), "--config", f'src=["{ROOT}", "{folder}"]')
    for command in (("check",), ("format", "--check")):
        python(folder, "-m", "ruff", *command, *settings, *code)
    return folder


def python(folder: Path, *arguments: str, status: int = 0) -> str:
    paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    done = run(*arguments[1:], cwd=folder, environment=paths)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_their_tests_pass(package: Path) -> None:
    python(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests")


@pytest.mark.slow
def test_a_users_own_package_trains_scores_and_reports(package: Path, tiny_path: Path) -> None:
    """With the same checks, tables, comparisons and card as what comes with the project."""
    model = ("data=sample", "device=cpu", f"model={tiny_path}", "data.rewording=rewordings")
    python(
        package,
        *("-m", "train", *CONF, "+experiment=contrast", OWN, *model, "benchmark=[semeval2022,rewording]"),
        *("trainer.max_steps=2", "eval.every=1", "trainer.monitor=rewording/val/accuracy", "run_dir=run"),
    )
    run = package / "run"
    trained = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    for scores in (trained["scores"], trained["baseline"]):
        assert 0 <= scores["rewording/val/accuracy"] <= 1
    assert any(path.endswith("rewordings/val.csv") for path in trained["meta"]["files"])
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [s["step"] for s in steps if "loss" in s] == [1, 2]
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    assert "rewording/val/accuracy" in card
    assert "rewording" in (run / "report.html").read_text(encoding="utf-8")
    python(package, "-m", "train", "resume=run")  # by its own record
    said = python(package, "-m", "train.report", "run", "extensions=my_idioms.rewording", "output=own")
    assert "by each query" not in said
    table = (package / "own" / "table.md").read_text(encoding="utf-8")
    assert "Rewording, val" in table
    compared = (package / "own" / "table.csv").read_text(encoding="utf-8")
    assert "rewording/val/accuracy" in compared
    python(package, "-m", "train.report", "run", "output=plain")  # who does not have the package
    assert "rewording, val" in (package / "plain" / "table.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_evaluation_scores_it(package: Path, tiny_path: Path) -> None:
    python(
        package,
        *("-m", "train.evaluate", *CONF, "extensions=[my_idioms.rewording]", "benchmark=[rewording]"),
        *("data.rewording=rewordings", f"model={tiny_path}", "device=cpu", "output=scores.json"),
    )
    scored = json.loads((package / "scores.json").read_text(encoding="utf-8"))
    assert list(scored["scores"]) == ["rewording/val/accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("trainer.monitor=rewording/val/acuracy",), ("rewording/val/acuracy", "rewording/val/accuracy")),
        (
            ("benchmark.rewording.split=[]", "objective.loss.temperature=0"),
            ("benchmark.rewording.split", "objective.loss.temperature"),
        ),
        (("extensions=[no_such_module]",), ("extensions", "no_such_module")),
        (("extensions=[json]",), ("extensions", "json", "DECLARED")),
    ],
)
def test_a_slip_is_named(
    package: Path, tiny_path: Path, options: tuple[str, ...], named: tuple[str, ...]
) -> None:
    given = [
        *(OWN, "data=sample", f"model={tiny_path}", "device=cpu", "data.rewording=rewordings"),
        "benchmark=[semeval2022,rewording]",
    ]
    replaced = {option.partition("=")[0] for option in options}
    kept = [option for option in given if option.partition("=")[0] not in replaced]
    said = python(package, "-m", "train", *CONF, "+experiment=contrast", *kept, *options, status=2)
    assert all(part in said for part in named), said
    assert "Traceback" not in said


def marked_commands(folder: Path, name: str, model: Path) -> list[list[str]]:
    """The commands that a page says are run here, its files put into a folder; a smaller model, two steps."""
    page = ROOT / "docs" / name
    put_into(folder, page_files(page))
    marked = r"run by tests/test_docs_examples.py -->\n```\n(.*?)```"
    commands = []
    for command in re.findall(marked, page.read_text(encoding="utf-8"), flags=re.DOTALL):
        started, *arguments = shlex.split(command.replace("\\\n", " ").replace("<user/name>", "me/name"))
        if started == "idiomtune":
            module = f"train.{arguments[0]}".removesuffix(".train")
            arguments = ["-m", module, *arguments[1:]]
        arguments = [a for a in arguments if a != "model=minilm"]
        program = arguments[1].partition(".")[2]
        if program not in ("push", "report"):
            arguments.append("device=cpu")
            if not any(a.startswith("model=") for a in arguments):
                arguments.append(f"model={model}")
        if program == "learn":
            arguments += ["steps=2", "sentences=2"]
        if not program:
            arguments.append("trainer.max_steps=2")
            if not any(a.startswith("run_dir=") for a in arguments):
                arguments.append("run_dir=run")
        commands.append(arguments)
    return commands


@pytest.mark.slow
def test_the_tutorial_from_the_list_to_the_dry_run(tmp_path: Path, tiny_path: Path) -> None:
    shutil.copytree(TEMPLATES, tmp_path, dirs_exist_ok=True)
    commands = marked_commands(tmp_path, "tutorial.md", tiny_path)
    said = {arguments[1]: python(tmp_path, *arguments) for arguments in commands}
    assert "in order" in said["train.check"]
    assert (tmp_path / "runs" / "idioms" / "report.html").is_file()
    assert all(part in said["train.push"] for part in ("model.safetensors", "cc-by-4.0", "me/name"))
    assert "spilled the beans" not in said["train.push"]  # the card quotes no sentence
    assert "on held-out rows of the user's own data" in said["train.push"]  # its limits are not IdioLink's
    trained, learnt = (
        json.loads((tmp_path / "runs" / name).read_text(encoding="utf-8"))["scores"]
        for name in ("idioms/scores.json", "learnt.json")
    )
    assert trained.keys() == learnt.keys()
    assert learnt != trained
    assert 1 <= trained["own_val/span/median_rank"] <= 29


@pytest.mark.slow
def test_a_configuration_of_ones_own(tmp_path: Path, tiny_path: Path) -> None:
    """The page's experiment and model, whose weights are elsewhere, are taken."""
    (arguments,) = marked_commands(tmp_path, "configuration.md", tiny_path)
    said = python(tmp_path, *arguments, f"model.path={tiny_path}")
    assert "in order" in said
    shown = python(tmp_path, "-m", "train", *arguments[2:], "--cfg", "job")
    assert all(
        part in shown for part in ("max_epochs: 2", "path: intfloat/e5-small-v2", "split:\n    - val\n")
    )


@pytest.mark.slow
def test_a_mixture_is_trained_and_each_part_scored(tmp_path: Path, tiny_path: Path) -> None:
    (arguments,) = marked_commands(tmp_path, "mixtures.md", tiny_path)
    python(tmp_path, *arguments)
    scores = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert {"own_val/score", "own_val/faq/ndcg@10", "own_val/rated/spearman"} <= scores.keys()


@pytest.mark.slow
def test_own_data_is_scored_and_monitored(tmp_path: Path, tiny_path: Path) -> None:
    """The page's commands on the page's files; a smaller model, and two steps."""
    commands = marked_commands(tmp_path, "own-data-scoring.md", tiny_path)
    assert len(commands) == 3
    for arguments in commands:
        assert "own_" in python(tmp_path, *arguments)
    trained = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))
    scored = json.loads((tmp_path / "search.json").read_text(encoding="utf-8"))
    key = "own_retrieval/search/ndcg@10"
    assert trained["baseline"][key] == pytest.approx(scored["scores"][key])
    assert {"own_sts/pairs/spearman", key} <= trained["scores"].keys()
    assert not any("idiolink" in name for name in trained["scores"])


@pytest.mark.slow
def test_own_data_from_the_file_to_the_scores(tmp_path: Path, tiny_path: Path) -> None:
    """Three ways: checked, trained, scored again; a smaller model, and two steps."""
    page = ROOT / "docs" / "own-data.md"
    put_into(tmp_path, page_files(page))
    commands = [shlex.split(line)[1:] for line in shell_lines(page) if not re.search(" resume=|tests", line)]
    commands = [command for command in commands if len(command) > 1 and not re.search("<", " ".join(command))]
    assert [command[0] for command in commands] == ["check", "train", "evaluate"] * 3
    for command, *arguments in commands:
        arguments = ["device=cpu", "precision=fp32", *arguments]  # else chosen by what is faster now
        if command != "evaluate":
            arguments.append(f"model={tiny_path}")
        if command == "train":
            arguments.append("trainer.max_steps=2")
        before = sorted(tmp_path.iterdir())
        said = python(tmp_path, "-m", f"train.{command}".removesuffix(".train"), *arguments)
        if command == "check":
            assert sorted(tmp_path.iterdir()) == before
            assert all(part in said for part in ("steps an epoch", "benchmark own_", "in order"))
    for name, key in (("pairs", "own_val/score"), ("senses", "own_val/span/ndcg@10"), ("search", SEARCH)):
        trained = json.loads((tmp_path / "runs" / name / "scores.json").read_text(encoding="utf-8"))
        scored = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert trained["scores"][key] == pytest.approx(scored["scores"][key])
        assert key in trained["baseline"]


def results(name: str) -> tuple[str, str]:
    return f"output={name}.json", f"per_query={name}.jsonl"


@pytest.mark.slow
def test_ten_expressions_from_start_to_finish(tmp_path: Path, minilm_path: str) -> None:
    """The page on knowledge: its table is scored with, learnt, and scored again with nothing inserted."""
    (path,) = put_into(tmp_path, page_files(ROOT / "docs" / "knowledge.md"))
    sample = (
        *("data=sample", "device=cpu", "benchmarks=[idiolink]", "split=[val+train]"),
        *("benchmark.idiolink.query_modes=[span]", "benchmark.idiolink.bm25_modes=[]"),
    )
    model = (f"model={minilm_path}", *sample)
    said = python(tmp_path, "-m", "train.evaluate", *model, f"model.glossary={path}", *results("beside"))
    said = " ".join(said.split())  # tables break lines
    assert "with a glossary (my_idioms.tsv)" in said
    assert "take someone for a ride" in said.partition("in none of these texts: ")[2]
    python(tmp_path, "-m", "train.evaluate", *model, *results("without"))
    python(tmp_path, "-m", "train.report", "without.json", "beside.json", "output=compared")
    compared = (tmp_path / "compared" / "table.md").read_text(encoding="utf-8")
    assert "with a glossary (my_idioms.tsv)" in compared
    assert re.search(r"\| pull the plug \| [+-]0\.", compared)
    learn = (
        f"model={minilm_path}",
        f"glossary={path}",
        "output=my_model",
        "device=cpu",
        "sentences=4",
        "steps=4",
    )
    assert "my_model" in python(tmp_path, "-m", "train.learn", *learn).splitlines()
    said = python(tmp_path, "-m", "train.evaluate", "model=my_model", *sample, "output=learnt.json")
    assert "with a glossary, learnt (my_idioms.tsv)" in " ".join(said.split())
    without, beside, learnt = (
        json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("without", "beside", "learnt")
    )
    assert without["meta"]["glossary"] is None
    assert beside["meta"]["glossary"]["licences"] == ["CC0-1.0"]
    assert learnt["meta"]["glossary_learnt"][0]["licences"] == ["CC0-1.0"]
    key = "idiolink/val+train/span/recall_at_r/sense"
    assert min(beside["scores"][key], learnt["scores"][key]) > without["scores"][key]
