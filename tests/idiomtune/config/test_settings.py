"""Wrong settings are refused with the option's name; every config of the project is sound."""

from __future__ import annotations

import re

import pytest

from idiomtune.config import EvaluateSettings, TrainSettings, check
from idiomtune.config.compose import config_names
from idiomtune.declarations.models import CONF
from idiomtune.errors import UserError
from tests.tiny_runs import composed

# What an experiment needs beside its name.
NEEDED = {"mixture": ["+objective.parts.mine.data.train=pairs.csv"], "own": ["data.train=pairs.csv"]}


@pytest.mark.parametrize("experiment", config_names("experiment"))
def test_every_experiment_is_sound_also_in_smoke(experiment: str) -> None:
    overrides = [f"+experiment={experiment}", *NEEDED.get(experiment, [])]
    check(TrainSettings, composed("config", *overrides))
    smoke = check(TrainSettings, composed("config", *overrides, "+debug=smoke"))
    assert smoke.trainer.max_steps == 2
    assert smoke.data.sample


@pytest.mark.parametrize("experiment", config_names("experiment"))
def test_every_experiment_is_headed_by_its_command(experiment: str) -> None:
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    assert re.search(
        rf"^# idiomtune train \+experiment={experiment}( '?\+?(data|objective)\..*)?$", text, re.MULTILINE
    )


TRIPLET, RELEASED = "+experiment=adaptive_triplet", "objective.tuples=released"
_KEY = "admire/train/caption/rank_difference"
# Options → the names of those that the message must have, and what it says must be there instead.
WRONG = {
    "config": [
        ("trainer.batch_size=abc", "trainer.batch_size: must be a valid integer, got 'abc'"),
        ("trainer.batch_size=0", "trainer.batch_size: must be greater than 0, got 0"),
        ("trainer.accumulation=5", "batch_size=32 .*accumulation=5"),
        ("device=gpu", "device: must be one of 'auto', 'cpu', 'cuda' or 'mps', got 'gpu'"),
        ("seed=-1 device=gpu", "2 settings are wrong:"),
        ("+nonsense=1", "nonsense"),
        ("eval.benchmarks=[idiolnk]", "eval.benchmarks.*got 'idiolnk'"),
        ("trainer.monitor=idiolink/val/sentence/ndcg10", "trainer.monitor.*idiolink/val/sentence/ndcg@10"),
        ("split=test", "trainer.monitor: .*no score 'idiolink/val/sentence/ndcg@10'"),
        (f"trainer.monitor={_KEY}", f"trainer.monitor={_KEY}"),
        ("data.fold=0", "data.fold=<number>, split=cv"),
        ("split=cv", "data.fold=<number>"),
        ("data=sample data.root=folder", "data=sample and data.root"),
        ("objective.loss.temperature=0", "objective.loss.temperature: .* equal to 0.0001"),
        ("objective.loss.temperature=inf", "objective.loss.temperature: must be a finite number"),
        ("objective.query_weights=[1,2]", "query_weights has 2 numbers for the 1 modes of query_mode"),
        ("objective.tuples=batch", "tuples=batch.*loss.in_batch=all"),
        ("objective.idioms_per_batch=5", "objective.idioms_per_batch=5.*trainer.batch_size=32"),
        ("objective.positive_weights={idiomatic:0.0,simplification:0.0,sense:0.0}", "positive_weights"),
        (f"{RELEASED} objective.redraw=true", "redraw=true needs tuples=drawn"),
        (f"+protocol=cross_validation data.fold=0 {RELEASED}", "objective.tuples=released"),
        ("+experiment=idiolink_ft objective.drop_last=true", "drop_last=true.*idioms_per_batch"),
        ("+experiment=idiolink_ft trainer.accumulation=8", "trainer.accumulation=8.*idioms_per_batch=8"),
        ("benchmark.epsilon.versions=any_word", "it needs phrases=compound"),
        ("benchmark.epsilon.languages=[gl]", "benchmark.epsilon.languages"),
        (f"{TRIPLET} objective={{order:file,groups_per_expression:2}}", "which needs order=shuffled"),
        (f"{TRIPLET} objective={{whole_groups:false}}", "which needs order=file"),
        (f"{TRIPLET} +protocol=cross_validation", "objective.split: there is no such option"),
        ("+experiment=joint objective.parts.idiolink.proportion=0", "objective.parts.idiolink.proportion"),
        ("+experiment=joint trainer.batch_size=60", "objective.parts.idiolink.options.idioms_per_batch=8"),
        ("+experiment=joint benchmark=[]", r"benchmark: choose one or more: benchmark=\[idiolink, "),
    ],
    "evaluate": [
        ("data.fold=1", "data.fold=<number>"),
        ("benchmark=[semeval2022] split=val", "split=val: none of the benchmarks semeval2022"),
        ("benchmark=[admire] split=dev_a", "split=dev_a: none of the benchmarks admire"),
        ("benchmark=[idiolink] benchmarks=[semeval2022]", r"semeval2022 is not among benchmark=\[idiolink\]"),
        ("+benchmark.semeval.split=dev", "benchmark.semeval: there is no such option"),
    ],
}


