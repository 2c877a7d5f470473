"""`idiomtune report fail_below=` on planted runs: what passes, what fails, what cannot be told."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from idiomtune.cli import read_settings
from idiomtune.errors import UserError
from idiomtune.plugins.score import score_card
from idiomtune.reports.frames import Group, single_recipe
from idiomtune.reports.runs import find_runs, read_runs
from idiomtune.reports.statistics import statistic_of
from idiomtune.reports.thresholds import Threshold, thresholds_of
from tests.planted_runs import SCORES, plant, plant_queries, query, table_of, write_lines
from tests.programs import main_of

main = main_of("report")

NDCG = "idiolink/val/sentence/ndcg@10"
STS = "semeval2022/dev/all/sts/spearman"
IDIOMS = "abcdefghij"
OTHER: dict[str, Any] = {"trainer": {"learning_rate": 5.0}}


def values(seed: int, *, shift: float = 0.0, noise: float = 0.02) -> dict[str, float]:
    """20 queries of each of ten idioms, as IdioLink's val has: a model's, and with a seed's noise."""
    rng, noises = np.random.default_rng(0), np.random.default_rng(seed)
    means = rng.uniform(0.4, 0.9, len(IDIOMS) * 20)
    drawn = np.clip(means + shift + noises.normal(0, noise, len(means)), 0, 1)
    return {f"{IDIOMS[i // 20]}{i % 20}": float(value) for i, value in enumerate(drawn)}


def sts_records(spearman: float, seed: int, num_pairs: int = 600) -> list[dict[str, Any]]:
    """Pairs whose predictions correlate about so with the gold: the same gold for every seed."""
    shared, own = np.random.default_rng(0), np.random.default_rng([seed, 1])
    gold, common = shared.normal(size=(2, num_pairs))  # models err alike on the same pairs
    noise = 0.8 * common + 0.6 * own.normal(size=num_pairs)
    predicted = spearman * gold + (1 - spearman**2) ** 0.5 * noise
    return [
        {"split": "dev", "id": f"EN.{i}", "language": "EN", "subset": "sts", "expression": None}
        | {"predicted": float(p), "gold": float(g)}
        for i, (p, g) in enumerate(zip(predicted, gold, strict=True))
    ]


def plant_sts(folder: Path, spearman: float, *, before: float | None = None, **options: Any) -> Path:
    """A run scored on SemEval's STS pairs, and its untrained model."""
    sides = {"per_query": sts_records(spearman, options.get("seed", 42))}
    if before is not None:
        sides["per_query_baseline"] = sts_records(before, 0)
    scores = []
    for records in sides.values():
        predicted, gold = ([record[name] for record in records] for name in ("predicted", "gold"))
        scores.append({STS: statistic_of("spearman", predicted, gold)})
    plant(folder, scores=scores[0], baseline=scores[-1] if before else {}, **options)
    for name, records in sides.items():
        write_lines(folder / name / "semeval2022.jsonl", records)
    return folder


def recipe(folder: Path) -> Group:
    return single_recipe(read_runs(find_runs([folder])))


def thresholds(run: Path, other: Path, **margins: float) -> dict[str, Threshold]:
    """Score → its threshold; a margin is named by the metric of IdioLink, or `every`."""
    names = {"every": "", "ndcg": NDCG, "literal": f"{NDCG}/literal"}
    by_key = {names[name]: margin for name, margin in margins.items()}
    return {t.difference.key: t for t in thresholds_of(recipe(run), recipe(other), by_key)[0]}


def planted(tmp_path: Path, before: dict[str, float], after: dict[str, float]) -> tuple[Path, Path]:
    """A run with these queries, and another to compare it with."""
    number = len(list(tmp_path.iterdir()))
    theirs = plant_queries(tmp_path / f"{number}_before", before)
    return plant_queries(tmp_path / f"{number}_after", after, **OTHER), theirs


