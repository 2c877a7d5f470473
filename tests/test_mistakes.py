"""Mistakes of users: each is refused, or warned of, by the option, file, row or field that is wrong.

They are made in this process, with the functions that the programs run on a composed configuration; what the
command line makes of an error is in `tests/test_programs.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from idiomtune.cli import settings_of as checked_settings
from idiomtune.config import EvaluateSettings, TrainSettings
from idiomtune.encoder.idiom_tokens import read_expressions
from idiomtune.glossaries.meanings import saved_meanings
from idiomtune.io.files import parse_yaml
from idiomtune.programs.check import check as check_data
from idiomtune.programs.evaluate import evaluate as score_model
from tests.mistakes import PLACEHOLDERS, configured
from tests.own_data import write
from tests.planted_runs import plant
from tests.programs import main_of, refused
from tests.tiny_runs import composed

pytestmark = pytest.mark.usefixtures("shown")

Captured = pytest.CaptureFixture[str]
Log = pytest.LogCaptureFixture
Taken = tuple[str, str, Mapping[str, str], str]
IN_BATCH, TRIPLET = "objective.infonce.in_batch", "objective.triplet.triplet"
SPANS = "trainer.batch_size=8 objective.query_mode=span objective.document_mode=span"
FAQ = "objective.parts.faq"
MIXTURE = f"+experiment=mixture data.val_share=0.25 benchmark=[own_val] +{FAQ}.data.train={{pairs}}"
IDIOLINK = "+experiment=idiolink_ft data=sample"
# One of FILES, options separated by blanks, parts of the message separated by |.
REFUSED = [
    # The model
    ("pairs", "model.pooling=zzz", "model.pooling=zzz|mean"),
    ("pairs", "model.pooling=last9", "model.pooling=last9|2 layers"),
    ("pairs", "trainer.matryoshka=[512]", "trainer.matryoshka|512|32"),
    ("pairs", "eval.dimensions=[999]", "eval.dimensions|999"),
    ("pairs", "model.max_length=999", "model.max_length=999|64 positions"),
    (
        "pairs",
        "forgetting.lora.rank=4 forgetting.lora.target_modules=[zzz]",
        "lora.target_modules|'zzz'|query",
    ),
    ("pairs", "model.glossary={words}", "words.csv|row 3|14"),
    ("pairs", f"model.idiom_tokens=['{PLACEHOLDERS.replace(' ', '-')}']", "model.idiom_tokens|14"),
    # The data
    ("heavy", "", "heavy.csv|row 2|'weight'"),
    ("invisible", "", "invisible.csv|row 50|'answer'"),
    ("rated", "", "'rating'|{score: rating}"),
    ("far.jsonl", f"{SPANS} data.val={{near}}", "'spill the beans'|model.max_length"),
    ("pairs", "objective.query_mode=masked_span", "objective.query_mode=masked_span|no row of the data"),
    ("pairs", "objective.document_mode=masked_sentence", "objective.document_mode=masked_sentence|no row"),
    # Texts that a model cannot tell apart
    ("pairs", "model.max_length=3", "truncated at 3 tokens|model.max_length"),
    ("preamble", "", "truncated at 64 tokens|anchors as their positives"),
    ("case", "", "36 of 36 anchors as their positives"),
    ("one_answer", "", "no batch has anything to learn from"),
    ("one_text", "", "no row is left to train on"),
    ("against_itself", "", "row 2, field 'negative'"),
    # What is not there
    ("", f"{IDIOLINK} precision=fp16", "precision=fp16"),
    ("", "+experiment=idiolink_ft data.idiolink=missing", "data.idiolink"),
    ("", f"{IDIOLINK} split=tset trainer.monitor=idiolink/tset/sentence/ndcg@10", "tset|test, train, val"),
    # Nothing to learn from
    ("pairs", "trainer.batch_size=1", "trainer.batch_size"),
    ("pairs", "trainer.batch_size=4 trainer.accumulation=4", "trainer.batch_size|trainer.accumulation"),
    ("pairs", f"{IN_BATCH}=none", IN_BATCH),
    ("pairs", "objective.infonce.hard_weight=0 objective.infonce.soft_weight=0", "hard_weight|soft_weight"),
    ("weightless", "", "column weight"),
    ("level", "", "different scores"),
    ("scored", "objective.loss=cosine", "objective.graded.low=0|high=1|scores from 0 to 5"),
    (
        "sorted",
        "data.columns={label:label} data.val={val_labelled} objective.order=file trainer.batch_size=12",
        "order=shuffled",
    ),
    ("labelled", f"{TRIPLET}s=easy", f"{TRIPLET}s"),
    ("one_group", "data.val={val_group}", "groups"),
    ("", f"{IDIOLINK} objective.loss={{hard_weight:0,soft_weight:0}}", "objective.loss.hard_weight"),
    # Parts of a mixture
    ("", f"{MIXTURE} +{FAQ}.options.infonce.in_batch=none", f"{FAQ}.options.infonce.in_batch"),
    ("", f"{MIXTURE} +objective.parts.b={{data:{{train:pairs.csv}},proportion:1e-300}}", "part b|1e-300"),
]
# The same of what is not refused: parts of one warning, or of one line of the output.
REPORTED = [
    ("pairs", "model.pooling=cls", "model.pooling=cls|mean pooling"),
    ("pairs", "precision=bf16", "precision=bf16|use precision=fp32"),
    ("capitals", "", "1 are read as the same tokens as others"),
    ("pairs", "data.val=[{val_one}]", "cannot choose a checkpoint|one query|data.val="),
    ("pairs", "data.val=[{val_equal}]", "cannot choose a checkpoint|relevant"),
    ("pairs", "data.val=[{val_known}]", "2 rows (val_known.csv row 2, val_known.csv row 4)"),
]


@pytest.fixture(autouse=True)
def here(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; on a processor without instructions for bfloat16."""
    monkeypatch.setattr("idiomtune.encoder.device.has_bf16_instructions", lambda: False)
    return in_folder