@pytest.mark.parametrize(
    ("program", "overrides", "expected"),
    [(program, *case) for program, cases in WRONG.items() for case in cases],
)
def test_what_is_wrong_is_named(program: str, overrides: str, expected: str) -> None:
    kind = TrainSettings if program == "config" else EvaluateSettings
    with pytest.raises(UserError) as caught:
        check(kind, composed(program, *overrides.split(" ")))
    assert re.search(expected, str(caught.value), re.DOTALL), caught.value


def test_a_fold_is_scored() -> None:
    fold = ("+protocol=cross_validation", "data.fold=0")
    assert check(TrainSettings, composed("config", *fold)).splits("idiolink") == ["cv"]
    scored = check(EvaluateSettings, composed("evaluate", "data.fold=1", "split=cv"))
    assert [scored.splits(name) for name in ("idiolink", "semeval2022")] == [["cv"], ["dev"]]


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("null", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["train"]}),
        ("dev_b", {"idiolink": ["val"], "semeval2022": ["dev_b"], "admire": ["train"]}),
        ("dev", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["dev"]}),
        ("train", {"idiolink": ["train"], "semeval2022": ["dev"], "admire": ["train"]}),
        ("test", {"idiolink": ["test"], "semeval2022": ["test"], "admire": ["test"]}),
        ("extended_pt", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["extended_pt"]}),
        (
            "[val+train,dev_a,own,dev]",
            {"idiolink": ["val+train", "own"], "semeval2022": ["dev_a", "dev"], "admire": ["dev"]},
        ),
    ],
)
def test_a_split_goes_to_each_benchmark_that_has_it(split: str, expected: dict[str, list[str]]) -> None:
    checked = check(EvaluateSettings, composed("evaluate", f"split={split}"))
    assert {name: checked.splits(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("experiment", "chosen", "monitor"),
    [
        ("joint", "semeval2022", "semeval2022/dev_a/en/idiom/spearman"),
        ("adaptive_triplet", "idiolink", "idiolink/val/span/ndcg@10"),
        ("idiolink_ft", "semeval2022", "semeval2022/dev/all/all/spearman"),
    ],
)
def test_what_an_experiment_says_of_a_benchmark_that_is_left_out_does_not_count(
    experiment: str, chosen: str, monitor: str
) -> None:
    experiment_options = (f"+experiment={experiment}", f"benchmark=[{chosen}]")
    left_out = "idiolink" if chosen == "semeval2022" else "semeval2022"
    checked = check(TrainSettings, composed("config", *experiment_options, f"trainer.monitor={monitor}"))
    assert list(checked.benchmark) == [chosen]
    assert checked.splits(left_out) == []
    with pytest.raises(UserError, match=rf"no score '{left_out}/.*This run scores {chosen} on"):
        check(
            TrainSettings,
            composed("config", *experiment_options, f"trainer.monitor={left_out}/val/span/ndcg@10"),
        )
