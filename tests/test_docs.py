"""What the README and docs/ show holds: commands, snippets, options, links, the API reference."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hydra
import pytest
import torch
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep
from omegaconf import OmegaConf
from PIL import Image

import idiomloss
from docs import conf, options, results, terms
from idiomtune import Encoder
from idiomtune.cli import PROGRAMS
from idiomtune.config import validate
from idiomtune.config.compose import fill
from idiomtune.config.sections import SearchSettings
from idiomtune.config.words import config_names, overrides_of, split_flags
from idiomtune.data.idiolink import Document
from idiomtune.plugins.models import CONF
from idiomtune.training.resume import find_run, saved_config
from tests.doc_pages import PAGES, blocks, inline, messages, page_files, shell_lines
from tests.own_data import write
from tests.programs import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
    pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension`:FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # model2vec closes no file
]

# Of other people, or of the shell: nothing of ours to check.
OTHERS = re.compile(
    r"(source|export|git clone|sed|grep|cd|jupyter notebook|pip install|python3 -m venv|hf|wandb|tensorboard|"
    r"\S+-venv/bin/\w+|\S+ -m build) |idiomtune --version|#|python -m train…|accelerate launch( --cpu)?$"
)
# Options that the worked examples add; a test of their own runs them.
OF_LIBRARIES = ("hydra.launcher.", "hydra.sweeper.pruner_options.", "hydra.sweeper.sampler_options.")
OF_EXAMPLES = ("+experiment=contrast", "rewording", "config.yaml", "+experiment=my_file.yaml")
# Pages whose files test_docs_examples.py runs, and those whose snippets run here.
WITH_FILES = {
    *("adding-a-loss", "adding-an-objective", "adding-a-benchmark", "configuration", "knowledge"),
    *("objectives", "own-data", "own-data-scoring", "tutorial"),
}
WITH_SNIPPETS = {"README", "ecosystem", "knowledge", "losses", "python", "using"}
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BEST = "checkpoints/idiolink_ft/<run>/best"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# ---- commands


@pytest.fixture
def folders(in_folder: Path) -> Path:
    """A working directory with a finished run, for `<run>`, in which data may be named."""
    config = composed("train", ("+experiment=idiolink_ft", "data=sample"))
    record = {"status": "interrupted", "experiment": "idiolink_ft"}
    write(in_folder / "run" / "config.yaml", yaml.safe_dump(config))
    write(in_folder / "run" / "run.json", json.dumps(record))
    (in_folder / "run" / "best").mkdir()
    return in_folder


def filled(command: str) -> str:
    """The command with something in place of each `<placeholder>`."""

    def value(match: re.Match[str]) -> str:
        if "/name" in match[2]:
            return "me/name"
        if re.search("run|its folder|sweep", match[2]):
            return "run"  # with the folder above it
        return f"{match[1]}idiolink_ft" if "+experiment=" in match[0] else f"{match[1]}x"

    return re.sub(r"((?:\+experiment=)?[\w./-]*)<([^<>]*)>", value, command)


@cache
def single(override: str) -> str:
    """One value of an override that sweeps."""
    parser: OverridesParser = OverridesParser.create()
    swept = parser.parse_override(override)
    if not swept.is_sweep_override():
        return override
    value = swept.value()
    first = value.start if isinstance(value, IntervalSweep) else next(swept.sweep_string_iterator())
    return f"{swept.get_key_element()}={first}"


@cache
def composed(name: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    file = CONF / name
    with hydra.initialize_config_dir(str(file.parent), version_base="1.3"):
        config = hydra.compose(file.name, list(overrides), return_hydra_config=True)
    sweeper = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
    assert isinstance(sweeper, dict)
    if "study" in sweeper:
        validate(SearchSettings, {str(k): v for k, v in sweeper.items() if not str(k).startswith("_")})
    return fill(config, is_whole=False).options


def check_program(program: str, arguments: list[str]) -> None:
    """As the program would, up to where it starts to work."""
    if arguments and f"{program} {arguments[0]}" in PROGRAMS:
        program, arguments = f"{program} {arguments[0]}", arguments[1:]
    if not arguments:  # a mention
        return
    flags, words = split_flags([word for word in arguments if word not in ("--help", "--cfg", "job")])
    name, subject = PROGRAMS[program].config, PROGRAMS[program].subject
    # Launchers are packages of their own.
    words = [word for word in words if not word.startswith(("hydra/launcher=", "hydra.launcher."))]
    overrides = overrides_of(words, name, subject, flags.get("--config-dir"), several="-m" in flags)
    overrides = [single(override) if "-m" in flags else override for override in overrides]
    config = composed(name, tuple(o for o in overrides if not o.startswith("hydra.output_subdir")))
    if run := find_run(overrides):
        kept = [o for o in overrides if not o.startswith(("resume=", "hydra."))]
        config = saved_config(Path(run), config, "default", kept)
    validate(PROGRAMS[program].settings, config)


def programs_in(line: str) -> Iterator[tuple[str, list[str]]]:
    """Each of our programs in a line of a shell, also behind a launcher, with its arguments."""
    line = re.sub(r"-m train(?= |$)", "idiomtune train", filled(line))
    for match in re.finditer(r"\bidiomtune ([a-z]+)(?= |$)([^|;]*)", line):
        text = match[2].rstrip()
        text = text[:-1] if text.count("'") % 2 else text  # what ends a quotation around the command
        yield match[1], [a for a in shlex.split(text) if a != "…"]


@pytest.mark.usefixtures("folders")
def test_commands_are_understood() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))
    script_at = r".*python (?:-m )?(?:pytest )?((?:examples|docs|tests|tools|bench|runs)[/.]\S+)"
    lines = {line: page for page in NAMES for line in shell_lines(ROOT / page)}
    for line, name in lines.items():
        if any(option in line for option in OF_EXAMPLES):
            continue
        programs = list(programs_in(line))
        for program, arguments in programs:
            try:
                check_program(program, arguments)
            except (Exception, SystemExit) as error:
                pytest.fail(f"{name}: {line}\n{error}")
        if target := re.match(r"make ([a-z0-9-]+)", line):
            is_there = target[1] in targets
        elif script := re.match(script_at, line):
            path = ROOT / script[1].removesuffix(".py").replace(".", "/")
            is_there = path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
        else:
            is_there = bool(programs or OTHERS.match(line))
        assert is_there, f"{name}: {line}"


@pytest.mark.usefixtures("folders")
def test_a_wrong_command_would_be_noticed() -> None:
    for line in (
        "accelerate launch -m train +experiment=idiolink_ft trainer.batchsize=3",
        "idiomtune train -m +experiment=idiolink_ft run_dir=<folder> seed=1,2",
        "idiomtune train resume=<run> trainer.learning_rate=1",
        "idiomtune train -m +sweep=idiolink_ft +experiment=idiolink_ft hydra.sweeper.pruners=best",
        "idiomtune push checkpoint=<run> repo_id=idioms",
        "idiomtune report <run> fail_below=0.02",
    ):
        ((program, arguments),) = programs_in(line)
        with pytest.raises((Exception, SystemExit)):
            check_program(program, arguments)


def test_the_headline_script_composes(tmp_path: Path) -> None:
    """It runs to its end; each program that it starts takes its arguments."""
    program, calls = tmp_path / "idiomtune", tmp_path / "calls"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "" >>"$CALLS"\n', encoding="utf-8")
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls), "QUICK": ""}
    command = ["bash", str(ROOT / "runs" / "headline.sh")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    started = [call.splitlines() for call in calls.read_text(encoding="utf-8").split("\n\n") if call]
    assert [call[0] for call in started] == ["train"] * 3 + ["report"]
    for name, *arguments in started:
        check_program(name, arguments)
    experiments = {a.partition("=")[2] for call in started for a in call if a.startswith("+experiment=")}
    assert experiments == {*results.SYSTEMS} - {"untrained"}
    assert done.stdout.strip().endswith("report/report.html")


# ---- options


def leaves(config: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in config.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{key}.")


def test_options_that_are_named_exist() -> None:
    """`objective.loss.margin=` and the like, in running text."""
    parts = "+objective.parts={faq: {data: {train: faq.csv}}, idioms: {experiment: idiolink_ft}}"
    configs = [
        *(("train", (f"objective={name}",)) for name in ("idiolink", "own", "adaptive_triplet", "admire")),
        ("train", ("tracking=[wandb,tensorboard]",)),
        ("train", ("+experiment=joint",)),
        ("train", ("objective=mixture", parts)),
        ("evaluate", ()),
        ("evaluate", ("benchmark=[own_retrieval,own_sts]",)),
    ]
    known = {key for config in configs for key in leaves(composed(*config))}
    sweeper = yaml.safe_load((CONF / "hydra" / "sweeper" / "optuna.yaml").read_text(encoding="utf-8"))
    known |= {f"hydra.sweeper.{key}" for key in sweeper} | {"hydra.sweep.dir", "hydra.sweep"}
    sections = {key.split(".")[0] for key in known}
    for name, code in [(page.name, code) for page in PAGES for code in inline(page)]:
        for option in re.findall(r"(?<![\w.-])([a-z_]+(?:\.[a-z_0-9]+)+)=", code):
            if option.split(".")[0] in sections and not any(own in option for own in OF_EXAMPLES):
                assert option in known or option.startswith(OF_LIBRARIES), f"{name}: {code}"


def test_the_page_of_options_has_every_option() -> None:
    """Of a training and of the other programs, by its full name, with its default and meaning."""
    options.write()
    page = options.PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"confval:: (\S+)", page))
    for name in ("train", "evaluate", "learn", "push"):
        config = composed(name, ())
        named = {*leaves({key: value for key, value in config.items() if key != "benchmarks"})}
        unlisted = named - {key.rpartition(".")[0] for key in named} - listed
        assert not {n for n in unlisted if not n.endswith(".name") and not n.startswith("model.about.")}
    assert ".. confval:: trainer.learning_rate\n   :default: ``2.0e-5``\n\n   AdamW, peak\n" in page
    assert "(those of trainer.monitor) \\| all \\| a list. The untrained and the best model are" in page


# ---- snippets


def run_snippets(name: str, model: Path, part: slice = slice(None)) -> list[dict[str, Any]]:
    """The names that each snippet of a part of a page leaves; each goes on from the one before it."""
    names: dict[str, Any] = {}
    left = []
    for code in blocks(ROOT / name, "python")[part]:
        for path in (BEST, "sentence-transformers/all-MiniLM-L6-v2"):
            code = code.replace(path, str(model))
        code = code.replace('"max_epochs": 10', '"max_epochs": 1')
        exec(code, names)
        left.append(dict(names))
    return left


def test_both_ways_to_a_span_embedding_agree(tiny_path: Path) -> None:
    ours, plain = run_snippets("docs/using.md", tiny_path, slice(2))
    torch.testing.assert_close(ours["spans"][0], plain["embedding"].cpu(), atol=1e-6, rtol=0)
    assert ours["sentences"].shape == (2, Encoder.from_pretrained(tiny_path).dimension)


def test_ways_to_deploy_a_model(tiny_path: Path, in_folder: Path) -> None:
    page, best = ROOT / "docs" / "using.md", in_folder / "best"
    shutil.copytree(tiny_path, best)
    for name in re.findall(r"`([\w/]+\.(?:json|safetensors))`", page.read_text(encoding="utf-8")):
        assert (best / name).is_file()
    shorter, static, onnx = (code.replace(BEST, str(best)) for code in blocks(page, "python")[2:5])
    names: dict[str, Any] = {}
    exec(shorter, names)
    assert names["bits"].shape == (2, 16 // 8)
    exec(static, {})
    assert Encoder("out/static").dimension == 16
    command = blocks(page, "sh")[0]
    subprocess.run(shlex.split(command.replace(BEST, str(best))), check=True)
    assert "sentence_transformers.models.Pooling" in (best / "modules.json").read_text(encoding="utf-8")
    pytest.importorskip("optimum.onnxruntime")
    exec(onnx, {})


def test_a_glossary_turns_the_model_around_as_the_readme_says(tmp_path: Path) -> None:
    (names,) = run_snippets("README.md", tmp_path)
    printed = map(json.loads, re.findall(r"tensor\(\[(\[.+?\])\]\)", read("README.md")))
    for encoder, cosines in zip((names["plain"], names["informed"]), printed, strict=True):
        (row,) = encoder.similarity("He missed the boat.", names["texts"]).tolist()
        assert row == pytest.approx(cosines, abs=0.001)


@pytest.mark.usefixtures("in_folder")
def test_snippets_of_python(tmp_path: Path) -> None:
    """With MiniLM: a short run of own rows, and a model that knows better once it is told a meaning."""
    run, names = run_snippets("docs/python.md", tmp_path)
    assert run["run"].status == "finished"
    assert run["hits"][0].text == "The boss was too late."
    assert names["after"] > names["before"] + 0.1
    assert names["spans"].shape == (1, 384)


def test_the_model_that_knows_is_a_plain_folder(in_folder: Path) -> None:
    (names,) = run_snippets("docs/knowledge.md", in_folder)
    assert names["similarity"][0].tolist() == pytest.approx([0.8570, 0.5392], abs=0.005)
    assert (in_folder / "models" / "minilm_idioms" / "modules.json").is_file()


def test_the_catalogue_has_every_loss(tmp_path: Path) -> None:
    names = run_snippets("docs/losses.md", tmp_path)
    assert all(part["loss"].isfinite() for part in names[2:])
    assert names[-1]["result"].num_within > 0
    page, kinds = read("docs/losses.md"), ("Loss", "tion_loss")
    assert not [name for name in idiomloss.__all__ if name.endswith(kinds) and name not in page]


def test_snippets_of_the_ecosystem(tiny_path: Path, in_folder: Path) -> None:
    alone, *_, trained, _, scored = run_snippets("docs/ecosystem.md", tiny_path)
    assert alone["masks"].num_false_negatives == 2  # the first two anchors share idiom and meaning
    assert trained["trainer"].state.global_step == 1
    assert all(loss.isfinite() for loss in (alone["loss"], trained["infonce"], trained["triplet"]))
    assert len(trained["mined"][0]) > 0
    metric = scored["evaluator"].primary_metric
    assert scored["scores"].keys() >= {metric, "semeval2022/dev/all/sts/spearman"}
    assert list((in_folder / "out" / "mteb").rglob("IdioLink.json"))


@pytest.mark.usefixtures("in_folder")
def test_snippets_of_large_corpora(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (names,) = run_snippets("docs/using.md", tiny_path, slice(5, None))
    assert len(names["index"]) == len(names["texts"])
    assert f"{names['texts'][42]} 1.00" in capsys.readouterr().out


def test_every_block_is_checked_by_some_test() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        languages = set(re.findall(r"^```(\S+)", text, re.MULTILINE))
        assert languages <= {"sh", "python", "json", "yaml", "diff", "csv", "tsv"}, page
        assert page.stem in WITH_SNIPPETS or not blocks(page, "python"), f"{page}: a snippet without a test"
        for block in blocks(page, "yaml"):
            yaml.safe_load(block)
        assert not blocks(page, "diff", "csv"), f"{page}: a change of no named file"
        assert page.stem in WITH_FILES or not page_files(page), f"{page}: files that no test runs"
        assert not re.findall(r"@@\w*@@|TODO|FIXME", text), page
    (record,) = blocks(ROOT / "docs" / "own-data.md", "json")
    assert Document.model_validate(json.loads(record)).usage == "idiomatic"


# ---- what is listed


def test_what_there_is_is_listed() -> None:
    objectives, benchmarks, ecosystem = (
        read(f"docs/{name}.md") for name in ("objectives", "benchmarks", "ecosystem")
    )
    assert all(f"| `{name}` |" in objectives for name in config_names("experiment"))
    assert all(f"| `{name}` |" in benchmarks for name in config_names("benchmark"))
    assert all(f"({name})" in read("README.md") + read("RESULTS.md") for name in NAMES[1:])
    assert all(f"| `python examples/{path.name}" in ecosystem for path in (ROOT / "examples").glob("*.py"))


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), f"{page}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]
                assert anchor in anchors, f"{page}: {target}"


def test_the_readmes_results_are_those_of_the_results() -> None:
    found = results.figures(*(page.read_text(encoding="utf-8") for page in results.PAGES))
    for system in ("untrained", "idiolink_ft", results.WITH_GLOSSARY):
        row = next(r for r in read("README.md").splitlines() if re.match(rf"\| `?{system}`?[ :|].* / ", r))
        _, *minilm, mpnet = row.strip(" |").split(" | ")
        numbers = [float(n) for cell in minilm for n in re.findall(r"\d+\.\d+", cell)]
        assert numbers == [n for mode in results.MODES for n in found[system, mode] if n]
        assert mpnet in read("docs/results/sizes.md")


def test_pictures_are_those_of_their_scripts() -> None:
    found = results.figures(*(page.read_text(encoding="utf-8") for page in results.PAGES))
    for script, content in ((results, repr(sorted(found.items()))), (terms, terms.content())):
        with Image.open(script.PICTURE) as picture:
            assert picture.info["Description"] == content, f"run {script.__name__}"
        assert script.PICTURE.stat().st_size < 100_000


def test_the_site_and_llms_txt_list_every_page_once(tmp_path: Path) -> None:
    assert read("llms.txt") == conf.llms_text(), "run python docs/conf.py"
    listed = re.findall(r"^- \[.+?\]\((\S+)\): \S", read("llms.txt"), re.MULTILINE)
    assert sorted(["README.md", *listed]) == sorted(NAMES)
    options.write()
    listed = [page for pages in conf.NAVIGATION.values() for page in pages]
    reference = sorted((ROOT / "docs" / "reference").glob("*.rst"))
    pages = [str(page.relative_to(ROOT).with_suffix("")) for page in (*PAGES, *reference)]
    assert sorted([*listed, conf.root_doc]) == sorted(pages)
    # The site has the pages as Markdown too.
    (tmp_path / "docs").mkdir()
    shown = {"README", "docs/tutorial", "docs/reference/idiomtune"}
    conf.add_index(SimpleNamespace(outdir=tmp_path, env=SimpleNamespace(found_docs=shown)), None)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"index.html", "llms.txt", "README.md", "docs/tutorial.md"}


def test_every_module_can_be_imported_and_the_reference_names_modules_that_are_there() -> None:
    names = {
        module.name
        for package in ("idiomloss", "idiomtune")
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}.")
        if not module.name.rpartition(".")[2].startswith("_")
    }
    assert len(names) > 100
    for name in names:
        importlib.import_module(name)
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.rst"))
    shown = set(re.findall(r"automodule:: (\S+)", pages))
    assert {name for name in names if name.startswith("idiomloss.")} <= shown <= {*names, "idiomloss"}


def test_messages_that_are_explained_are_those_of_the_code() -> None:
    """The first column of troubleshooting.md, with … for what differs."""
    rows = re.findall(r"^\| .*", read("docs/troubleshooting.md"), re.MULTILINE)
    quoted = [message for row in rows for message in re.findall("`([^`]+)`", row.split(" | ")[0])]
    quoted = [message for message in quoted if " " in message]
    assert len(quoted) > 30
    said = messages()
    for message in quoted:
        assert "accelerate launch" in message or any(message in text for text in said), message
