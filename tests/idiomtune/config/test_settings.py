"""Wrong settings are refused with the option's name; every config of the project is sound."""

import re

import pytest

from idiomtune.config import EvaluateSettings, TrainSettings, check
from idiomtune.config.words import config_names
from idiomtune.errors import UserError
from idiomtune.plugins.models import CONF
from tests.tiny_runs import composed

# What an experiment needs beside its name.
NEEDED = {"mixture": ["+objective.parts.mine.data.train=pairs.csv"], "own": ["data.train=pairs.csv"]}


@pytest.mark.parametrize("experiment", config_names("experiment"))
def test_every_experiment_is_sound_also_in_smoke(experiment: str) -> None:
    overrides = [f"+experiment={experiment}", *NEEDED.get(experiment, [])]
    check(TrainSettings, composed("train", *overrides))
    smoke = check(TrainSettings, composed("train", *overrides, "+debug=smoke"))
    assert smoke.trainer.max_steps == 2
    assert smoke.data.sample


@pytest.mark.parametrize("experiment", config_names("experiment"))
def test_every_experiment_is_headed_by_its_command(experiment: str) -> None:
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    assert re.search(
        rf"^# idiomtune train \+experiment={experiment}( '?\+?(data|objective)\..*)?$", text, re.MULTILINE
    )


def test_a_fold_is_scored() -> None:
    fold = ("+protocol=cross_validation", "data.fold=0")
    assert check(TrainSettings, composed("train", *fold)).splits("idiolink") == ["cv"]
    scored = check(EvaluateSettings, composed("evaluate", "data.fold=1", "split=cv"))
    assert [scored.splits(name) for name in ("idiolink", "semeval2022")] == [["cv"], ["dev"]]


def test_a_split_goes_to_each_benchmark_that_has_it() -> None:
    for split, expected in (
        ("null", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["train"]}),
        ("dev", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["dev"]}),
        (
            "[val+train,dev_a,own,dev]",
            {"idiolink": ["val+train", "own"], "semeval2022": ["dev_a", "dev"], "admire": ["dev"]},
        ),
    ):
        checked = check(EvaluateSettings, composed("evaluate", f"split={split}"))
        assert {name: checked.splits(name) for name in expected} == expected


def test_what_an_experiment_says_of_a_benchmark_that_is_left_out_does_not_count() -> None:
    for experiment, chosen, monitor in (
        ("joint", "semeval2022", "semeval2022/dev_a/en/idiom/spearman"),
        ("adaptive_triplet", "idiolink", "idiolink/val/span/ndcg@10"),
        ("idiolink_ft", "semeval2022", "semeval2022/dev/all/all/spearman"),
    ):
        experiment_options = (f"+experiment={experiment}", f"benchmark=[{chosen}]")
        left_out = "idiolink" if chosen == "semeval2022" else "semeval2022"
        checked = check(TrainSettings, composed("train", *experiment_options, f"trainer.monitor={monitor}"))
        assert list(checked.benchmark) == [chosen]
        assert checked.splits(left_out) == []
        with pytest.raises(UserError, match=rf"no score '{left_out}/.*This run scores {chosen} on"):
            check(
                TrainSettings,
                composed("train", *experiment_options, f"trainer.monitor={left_out}/val/span/ndcg@10"),
            )
