"""Wrong settings are refused with the option's name; every config of the project is sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tiny_runs import composed
from train.config import EvaluateSettings, TrainSettings, check
from train.config.compose import CONF, config_names
from train.errors import UserError

# What an experiment needs beside its name.
NEEDED = {
    "mixture": ["+objective.parts.mine.data.train=pairs.csv"],
    "own": ["data.train=pairs.csv"],
}


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
        rf"^# python -m train \+experiment={experiment}( '?\+?(data|objective)\..*)?$", text, re.MULTILINE
    )


def test_evaluation_config_is_sound() -> None:
    check(EvaluateSettings, composed("evaluate"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trainer.batch_size=abc", "trainer.batch_size: must be a valid integer, got 'abc'"),
        ("trainer.batch_size=0", "trainer.batch_size: must be greater than 0, got 0"),
        ("trainer.batch_size=true", "trainer.batch_size"),
        ("trainer.accumulation=5", "batch_size=32 cannot be cut into accumulation=5"),
        ("trainer.warmup_ratio=3", "trainer.warmup_ratio"),
        ("objective.query_mode=sentense", "objective.query_mode"),
        (
            "objective.loss.temperature=0",
            "objective.loss.temperature: must be greater than or equal to 0.0001",
        ),
        ("objective.loss.in_batch=some", "must be one of 'none', 'positives' or 'all', got 'some'"),
        ("device=gpu", "device: must be one of 'auto', 'cpu', 'cuda' or 'mps', got 'gpu'"),
        ("seed=-1", "seed"),
        ("eval.every=0", "eval.every"),
        (
            "eval.benchmarks=[idiolnk]",
            "got 'idiolnk'",
        ),
        ("trainer.monitor=idiolink/val/sentence/ndcg10", "the nearest it has: idiolink/val/sentence/ndcg@10"),
        ("split=test", "trainer.monitor: this run has no score 'idiolink/val/sentence/ndcg@10'"),
        ("eval.benchmarks=[]", "eval.benchmarks"),
        ("objective.loss.temperature=inf", "objective.loss.temperature: must be a finite number"),
        ("+nonsense=1", "nonsense"),
        ("objective.query_weights=[1,2]", "query_weights has 2 numbers for the 1 modes of query_mode"),
        ("objective.tuples=batch", "tuples=batch takes positives and negatives from the batch alone"),
        ("objective.idioms_per_batch=5", "objective.idioms_per_batch=5 idioms cannot have equally many"),
        ("data.fold=0", "cross-validation needs data.fold=<number>, split=cv and"),
        ("split=cv", "cross-validation needs data.fold=<number>"),
        ("data.folds=1", "data.folds"),
        ("data.extra=pie", "data.extra=pie adds sentences that serve as anchors"),
        ("objective.positive_weights={idiomatic:0.0,simplification:0.0,sense:0.0}", "all weights 0"),
        ("trainer.keep_checkpoints=0", "trainer.keep_checkpoints"),
        ("benchmark.epsilon.versions=any_word", "it needs phrases=compound"),
        ("benchmark.epsilon.languages=[gl]", "benchmark.epsilon.languages"),
    ],
)
def test_what_is_wrong_is_named(override: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        check(TrainSettings, composed("config", override))
    assert expected in str(caught.value)


def test_released_tuples_cannot_be_redrawn() -> None:
    with pytest.raises(UserError, match="redraw=true needs tuples=drawn"):
        check(TrainSettings, composed("config", "objective.tuples=released", "objective.redraw=true"))


def test_folds_are_drawn_from_the_data_not_released() -> None:
    fold = ("+protocol=cross_validation", "data.fold=0")
    assert check(TrainSettings, composed("config", *fold)).splits("idiolink") == ["cv"]
    with pytest.raises(UserError, match=r"objective\.tuples=released are of the train split"):
        check(TrainSettings, composed("config", *fold, "objective.tuples=released"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("objective.drop_last=true", "drop_last=true goes with shuffled batches only"),
        ("trainer.accumulation=8", "leaves two idioms or more"),
    ],
)
def test_what_does_not_go_with_balanced_batches(override: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        check(TrainSettings, composed("config", "+experiment=idiolink_ft", override))


def test_evaluation_takes_no_training_data_and_no_fold_that_is_not_scored() -> None:
    with pytest.raises(UserError, match="is training data"):
        check(EvaluateSettings, composed("evaluate", "data.extra=pie"))
    with pytest.raises(UserError, match="cross-validation needs"):
        check(EvaluateSettings, composed("evaluate", "data.fold=1"))
    fold = check(EvaluateSettings, composed("evaluate", "data.fold=1", "split=cv"))
    assert fold.splits("idiolink") == ["cv"]
    assert fold.splits("semeval2022") == ["dev"]


def test_the_sample_has_no_external_data() -> None:
    with pytest.raises(UserError, match="data=sample holds no pie data"):
        check(TrainSettings, composed("config", "data=sample", "data.extra=pie"))


def test_sample_and_a_root_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data=sample and data\.root"):
        check(TrainSettings, composed("config", "data=sample", f"data.root={tmp_path}"))


def test_several_problems_are_told_at_once() -> None:
    with pytest.raises(UserError, match="2 settings are wrong"):
        check(TrainSettings, composed("config", "seed=-1", "device=gpu"))


@pytest.mark.parametrize(
    ("split", "idiolink_splits", "semeval_splits"),
    [
        ("val+train", ["val+train"], ["dev"]),
        ("test", ["test"], ["test"]),
        ("dev_b", ["val"], ["dev_b"]),
        ("[val,eval,test]", ["val", "test"], ["eval", "test"]),
    ],
)
def test_a_split_goes_to_the_benchmarks_that_have_it(
    split: str, idiolink_splits: list[str], semeval_splits: list[str]
) -> None:
    settings = check(EvaluateSettings, composed("evaluate", f"split={split}"))
    assert settings.splits("idiolink") == idiolink_splits
    assert settings.splits("semeval2022") == semeval_splits


def test_a_split_that_no_benchmark_has_is_refused() -> None:
    with pytest.raises(UserError, match="split=val: none of the benchmarks semeval2022 has that split"):
        check(EvaluateSettings, composed("evaluate", "benchmark=[semeval2022]", "split=val"))


def test_a_benchmark_that_is_left_out_cannot_be_named() -> None:
    with pytest.raises(UserError, match=r"semeval2022 is not among benchmark=\[idiolink\]"):
        check(EvaluateSettings, composed("evaluate", "benchmark=[idiolink]", "benchmarks=[semeval2022]"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("objective.loss.margin=0", "objective.loss.margin: must be greater than 0"),
        ("objective.loss.triplets=some", "objective.loss.triplets: must be one of"),
        ("objective={order:file,groups_per_expression:2}", "which needs order=shuffled"),
        ("objective={whole_groups:false}", "which needs order=file"),
        ("data.extra=pie", "it needs the objective idiolink"),
        ("+protocol=cross_validation", "objective.split: there is no such option"),
    ],
)
def test_what_is_wrong_with_the_triplet_objective_is_named(override: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        check(TrainSettings, composed("config", "+experiment=adaptive_triplet", override))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("+objective.proportions.admire=1.0", "'admire' is not one of"),
        ("objective.proportions.idiolink=0", "objective.proportions.idiolink: must be greater than 0"),
        ("trainer.batch_size=60", "objective.idiolink.idioms_per_batch=8"),
    ],
)
def test_what_is_wrong_with_the_joint_objective_is_named(override: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        check(TrainSettings, composed("config", "+experiment=joint", override))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("null", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["train"]}),
        ("dev", {"idiolink": ["val"], "semeval2022": ["dev"], "admire": ["dev"]}),
        ("train", {"idiolink": ["train"], "semeval2022": ["dev"], "admire": ["train"]}),
        ("test", {"idiolink": ["test"], "semeval2022": ["test"], "admire": ["train"]}),
        (
            "[val+train,dev_a,own,dev]",
            {"idiolink": ["val+train", "own"], "semeval2022": ["dev_a", "dev"], "admire": ["dev"]},
        ),
    ],
)
def test_a_split_goes_to_each_benchmark_that_has_it(split: str, expected: dict[str, list[str]]) -> None:
    checked = check(EvaluateSettings, composed("evaluate", f"split={split}"))
    assert {name: checked.splits(name) for name in expected} == expected


def test_a_split_that_no_benchmark_has_is_named() -> None:
    with pytest.raises(UserError, match="split=dev_a: none of the benchmarks admire has that split"):
        check(EvaluateSettings, composed("evaluate", "benchmark=[admire]", "split=dev_a"))


def test_a_score_whose_smallest_is_best_picks_no_checkpoint() -> None:
    key = "admire/train/caption/rank_difference"
    with pytest.raises(UserError, match=f"trainer.monitor={key}: the greatest is taken as the best"):
        check(TrainSettings, composed("config", f"trainer.monitor={key}"))
    check(TrainSettings, composed("config", "trainer.monitor=admire/train/caption/ndcg@5/idiomatic"))


@pytest.mark.parametrize(
    ("experiment", "chosen", "monitor"),
    [
        ("joint", "idiolink", "idiolink/val/span/ndcg@10"),
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
    assert checked.benchmark.names == [chosen]
    assert checked.splits(left_out) == []
    with pytest.raises(UserError, match=rf"no score '{left_out}/.*This run scores {chosen} on"):
        check(
            TrainSettings,
            composed("config", *experiment_options, f"trainer.monitor={left_out}/val/span/ndcg@10"),
        )


def test_a_benchmark_that_does_not_exist_is_not_taken_for_one_that_is_left_out() -> None:
    with pytest.raises(UserError, match=r"benchmark\.semeval: there is no such option"):
        check(EvaluateSettings, composed("evaluate", "+benchmark.semeval.split=dev"))


def test_some_benchmark_must_be_chosen() -> None:
    with pytest.raises(UserError, match=r"benchmark: choose one or more: benchmark=\[idiolink, "):
        check(TrainSettings, composed("config", "+experiment=joint", "benchmark=[]"))