@pytest.mark.parametrize(("file", "options", "named"), REFUSED)
def test_a_mistake_is_refused(file: str, options: str, named: str, tiny_path: Path) -> None:
    refused(
        lambda: check_data(checked_settings(TrainSettings, configured(file, options, tiny_path))),
        *named.split("|"),
    )


@pytest.mark.parametrize(("file", "options", "named"), REPORTED)
def test_a_doubtful_choice_is_reported(
    file: str, options: str, named: str, tiny_path: Path, caplog: Log, capsys: Captured
) -> None:
    caplog.set_level("INFO")
    check_data(checked_settings(TrainSettings, configured(file, options, tiny_path)))
    lines = [*(record.getMessage() for record in caplog.records), *capsys.readouterr().out.splitlines()]
    assert any(all(part in line for part in named.split("|")) for line in lines), lines


# ------------------------------------------------------------------ outputs and other programs

EVALUATE = ("data=sample", "benchmark=[idiolink]", "device=cpu", "benchmark.idiolink.bm25_modes=[]")
MINE = {"out/thesis.txt": "all of it"}
SCORES = {"scores.json": '{"scores": {"a/b/c/d": 0.5}, "baseline": {}, "meta": {}}'}
# Program, options, files that are there, parts of the message.
TAKEN: list[Taken] = [
    ("evaluate", "output=scores.json", SCORES, "output=scores.json|overwrite=true"),
    ("evaluate", "predictions=out overwrite=true", MINE, "predictions=out"),
    ("evaluate", "output=a.json per_query=a.json", {}, "per_query=a.json"),
    ("evaluate", "output=q/a.json", {"q": ""}, "output=q/a.json"),
    ("evaluate", "output=~nosuch/f", {}, "output=~nosuch/f"),
    ("explore", "minilm overwrite=perhaps", {}, "overwrite|perhaps"),
    ("report", "run split=x", {}, "split"),
    ("report", "~nosuch/r", {}, "~nosuch"),
]
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "evaluate": lambda config: score_model(checked_settings(EvaluateSettings, config)),
    "explore": main_of("explore"),
    "report": main_of("report"),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_there_already_is_refused_first(
    case: Taken, here: Path, tiny_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is computed, and no file is changed, made or removed."""
    program, options, files, named = case
    monkeypatch.setattr("idiomtune.encoder.encoder.Encoder.embed", None)
    for file, content in files.items():
        write(here / file, content)
    before = contents(here)
    if program in ("explore", "report"):  # have neither a configuration nor `model=`
        assert PROGRAMS[program](options.split()) == 2
        message = capsys.readouterr().err
    else:
        sample = EVALUATE if program == "evaluate" else ()
        model = ("model=pretrained", f"model.path={tiny_path}")
        words = (*sample, *options.split(), *model)
        message = str(refused(lambda: PROGRAMS[program](composed(program, *words))))
    assert all(part in message for part in named.split("|")), message
    assert contents(here) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Of all files, hidden ones too."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def evaluate(tiny: Path, *options: str) -> None:
    PROGRAMS["evaluate"](composed("evaluate", *options, "model=pretrained", f"model.path={tiny}"))


def test_what_may_be_written_is(here: Path, tiny_path: Path) -> None:
    """Empty files and folders (`mktemp`), new ones, and with overwrite=true the scores of before."""
    Path("empty").touch()
    Path("folder").mkdir()
    outputs = ("per_query=new/q.jsonl", "predictions=folder")
    evaluate(tiny_path, *EVALUATE, "output=empty", *outputs)
    before = json.loads(Path("empty").read_text())["scores"]
    assert before
    write(Path("empty"), json.dumps({"scores": {}, "meta": {}}))
    evaluate(tiny_path, *EVALUATE, "output=empty", "overwrite=true")
    assert json.loads(Path("empty").read_text())["scores"] == before
    for again in ([], ["overwrite=true"]):  # a report is made again of the same scores
        assert main_of("report")(["empty", "output=report", *again]) == 0
    assert not [path for path in here.rglob("*") if path.name.startswith(".")]


def test_a_damaged_record_of_what_a_model_learnt_is_named(here: Path, tiny_path: Path) -> None:
    shutil.copytree(tiny_path, here / "m")
    write(here / "m" / "learned.json", "{}")
    refused(lambda: evaluate(here / "m", *EVALUATE), "learned.json, field 'model'")


# ------------------------------------------------------------------ modules and records of runs


@pytest.mark.parametrize("name", ["run.json", "scores.json", "config.yaml"])
def test_a_record_that_is_nested_too_deep_is_damaged(name: str, here: Path, capsys: Captured) -> None:
    """No recursion without end; what configurations are like is read."""
    run = plant(here / "run")
    write(run / name, "[" * 100_000)
    assert main_of("report")([str(run)]) == (0 if name == "config.yaml" else 2)
    printed = capsys.readouterr()
    assert f"{name} is damaged" in printed.out + printed.err or name == "run.json"
    assert "unexpected" not in printed.err
    assert parse_yaml("a: &a [1, 2]\nb: *a\n") == {"a": [1, 2], "b": [1, 2]}  # as safe_dump writes one list
    assert parse_yaml("{a: " * 50 + "1" + "}" * 50)


# ------------------------------------------------------------------ what would fill the memory, or never end


def test_placeholders_are_limited_wherever_expressions_come_from(here: Path) -> None:
    path = write(here / "idioms.txt", f"home run\n{PLACEHOLDERS}\n")
    refused(lambda: read_expressions(path), "idioms.txt, line 2")
    saved = {"format": 3, "form": "append", "about": {}, "senses": {PLACEHOLDERS: ["x"]}}
    with pytest.raises(ValueError, match="14 placeholders"):
        saved_meanings(saved, 0)
