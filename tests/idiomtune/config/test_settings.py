"""Wrong settings are refused with the option's name; every config of the project is sound."""

import re

import pytest

from idiomtune.config import EvaluateSettings, TrainSettings, validate
from idiomtune.config.words import config_names
from idiomtune.errors import UserError
from idiomtune.plugins.models import CONF
from tests.tiny_runs import composed

# What an experiment needs beside its name.
NEEDED = {"mixture": ["+objective.parts.mine.data.train=pairs.csv"], "own": ["data.train=pairs.csv"]}


@pytest.mark.parametrize("experiment", config_names("experiment"))
def test_every_experiment_is_sound_and_headed_by_its_command(experiment: str) -> None:
    validate(TrainSettings, composed("train", f"+experiment={experiment}", *NEEDED.get(experiment, [])))
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    assert re.search(
        rf"^# idiomtune train \+experiment={experiment}( '?\+?(data|objective)\..*)?$", text, re.MULTILINE
    )


def test_smoke_is_two_steps_on_the_sample() -> None:
    smoke = validate(TrainSettings, composed("train", "+experiment=joint", "+debug=smoke"))
    assert (smoke.trainer.max_steps, smoke.data.sample) == (2, True)


def test_a_fold_is_scored() -> None:
    fold = ("+protocol=cross_validation", "data.fold=0")
    assert validate(TrainSettings, composed("train", *fold)).splits("idiolink") == ["cv"]
    scored = validate(EvaluateSettings, composed("evaluate", "data.fold=1", "split=cv"))
    assert [scored.splits(name) for name in ("idiolink", "semeval2022")] == [["cv"], ["dev"]]


def test_a_split_goes_to_each_benchmark_that_has_it() -> None:
    for split, expected in (
        ("null", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["train"]}),
        (
            "[val+train,dev_a,own,dev]",
            {"idiolink": ["val+train", "own"], "semeval2022": ["dev_a", "dev"], "admire": ["dev"]},
        ),
    ):
        checked = validate(EvaluateSettings, composed("evaluate", f"split={split}"))
        assert {name: checked.splits(name) for name in expected} == expected


def test_what_an_experiment_says_of_a_benchmark_that_is_left_out_does_not_count() -> None:
    chosen = ("+experiment=joint", "benchmark=[semeval2022]")
    monitored = ("trainer.monitor=semeval2022/dev_a/en/idiom/spearman",)
    checked = validate(TrainSettings, composed("train", *chosen, *monitored))
    assert (list(checked.benchmark), checked.splits("idiolink")) == (["semeval2022"], [])
    with pytest.raises(UserError, match=r"'idiolink/.*benchmark=\[semeval2022,idiolink\]"):
        validate(TrainSettings, composed("train", *chosen, "trainer.monitor=idiolink/val/span/ndcg@10"))