def test_the_published_triplets_fall_in_sts_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SemEval dev: .834 before training, .713 after it."""
    run = plant_sts(tmp_path / "triplet", 0.713, before=0.834, experiment="adaptive_triplet_paper")
    assert main([str(run), "against=baseline", f"fail_below={STS}:0.02"]) == 1
    *_, verdict, folder = capsys.readouterr().out.splitlines()
    assert folder == str(run)
    assert verdict.startswith(f"adaptive_triplet_paper: fails in 1 of 1 scores, at worst {STS} (worse by")
    for name in ("report.html", "table.md", "table.tex"):
        assert "against its untrained model" in (run / name).read_text(encoding="utf-8")
    (check,) = thresholds_of(recipe(run), None, {STS: 0.02})[0]
    difference = check.difference
    assert (check.outcome, difference.num_queries, difference.num_clusters) == ("fails", 600, 600)
    assert difference.difference == pytest.approx(-0.12, abs=0.04)
    assert difference.by_cluster is not None
    assert difference.by_cluster[1] < -0.02


def test_two_seeds_of_one_recipe_pass(tmp_path: Path) -> None:
    """What is named by `against=` is in no group with the others; either may be an evaluation."""
    ours, theirs = (plant_queries(tmp_path / f"idiolink{s}", values(s), seed=s) for s in (42, 43))
    assert main([str(ours), f"against={theirs}", "fail_below=0.01"]) == 0
    assert (tmp_path / "report" / "report.html").is_file()  # in no folder of a run
    sts = [plant_sts(tmp_path / f"sts{s}", 0.83, seed=s) for s in (42, 43)]
    assert thresholds(*sts, every=0.02)[STS].outcome == "passes"
    one, two = evaluation(tmp_path / "one", values(1)), evaluation(tmp_path / "two", values(2, shift=-0.1))
    assert main([str(one), f"against={tmp_path / 'idiolink42'}", "fail_below=0.02"]) == 0
    assert main([str(two), f"against={one}", "fail_below=0.02"]) == 1


def test_a_small_margin_cannot_be_told_and_a_failure_counts_for_more(tmp_path: Path) -> None:
    """A loss of 0.005 ± noise: neither within nor beyond 0.005."""
    ours, theirs = planted(tmp_path, values(1, noise=0.1), values(2, noise=0.1, shift=-0.005))
    found = thresholds(ours, theirs, ndcg=0.005)[NDCG]
    low, high = found.difference.by_cluster or (0, 0)
    assert (found.outcome, low < -0.005 < high) == ("cannot tell", True)
    lost = plant_queries(tmp_path / "lost", values(2, shift=-0.2), trainer={"learning_rate": 6.0})
    command = [str(ours), f"against={theirs}", f"fail_below={NDCG}:0.005", str(lost)]
    assert main(command) == 1  # of several groups the worst outcome counts


@pytest.mark.parametrize(("num_idioms", "outcome"), [(5, "cannot tell"), (6, "passes")])
def test_few_clusters_tell_nothing(tmp_path: Path, num_idioms: int, outcome: str) -> None:
    """Idioms that all gain, each by much: no test of signs over five reaches 5%."""
    before = {f"{idiom}{i}": 0.5 for idiom in IDIOMS[:num_idioms] for i in range(20)}
    runs = planted(tmp_path, before, dict.fromkeys(before, 0.9))
    assert {t.outcome for t in thresholds(*runs, every=0.01).values()} == {outcome}


def test_queries_of_one_idiom_count_as_one(tmp_path: Path) -> None:
    """Three of ten idioms lose 0.1: by query that is certainly more than 0.005, by idiom it is not."""
    before = values(0, noise=0)
    after = {id_: value - 0.1 * (id_[0] in "abc") for id_, value in before.items()}
    check = thresholds(*planted(tmp_path, before, after), ndcg=0.005)[NDCG]
    found = check.difference
    assert (check.outcome, found.num_queries, found.num_clusters) == ("cannot tell", 200, 10)
    assert (found.by_cluster or (0, 1))[1] == pytest.approx(0, abs=0.011)


def test_smaller_is_better_for_errors(tmp_path: Path) -> None:
    """AdMIRe's rank difference: 4 before, 3 after, and the other way round."""
    key = "admire/train/caption/rank_difference"
    worse, better = (tmp_path / "4.0", tmp_path / "3.0")
    for folder in (worse, better):
        value = float(folder.name)
        plant(folder, scores={key: value}, baseline={}, trainer={"rate": value})
        record = {"split": "train", "mode": "caption", "sense": "literal", "rank_difference": value}
        items = [record | {"id": f"{i}", "compound": f"c{i}"} for i in range(10)]
        write_lines(folder / "per_query" / "admire.jsonl", items)
    for after, before, margin, status in (
        (better, worse, f"{key}:0.5", 0),
        (worse, better, f"{key}:0.5", 1),
        (worse, better, "0.5", 2),  # a share's margin is no rank's
    ):
        assert main([str(after), f"against={before}", f"fail_below={margin}"]) == status
    assert thresholds_of(recipe(worse), recipe(better), {key: 1.5})[0][0].outcome == "passes"


