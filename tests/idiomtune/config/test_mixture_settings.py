"""A mixture's parts: what is filled in, and what is wrong with one, by its name."""

from pathlib import Path

import pytest

from idiomtune.config import TrainSettings, validate
from idiomtune.errors import UserError
from idiomtune.plugins.registry import objective_types
from idiomtune.training.objective import build_objective
from tests.benchmarks import benchmarks_of
from tests.own_data import mixture_options, write_pairs
from tests.programs import refused
from tests.tiny_runs import composed

MIXTURE = ("train", "+experiment=mixture", "data=sample")
# Options that an experiment needs, of its own and of the whole run.
NEEDS = {
    "own": ["+objective.parts.p.data.train=pairs.csv"],
    "adaptive_triplet": ["model.idiom_tokens=train/p"],
    "admire_aima": ["+objective.parts.p.options.clip.path=clip", "trainer.max_epochs=40"],
}


def settings(*overrides: str) -> TrainSettings:
    checked: TrainSettings = validate(TrainSettings, composed(*MIXTURE, *overrides))
    return checked


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_an_experiment_can_be_a_part(name: str) -> None:
    """Beside one on the user's own data; all of its options are filled in."""
    parts = (f"+objective.parts.p.experiment={name}", "+objective.parts.faq.data.train=faq.csv")
    config = composed(*MIXTURE, *parts, *NEEDS[name])
    expected = composed("train", f"+experiment={name}")["objective"]
    part = config["objective"]["parts"]["p"]
    assert (part["experiment"], part["objective"]) == (name, expected["name"])
    assert part["options"].keys() == expected.keys()
    validate(TrainSettings, config)


def test_what_a_part_says_comes_first() -> None:
    parts = settings(
        "+objective.parts={a: {experiment: idiolink_ft, options: {loss: {temperature: 0.5}}}}",
        *("+objective.parts.b.data={train: b.csv, columns: {anchor: title}}", "data.val_share=0.3"),
        *("objective.each_part.batch_size=8", "+objective.parts.b.batch_size=16"),
        "objective.each_part.data.columns={positive: body}",
        "+objective.parts.b.options.positive_weights.sense=2.0",
    ).objective.parts  # type: ignore[attr-defined]
    assert (parts["a"].options.loss.temperature, parts["a"].options.loss.hard_weight) == (0.5, 5.0)
    assert (parts["a"].batch_size, parts["b"].batch_size) == (8, 16)
    assert (parts["b"].data.val_share, parts["b"].data.columns) == (
        0.3,
        {"anchor": "title", "positive": "body"},
    )
    assert parts["b"].options.positive_weights == {"sense": 2.0}


@pytest.mark.slow
def test_scores_of_own_parts_can_be_monitored_and_others_not() -> None:
    parts = ("+objective.parts.faq.data.train=faq.csv", "+objective.parts.i.experiment=idiolink_ft")
    settings(*parts, "trainer.monitor=[own_val/score,own_val/faq/score,own_val/faq/ndcg@10]")
    with pytest.raises(UserError, match=r"trainer.monitor: .*own_val/i/score"):
        settings(*parts, "trainer.monitor=own_val/i/score")


def test_data_sets_of_all_parts() -> None:
    """Of an objective that declares none it is not known whose licence holds."""
    parts = ("+objective.parts.i.experiment=idiolink_ft", "+objective.parts.faq.data.train=faq.csv")
    section = composed(*MIXTURE, *parts)["objective"]
    section["parts"]["other"] = {"objective": "of a package", "options": {}}
    declared = objective_types()["mixture"].datasets
    assert declared is not None
    assert declared(section) == ["idiolink", "own", "the data of the part other"]


OWN = "data: {train: x.csv}"


TRIPLET = "{experiment: adaptive_triplet}"
EXPERTS = "{experiment: admire_experts} | +objective.parts.q.experiment=admire_experts"
FEW = f"{{{OWN}, batch_size: 9, options: {{groups_per_batch: 2}}}}"


# The part and other words, separated by ` | `; parts of the message besides its name, separated by `|`.
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("{weight: 2.0}", "data.train="),
        ("{experiment: idiolinkft}", "experiment=idiolink_ft?"),
        ("{experiment: idiolink_ft, data: {train: x.csv}}", "data.train"),
        (f"{{{OWN}, proportion: 0}}", "p.proportion"),
        (f"{{{OWN}, wieght: 2}}", "p.wieght"),
        (f"{{{OWN}, options: {{los: cosent}}}}", "p.options.los"),
        (f"{{{OWN}, batch_size: 7}} | trainer.accumulation=2", "p.batch_size=7"),
        (FEW, "p.options.groups_per_batch=2|p.batch_size=9"),
        (TRIPLET, "model.idiom_tokens=train/p"),
    ],
)
def test_what_is_wrong_with_a_part_is_named(words: str, named: str) -> None:
    given = f"+objective.parts.p={words}".split(" | ")
    refused(lambda: settings(*given), "objective.parts.p", *named.split("|"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("seed=1", "parts|+objective.parts."),
        ("+objective.parts.p={experiment: idiolink_ft}", "own_val|benchmark="),
        (f"+objective.parts.p={{{OWN}}} | data.train=y.csv", "data.train|objective.parts.<name>.data.train"),
        (f"+objective.parts.p={EXPERTS}", "p and q|experts"),
    ],
)
def test_what_is_wrong_with_a_mixture_is_named(words: str, named: str) -> None:
    refused(lambda: settings(*words.split(" | ")), *named.split("|"))


def test_what_is_wrong_with_a_parts_data_is_named(in_folder: Path) -> None:
    write_pairs(in_folder / "pairs.csv")
    part = "+objective.parts.p={data: {train: pairs.csv}, options: {loss: cosent}}"
    refused(lambda: build_objective(settings(part)), "objective.parts.p.options.loss")


def test_each_part_has_its_batch_size_and_its_held_out_rows(tmp_path: Path) -> None:
    _, *options = mixture_options(tmp_path)
    mixed = settings(*options, "trainer.batch_size=16")
    objective = build_objective(mixed)
    sizes: dict[str, int] = {}
    for step in objective.epoch_steps(0, 1):
        name = objective.batch(0, step[0]).targets[0]
        sizes[name] = max(sizes.get(name, 0), len(step[0]))
    assert sizes == {"faq": 16, "rated": 12, "idioms": 12}  # six idioms, two sentences each
    (benchmark,), _ = benchmarks_of(mixed)
    assert {path.name for path in benchmark.files} == {"faq.csv", "rated.csv"}


def test_rows_that_one_part_holds_out_and_another_trains_on_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faq, other = write_pairs(tmp_path / "faq.csv"), write_pairs(tmp_path / "other.csv", 8)
    parts = f"faq: {{data: {{train: '{faq}'}}}}, other: {{data: {{train: '{faq}', val: '{other}'}}}}"
    benchmarks_of(settings(f"+objective.parts={{{parts}}}"))
    assert "held out of part other are trained on in faq" in caplog.text
