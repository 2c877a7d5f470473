"""Idiom tokens in runs: the option, which expressions it names, training, resuming."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.tiny_runs import composed, train
from tests.train.encoder.test_idiom_tokens import row
from train.config import EvaluateSettings, TrainSettings, check
from train.data.idiolink import load_split
from train.data.semeval2022 import TRAIN_FILE
from train.encoder.encoder import Encoder
from train.encoder.idiom_tokens import FILE
from train.errors import UserError
from train.factory import build_objective, idiom_expressions


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.idiom_tokens=[]", "model.idiom_tokens: must be train, a list of expressions, or a text file"),
        ("model.idiom_tokens=3", "model.idiom_tokens: must be train"),
        ("model.idiom_tokens=[home run,'...']", "model.idiom_tokens: '...' contains no letter"),
        ("model.replace_expressions=some", "model.replace_expressions"),
        ("model.idiom_tokens_start=mean", "model.idiom_tokens_start"),
    ],
)
def test_wrong_settings(override: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        check(TrainSettings, composed("config", override))
    assert says in str(error.value)


def test_an_evaluation_has_no_training_data() -> None:
    with pytest.raises(UserError, match="idiom_tokens=train: there is no training data"):
        check(EvaluateSettings, composed("evaluate", "model.idiom_tokens=train"))


def expressions(*overrides: str) -> tuple[list[str], list[Path]]:
    settings = check(TrainSettings, composed("config", *overrides))
    return idiom_expressions(settings.model, build_objective(settings))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A folder of the task with three groups; the expression of the second is not as the table names it."""
    path = tmp_path / "semeval2022_task2b" / TRAIN_FILE
    path.parent.mkdir(parents=True)
    table = [
        ("home run", "She scored a Home Run there.", "She scored a clear win there.", "1"),
        ("home run", "She scored a Home Run there.", "She scored a house run there.", "None"),
        ("case study", "Two case studies were read.", "Two reports were read.", "1"),
        ("case study", "Two case studies were read.", "Two box studies were read.", "None"),
        ("big fish", "He is a big fish.", "He is somebody.", "1"),
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ID", "MWE1", "Language", "sentence_1", "sentence_2", "sim"])
        writer.writerows([[i, name, "EN", a, b, sim] for i, (name, a, b, sim) in enumerate(table)])
    return path.parents[2]


def test_the_training_datas_expressions(pairs: Path, sample_root: Path) -> None:
    run_options = (f"data.semeval2022={pairs}", f"data.root={sample_root}", "model.idiom_tokens=train")
    idioms = list(dict.fromkeys(d.idiom for d in load_split(sample_root, "train").documents))
    assert expressions("objective=adaptive_triplet", *run_options) == (["home run", "case study"], [])
    every = expressions("objective=adaptive_triplet", "objective.groups=all", *run_options)[0]
    assert every == ["home run", "case study", "big fish"]
    assert expressions(*run_options) == (idioms, [])
    assert expressions("objective=joint", *run_options)[0] == [*idioms, "home run", "case study"]
    part = [*run_options[:-1], "model.idiom_tokens=train/adaptive_triplet"]
    assert expressions("objective=joint", *part) == (["home run", "case study"], [])
    with pytest.raises(UserError, match="no part idiolonk"):
        expressions("objective=joint", *run_options[:-1], "model.idiom_tokens=train/idiolonk")
    with pytest.raises(UserError, match="no part adaptive_triplet"):
        expressions("objective=adaptive_triplet", *part)


def test_external_data_names_no_tokens(tmp_path: Path, sample_root: Path) -> None:
    header = "Idiom,Sense,Idiomatic_Sent,Literal_Sent,Idiomatic_Label,Literal_Label\n"
    line = "hit the sack,go to bed,I hit the sack .,I went to bed .,O B I I O,O B I I O\n"
    (tmp_path / "data_cleaned.csv").write_text(header + line, encoding="utf-8")
    named, _ = expressions(
        *("+experiment=idiolink_ft", f"data.root={sample_root}", "data.extra=pie", f"data.pie={tmp_path}"),
        "model.idiom_tokens=train",
    )
    assert named
    assert not any("sack" in name for name in named)


def test_expressions_of_a_list_and_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "idioms.txt"
    path.write_text("home run\n\n  má-fé \n", encoding="utf-8")
    assert expressions("data=sample", f"model.idiom_tokens={path}") == (["home run", "má-fé"], [path])
    assert expressions("data=sample", "model.idiom_tokens=[home run,'má-fé']")[0] == ["home run", "má-fé"]
    path.write_text("home run\n…\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"idioms\.txt, line 2: '…' contains no letter"):
        expressions("data=sample", f"model.idiom_tokens={path}")
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"idioms\.txt: names no expression"):
        expressions("data=sample", f"model.idiom_tokens={path}")
    with pytest.raises(UserError, match=r"none\.txt: there is no such file; give train"):
        expressions("data=sample", f"model.idiom_tokens={tmp_path / 'none.txt'}")


def test_a_run_with_tokens_trains_and_saves_them(
    tmp_path: Path, options: list[str], tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_options = [*options, "benchmark=[idiolink]", "model.idiom_tokens=train"]
    caplog.set_level("INFO")
    train(tmp_path / "whole", run_options)
    found = [r.getMessage() for r in caplog.records if r.getMessage().startswith("idiom tokens")]
    assert "6 expressions have 6 tokens; of " in found[0]

    best = Encoder.from_pretrained(tmp_path / "whole" / "best", device="cpu")
    assert best.idiom_tokens is not None
    for token, names in best.idiom_tokens.expressions.items():
        start = Encoder.from_pretrained(tiny_path, device="cpu")
        start.add_idiom_tokens(names)
        assert not torch.equal(row(best, token), row(start, token))  # it was trained
    text = f"So {names[0]} it is."
    plain = SentenceTransformer(str(tmp_path / "whole" / "best"), device="cpu")
    theirs = plain.encode([f"So {token} it is."], convert_to_tensor=True)
    torch.testing.assert_close(best.encode([text]), theirs, atol=1e-6, rtol=0)
    assert FILE in (tmp_path / "whole" / "best" / "README.md").read_text(encoding="utf-8")
    sums = json.loads((tmp_path / "whole" / "step_6" / "checksums.json").read_text())
    assert FILE in sums

    # The untrained model is the one that was named, without tokens.
    train(tmp_path / "without", [*options, "benchmark=[idiolink]", "trainer.max_steps=1"])
    baselines = [json.loads((tmp_path / n / "baseline.json").read_text()) for n in ("whole", "without")]
    assert baselines[0] == baselines[1]


def test_triplets_are_read_with_tokens(
    pairs: Path, tmp_path: Path, options: list[str], sample_root: Path
) -> None:
    """With replacing off the loss is another, and the checkpoint remembers that it is off."""
    run_options = [
        o for o in options if not o.startswith(("+experiment", "objective.", "data=", "trainer.batch"))
    ]
    run_options = ["objective=adaptive_triplet", *run_options, "benchmark=[idiolink]"]
    run_options += [f"data.semeval2022={pairs}", f"data.root={sample_root}"]
    run_options += ["trainer.max_steps=1", "trainer.batch_size=8", "model.idiom_tokens=train"]
    losses = []
    for option in ("null", "false"):
        folder = tmp_path / option
        train(folder, [*run_options, f"model.replace_expressions={option}"])
        line = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
        losses.append(line["loss"])
        kept = json.loads((folder / "best" / FILE).read_text(encoding="utf-8"))
        assert kept["replace"] == (option == "null")
        assert list(kept["expressions"]) == ["IDhomerunID", "IDcasestudyID"]
    assert losses[0] != losses[1]