def test_a_slice_has_an_interval_of_its_own(tmp_path: Path) -> None:
    """Literal queries lose 0.2, idiomatic ones gain 0.2: over all nothing changes."""
    key = f"{NDCG}/literal"
    for change in (0.0, 0.2):
        scores = {NDCG: 0.5, key: 0.5 - change, f"{NDCG}/idiomatic": 0.5 + change}
        folder = plant(tmp_path / str(change), scores=scores, baseline={}, trainer={"rate": change})
        signs = {id_: ("literal", -1) if int(id_[1:]) % 2 else ("idiomatic", 1) for id_ in values(0)}
        records = [query(id_, 0.5 + sign * change, usage=usage) for id_, (usage, sign) in signs.items()]
        write_lines(folder / "per_query" / "idiolink.jsonl", records)
    found = thresholds(tmp_path / "0.2", tmp_path / "0.0", every=0.02, literal=0.05)
    judged = {key: (t.outcome, t.difference.num_queries) for key, t in found.items()}
    assert judged == {NDCG: ("passes", 200), key: ("fails", 100)}


def evaluation(folder: Path, queries: dict[str, float]) -> Path:
    """What `idiomtune evaluate output=scores.json per_query=<somewhere>/queries.jsonl` writes, moved."""
    config = {"model": {"path": folder.name}, "per_query": "elsewhere/queries.jsonl"}
    mean = sum(queries.values()) / len(queries)
    card = score_card(table_of({NDCG: mean}), {}, {"model": folder.name, "config": config})
    records = [{"benchmark": "idiolink", **query(i, v)} for i, v in queries.items()]
    others = [{"benchmark": "semeval2022", **record} for record in sts_records(0.5, 0, 10)]
    write_lines(folder / "queries.jsonl", [*records, *others])
    (folder / "scores.json").write_text(json.dumps(card), encoding="utf-8")
    return folder / "scores.json"


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results of each query; a score that a default margin cannot hold for."""
    before, after = plant(tmp_path / "a"), plant_queries(tmp_path / "b", values(0), **OTHER)
    assert main([str(after), f"against={before}", f"fail_below={NDCG}:0.5"]) == 3
    assert "no results of each query" in capsys.readouterr().out
    card = json.loads((after / "scores.json").read_text(encoding="utf-8"))
    del card["scores"][NDCG]
    (after / "scores.json").write_text(json.dumps(card), encoding="utf-8")
    assert main([str(after), f"against={plant_queries(tmp_path / 'c', values(0))}", "fail_below=0.02"]) == 0
    assert f"lacks them: {NDCG}" in capsys.readouterr().out


def test_a_wrong_command_is_named() -> None:
    wrong = ("-0.1", f"{NDCG}:high", "nan", "[1,2]")
    for words in ("run fail_below=0.1", *(f"run against=old fail_below={value}" for value in wrong)):
        with pytest.raises(UserError, match="fail_below" if "against" in words else "against="):
            read_settings("report", words.split())


def test_a_crash_is_no_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Python's own status for it would say that a score fails."""
    monkeypatch.setattr("idiomtune.programs.report.report", Mock(side_effect=ZeroDivisionError("a mistake")))
    assert main(["run", "against=baseline", "fail_below=0.5"]) == 2
    assert "a mistake" in capsys.readouterr().err


def test_what_cannot_be_judged_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, other = (str(plant_queries(tmp_path / name, values(0))) for name in ("run", "other"))
    plant_queries(tmp_path / "sweep" / "changed", values(0), **OTHER)
    plant_queries(tmp_path / "sweep" / "again", values(0))
    sts = plant_sts(tmp_path / "sts", 0.8, before=0.8)
    bare = plant(tmp_path / "bare", scores=SCORES, baseline={})
    fact = {"epsilon/C/rank_biserial": 0.4}
    facts = plant(tmp_path / "facts", scores=fact, baseline=fact)
    for arguments, named in (
        ([run, f"against={tmp_path / 'sweep'}", "fail_below=0.5"], "learning_rate=5"),
        ([run, f"against={run}", "fail_below=0.1"], "against"),
        ([bare, "against=baseline", "fail_below=0.1"], "untrained"),
        ([run, f"against={other}", f"fail_below={NDCG.replace('ndcg', 'ndgc')}:0.5"], NDCG),  # the nearest
        ([run, f"against={sts}", "fail_below=0.1"], "fail_below=<score>"),
        ([facts, "against=baseline", "fail_below=epsilon/C/rank_biserial:0.1"], "neither better nor worse"),
    ):
        assert main([str(argument) for argument in arguments]) == 2
        assert named in capsys.readouterr().err
