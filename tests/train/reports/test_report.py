"""`train.report` on planted runs: what is one group, what tables hold, what is compared, what is said."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.planted_runs import SCORES, plant, plant_queries, query, write_lines
from train.declarations.models import model_values
from train.errors import UserError
from train.hub.card import eval_results
from train.report import main, parse
from train.reports.compare import compare_groups, compare_to_untrained, paired_notes
from train.reports.groups import Group, group_runs
from train.reports.page import page
from train.reports.runs import find_runs, read_runs
from train.reports.sweep_screen import show_finished_sweep
from train.reports.tables import (
    as_csv,
    idiom_tables,
    latex,
    latex_document,
    markdown,
    paper_tables,
    tex,
    verdict,
)
from train.reports.terminal import print_paired
from train.reports.text import as_markdown

R_PRECISION, NDCG = "idiolink/val/sentence/r_precision", "idiolink/val/sentence/ndcg@10"


def groups_of(*folders: Path, by_seed: bool = True) -> list[Group]:
    runs = read_runs(find_runs(folders)[0])
    return group_runs([run for run in runs if run.is_scored], by_seed=by_seed)


def test_runs_that_differ_in_seed_alone_are_one_group(tmp_path: Path) -> None:
    for number, (seed, rate, value) in enumerate(
        [(42, 1e-4, 0.5), (43, 1e-4, 0.7), (42, 1e-3, 0.2), (44, 1e-4, 0.6)]
    ):
        own: dict[str, Any] = {
            "trainer": {"learning_rate": rate, "log_every": number},
            "run_dir": str(number),
        }
        plant(tmp_path / str(number), scores={NDCG: value}, seed=seed, **own)
    first, second = groups_of(tmp_path)
    assert [first.name, second.name] == ["learning_rate=0.0001", "learning_rate=0.001"]
    assert first.summary == "3 seeds (42, 43, 44)"
    of_three = first.value(NDCG)
    assert of_three is not None
    assert (of_three.mean, of_three.std) == pytest.approx((0.6, 0.1))  # sample std
    assert of_three.num_seeds == 3
    alone = second.value(NDCG)
    assert alone is not None
    assert (alone.mean, alone.std, alone.num_seeds) == (0.2, None, 1)
    assert len(groups_of(tmp_path, by_seed=False)) == 4


def test_an_option_that_is_not_set_may_be_missing(tmp_path: Path) -> None:
    """A run of an older version has fewer options."""
    plant(tmp_path / "old", seed=1)
    plant(tmp_path / "new", seed=2, retain={"lora": None})
    plant(tmp_path / "other", seed=3, retain={"lora": 8})
    names = [group.name for group in groups_of(tmp_path)]
    assert names == ["lora=null", "lora=8"]


def test_names_say_the_experiment_where_it_differs(tmp_path: Path) -> None:
    plant(tmp_path / "a", experiment="joint", trainer={"learning_rate": 1.0, "batch_size": 8})
    plant(tmp_path / "b", experiment="idiolink_ft", trainer={"learning_rate": 2.0, "batch_size": 16})
    plant(tmp_path / "c", experiment="idiolink_ft", trainer={"learning_rate": 3.0, "batch_size": 16})
    names = [group.name for group in groups_of(tmp_path)]
    assert names == ["joint", "idiolink_ft, learning_rate=2", "idiolink_ft, learning_rate=3"]


def test_a_model_has_one_short_name(tmp_path: Path) -> None:
    """What was changed of its options stays beside it; its path where it has no name."""
    e5 = model_values("e5_base")
    plant(tmp_path / "a", model=e5)
    plant(tmp_path / "b", model=model_values("minilm") | {"tokens_per_forward": 512})
    plant(tmp_path / "c", model=e5 | {"pooling": "cls"})
    plant(tmp_path / "d", model=model_values("pretrained") | {"path": "/runs/idiolink_ft/one/best"})
    groups = groups_of(tmp_path)
    assert [group.options["model"] for group in groups] == ["e5_base", "minilm", "e5_base", "one/best"]
    names = [group.name for group in groups]
    assert names[:2] == ["model=e5_base", "model=minilm, tokens_per_forward=512"]
    assert names[2:] == ["model=e5_base, pooling=cls", "model=one/best"]
    assert list(groups[0].options) == ["model", "model.tokens_per_forward", "model.pooling"]
    assert [group.options["model.pooling"] for group in groups[::2]] == [e5["pooling"] or "null", "cls"]


def test_models_in_folders_of_one_name_stay_apart(tmp_path: Path) -> None:
    paths = ["runs/a/one/best", "runs/b/one/best"]
    for number, path in enumerate(paths):
        plant(tmp_path / str(number), model={"path": path})
    groups = groups_of(tmp_path)
    assert [group.name for group in groups] == [f"model={path}" for path in paths]
    assert [group.options for group in groups] == [{"model": path} for path in paths]


def test_a_sweep_ends_with_its_table_also_where_the_first_job_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path / "0", seed=1, status="failed")
    plant(tmp_path / "1", seed=2, status="failed")
    show_finished_sweep(tmp_path)
    told = capsys.readouterr().out
    assert told.splitlines()[0].strip() == "2 jobs"
    assert "train.report" not in told  # which would have no scores to report
    plant(tmp_path / "2", seed=3, scores=dict.fromkeys(SCORES, 0.4))
    plant(tmp_path / "3", seed=4, scores=dict.fromkeys(SCORES, 0.7))
    show_finished_sweep(tmp_path)
    told = capsys.readouterr().out
    assert told.splitlines()[0].strip() == f"4 jobs by {NDCG}"
    assert "the best job: 3 (seed=4)" in told
    assert told.count("failed") == 2


def test_folds_are_averaged_within_a_seed(tmp_path: Path) -> None:
    for seed, values in ((1, (0.2, 0.4)), (2, (0.4, 0.8)), (3, (0.9,))):
        for fold, score in enumerate(values):
            own: dict[str, Any] = {"data": {"fold": fold}}
            plant(tmp_path / f"{seed}_{fold}", scores={NDCG: score}, baseline={}, seed=seed, **own)
    (group,) = groups_of(tmp_path)
    value = group.value(NDCG)
    assert value is not None
    assert value.mean == pytest.approx(0.45)
    assert value.num_seeds == 2
    (note,) = group.notes()
    assert "seed 3 lacks fold 1" in note


def test_tables_hold_what_was_planted(tmp_path: Path) -> None:
    scores = SCORES | {
        "idiolink/val/bm25_span/ndcg@10": 0.3,
        "semeval2022/dev/en/idiom/spearman": 0.1234,
        "semeval2022/dev/all/sts/spearman": 0.9,
        "admire/train/caption/rank_difference": 7.5,
        "epsilon/C/rank_biserial": 0.35,
    }
    plant(tmp_path / "a", scores=scores, seed=1)
    plant(tmp_path / "b", scores=scores | {NDCG: 0.62}, seed=2)
    idiolink, semeval, epsilon, admire = paper_tables(groups_of(tmp_path))
    lines = markdown(idiolink).splitlines()
    assert lines[0] == "| model | sentence R-Precision | sentence nDCG@10 | span nDCG@10 |"
    assert lines[2] == "| BM25 | – | – | 30.00 |"
    assert lines[3] == "| untrained | 25.00 | 25.00 | – |"
    assert lines[4] == "| idiolink_ft | 50.00 ± 0.00 | 61.00 ± 1.41 | – |"
    assert markdown(semeval).splitlines()[2:] == [
        "| idiolink_ft | English | 0.123 ± 0.000 | – | – |",
        "| idiolink_ft | together | – | 0.900 ± 0.000 | – |",
    ]
    assert "| idiolink_ft | English | 0.350 ± 0.000 |" in markdown(epsilon)
    assert "| idiolink_ft | caption | 7.500 ± 0.000 |" in markdown(admire)


def test_latex_is_balanced_and_escaped(tmp_path: Path) -> None:
    plant(tmp_path / "a", model={"path": r"50% of_a & b \ {c} ~^#$ε"})
    plant(tmp_path / "b", model={"path": "plain"})
    (table,) = paper_tables(groups_of(tmp_path))
    text = latex(table)
    assert r"\multicolumn{2}{c}{sentence}" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert (
        r"model=50\% of\_a \& b \textbackslash{} \{c\} \textasciitilde{}\textasciicircum{}\#\$$\varepsilon$"
        in text
    )
    bare = re.sub(r"\\[&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[%#_~^]", bare)
    assert r"\end{table}" in text
    assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text)[::-1]
    rows = [line for line in bare.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(rows) == 4  # heads, untrained, both runs
    assert {row.count("&") for row in rows} == {2}
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert rule in text
    assert tex("a±b<c") == r"a$\pm$b$<$c"
    document = latex_document([table], ["a note % with\nlines"])
    assert all(line.startswith("%") for line in document.splitlines()[:3])


def test_queries_are_paired_by_id(tmp_path: Path) -> None:
    """Differences 0.1 and 0.3 (idiom a), 0.2 (b): all positive, so p is 2 / 8 by query, 2 / 4 by idiom."""
    ours = {"a1": 0.6, "b1": 0.5, "a2": 0.9}
    theirs = {"a2": 0.6, "a1": 0.5, "b1": 0.3}
    plant_queries(tmp_path / "ours", ours, theirs)
    (group,) = groups_of(tmp_path)
    paired = compare_to_untrained(group)
    first, second = paired.differences
    assert paired.notes == []
    assert (first.key, second.key) == (R_PRECISION, NDCG)
    assert (second.num_queries, second.num_clusters) == (3, 2)
    assert second.difference == pytest.approx(0.2)
    assert (second.p_query, second.p_cluster) == (2 / 8, 2 / 4)
    assert second.by_query == pytest.approx((0.1, 0.3))
    assert second.by_cluster == pytest.approx((0.2, 0.2))
    assert verdict(second) == "better"


def test_differences_are_told_idiom_by_idiom(tmp_path: Path) -> None:
    """The greatest gain first: b gains 0.5, a 0.1 and loses 0.3."""
    plant_queries(tmp_path / "ours", {"a1": 0.6, "a2": 0.2, "b1": 0.9}, {"a1": 0.5, "a2": 0.5, "b1": 0.4})
    (group,) = groups_of(tmp_path)
    paired = compare_to_untrained(group)
    assert list(paired.differences[1].clusters) == ["b", "a"]
    assert paired.differences[1].clusters == pytest.approx({"b": 0.5, "a": -0.1})
    ((heads, rows),) = idiom_tables(paired).values()
    assert heads == ["idiom", R_PRECISION, NDCG]
    assert rows == [["b", "+0.5000", "+0.5000"], ["a", "-0.1000", "-0.1000"]]
    assert "| b | +0.5000 | +0.5000 |" in as_markdown([group], [], [paired], [])
    assert "idiom by idiom" in page([group], group.runs, [paired], [])


@pytest.mark.parametrize(
    "known", [{"glossary": {"files": ["a.tsv"]}}, {"glossary_learnt": [{"files": ["a.tsv"]}]}]
)
def test_scores_with_a_glossary_are_marked(tmp_path: Path, known: dict[str, Any]) -> None:
    plant_queries(tmp_path / "without", {"a1": 0.6})
    path = plant_queries(tmp_path / "with", {"a1": 0.6}, model={"glossary": ["a.tsv"]}) / "scores.json"
    card = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(card | {"meta": card["meta"] | known}), encoding="utf-8")
    notes = [note for group in groups_of(tmp_path) for note in group.notes()]
    assert len(notes) == 1
    assert notes[0].endswith(": with a glossary (a.tsv)")


def test_a_cross_validation_is_told_fold_by_fold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for fold, gain in enumerate((0.1, 0.3)):
        options: dict[str, Any] = {"data": {"fold": fold}}
        plant_queries(tmp_path / f"a{fold}", {f"a{fold}": 0.5 + gain}, **options)
        plant_queries(tmp_path / f"b{fold}", {f"a{fold}": 0.5}, trainer={"learning_rate": 5.0}, **options)
    ours, theirs = groups_of(tmp_path)
    paired = compare_groups(ours, theirs)
    assert paired.differences[1].folds == pytest.approx({0: 0.1, 1: 0.3})
    assert "| 1 | +0.3000 | +0.3000 |" in as_markdown([ours, theirs], [], [paired], [])
    print_paired(paired)
    assert "fold by fold" in capsys.readouterr().out


def test_folds_of_other_divisions_are_not_compared(tmp_path: Path) -> None:
    for name, folds in (("a", 4), ("b", 8)):
        plant_queries(tmp_path / name, {"a1": 0.5}, data={"fold": 0, "folds": folds})
    ours, theirs = groups_of(tmp_path)
    assert ours.by_fold(NDCG).keys() == theirs.by_fold(NDCG).keys() == {0}
    assert not any(difference.folds for difference in compare_groups(ours, theirs).differences)


def test_each_query_is_averaged_over_seeds(tmp_path: Path) -> None:
    plant_queries(tmp_path / "a1", {"a1": 0.2, "b1": 0.4}, seed=1)
    plant_queries(tmp_path / "a2", {"a1": 0.6, "b1": 0.8}, seed=2)
    plant_queries(tmp_path / "b", {"a1": 0.1, "b1": 0.2}, seed=1, trainer={"learning_rate": 5.0})
    ours, theirs = groups_of(tmp_path)
    result = compare_groups(ours, theirs).differences[0]
    assert (result.ours, result.theirs) == pytest.approx((0.5, 0.15))
    assert result.by_query == pytest.approx((0.3, 0.4))


def test_without_records_seeds_alone_are_compared_and_it_is_said(tmp_path: Path) -> None:
    plant_queries(tmp_path / "a", {"a1": 0.2, "b1": 0.4})
    plant(tmp_path / "b", trainer={"learning_rate": 5.0})
    ours, theirs = groups_of(tmp_path)
    paired = compare_groups(ours, theirs)
    assert paired.differences[0].by_query is None
    assert paired.differences[0].difference == pytest.approx(0.3 - 0.5)
    (note,) = paired_notes([paired])
    assert note == "no results of each query: compared by seeds alone (idiolink; run b)"


def test_records_of_another_checkpoint_are_not_used(tmp_path: Path) -> None:
    folder = plant_queries(tmp_path / "a", {"a1": 0.2, "b1": 0.4}, {"a1": 0.1, "b1": 0.1})
    write_lines(folder / "per_query" / "idiolink.jsonl", [query("a1", 0.9), query("b1", 0.9)])
    (group,) = groups_of(folder)
    paired = compare_to_untrained(group)
    assert paired.differences[0].by_query is None
    assert any("not those of scores.json" in note for note in paired_notes([paired]))


def test_other_queries_are_not_compared(tmp_path: Path) -> None:
    plant_queries(tmp_path / "a", {"a1": 0.2, "b1": 0.4})
    plant_queries(tmp_path / "b", {"a1": 0.2, "c1": 0.4}, trainer={"learning_rate": 5.0})
    ours, theirs = groups_of(tmp_path)
    paired = compare_groups(ours, theirs)
    assert paired.differences[0].by_query is None
    assert any("not the same queries (2 and 2, 1 in both)" in note for note in paired.notes)


def test_correlations_have_intervals_but_no_p(tmp_path: Path) -> None:
    key = "semeval2022/dev/en/sts/spearman"
    gold = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    predictions = {"per_query": gold, "per_query_baseline": [0.2, 0.1, 0.4, 0.3, 0.6, 0.5, 0.8, 0.7]}
    before = 1 - 6 * 8 / (8 * 63)
    folder = plant(tmp_path / "a", scores={key: 1.0}, baseline={key: before})
    for name, predicted in predictions.items():
        records = [
            {"split": "dev", "id": str(i), "language": "EN", "subset": "sts", "expression": None}
            | {"predicted": p, "gold": g}
            for i, (p, g) in enumerate(zip(predicted, gold, strict=True))
        ]
        write_lines(folder / name / "semeval2022.jsonl", records)
    (group,) = groups_of(folder)
    (difference,) = compare_to_untrained(group).differences
    assert difference.p_query is None
    assert difference.by_query is not None
    low, high = difference.by_query
    assert 0 <= low < 1 - before < high < 0.6
    assert "no mean over pairs" in difference.why_not


def test_of_a_correlation_each_expression_s_pairs_come_nearer_to_gold_or_not(tmp_path: Path) -> None:
    """Before, the ranks of 0 and 1 are swapped; after, those of 2 and 3: a gains 1 rank of 4, b loses it."""
    key = "semeval2022/dev/en/idiom/spearman"
    folder = plant(tmp_path / "a", scores={key: 0.8}, baseline={key: 0.8})
    for name, predicted in (("per_query", [1, 2, 4, 3]), ("per_query_baseline", [2, 1, 3, 4])):
        records = [
            {"split": "dev", "id": str(i), "language": "EN", "subset": "idiom", "expression": "aabb"[i]}
            | {"predicted": p / 10, "gold": (i + 1) / 10}
            for i, p in enumerate(predicted)
        ]
        write_lines(folder / name / "semeval2022.jsonl", records)
    (group,) = groups_of(folder)
    paired = compare_to_untrained(group)
    assert paired.differences[0].rank_gains == {"a": 0.25, "b": -0.25}
    assert not paired.differences[0].clusters  # which are differences in the score
    ((heading, (_, rows)),) = idiom_tables(paired).items()
    assert "rank" in heading
    assert rows == [["a", "+0.2500"], ["b", "-0.2500"]]
    assert heading in as_markdown([group], [], [paired], [])
    assert heading in page([group], group.runs, [paired], [])


def test_failed_and_unfinished_jobs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep"
    plant(sweep / "0")
    plant(sweep / "1", status="running")
    plant(sweep / "3", status="failed")
    (sweep / "4").mkdir()
    (sweep / "4" / "config.yaml").write_text("a: [")
    hydra = {
        "sweeper": {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "params": None},
        "overrides": {"task": ["+experiment=x", "seed=1,2", "a=[1,2],[3,4],'5,6'"]},
    }
    (sweep / "multirun.yaml").write_text(yaml.safe_dump({"hydra": hydra}))
    assert main([str(sweep)]) == 0
    told = capsys.readouterr().out
    assert "1 (running): not finished" in told
    assert "3 (failed): FAILED" in told
    assert "4 (damaged)" in told
    assert "config.yaml is damaged" in told
    assert "job 2 of 6 left no folder" in told
    assert "job 5 of 6 left no folder" in told
    page = (sweep / "report" / "report.html").read_text(encoding="utf-8")
    assert "FAILED" in page
    assert told.splitlines()[-1] == str(sweep / "report")


@pytest.mark.parametrize("name", ["scores.json", "run.json", "config.yaml", "metrics.jsonl"])
@pytest.mark.parametrize("content", [None, "", "{", "[1]", "\0\0"])
def test_damaged_files_are_named(
    tmp_path: Path, name: str, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path / "good")
    bad = plant(tmp_path / "bad", seed=7) / name
    bad.unlink()
    if content is not None:
        bad.write_text(content)
    assert main([str(tmp_path), f"output={tmp_path / 'out'}"]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    told = capsys.readouterr().out + page
    assert name in told


def test_files_of_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "a", seed=1)
    plant(tmp_path / "b", seed=2)
    assert main([str(tmp_path / "a"), str(tmp_path / "b"), "scores=all"]) == 0
    assert NDCG in capsys.readouterr().out
    out = tmp_path / "report"
    assert {path.name for path in out.iterdir()} == {"report.html", "table.md", "table.csv", "table.tex"}
    rows = list(csv.DictReader(io.StringIO((out / "table.csv").read_text(encoding="utf-8"))))
    assert [row["score"] for row in rows] == list(SCORES)
    assert (float(rows[0]["mean"]), float(rows[0]["untrained"]), rows[0]["seeds"]) == (0.5, 0.25, "2")
    assert "| untrained |" in (out / "table.md").read_text(encoding="utf-8")
    assert main([str(tmp_path / "a")]) == 0  # a single run's go into its own folder
    assert (tmp_path / "a" / "table.tex").is_file()


def test_a_scorecard_is_a_row(tmp_path: Path) -> None:
    plant(tmp_path / "a")
    card = {
        "scores": SCORES,
        "baseline": {},
        "meta": {"model": "other", "config": {"model": {"path": "other"}}},
    }
    (tmp_path / "zero.json").write_text(json.dumps(card))
    names = [group.name for group in groups_of(tmp_path / "a", tmp_path / "zero.json")]
    assert len(names) == 2
    assert names[1].startswith("other")
    (tmp_path / "zero.json").write_text("{}")
    with pytest.raises(UserError, match=r"zero\.json: is no scorecard"):
        groups_of(tmp_path / "zero.json")


def test_what_cannot_be_reported_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "no run in it" in capsys.readouterr().err
    plant(tmp_path / "a", status="failed")
    assert main([str(tmp_path)]) == 2
    assert "a (failed): FAILED" in capsys.readouterr().err
    assert main(["ouptut=x"]) == 2
    assert "unknown option; there are output=" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--help"]) == 0
    with pytest.raises(UserError, match=r"group=seed: is to be seeds or none"):
        parse(["x", "group=seed"])


def test_against_chooses_the_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, rate in enumerate((1.0, 2.0, 3.0)):
        plant(tmp_path / str(number), trainer={"learning_rate": rate}, baseline={})
    assert main([str(tmp_path), f"against={tmp_path / '1'}"]) == 0
    told = capsys.readouterr().out
    assert "learning_rate=1 − learning_rate=2" in told
    assert "learning_rate=3 − learning_rate=2" in told


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1+1", "@SUM(A1)", " =1+1", "=cmd|'x'!A0"])
def test_a_name_is_no_formula_in_a_spreadsheet(name: str, tmp_path: Path) -> None:
    (group,) = groups_of(plant(tmp_path / "run", scores=dict.fromkeys(SCORES, -0.25)))
    run = replace(group.runs[0], name=name)
    text = as_csv([replace(group, name=name, runs=[run])])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(SCORES)
    for row in rows:
        assert row["group"] == row["runs"] == f"'{name}"
        assert row["score"] in SCORES
        assert (float(row["mean"]), float(row["difference"])) == (-0.25, -0.5)


def test_scores_of_cut_embeddings_are_a_table_of_their_own(tmp_path: Path) -> None:
    """They are slices: not compared, in no other table and not in the card's headline."""
    scores = SCORES | {f"{NDCG}/dim=8": 0.4, f"{NDCG}/dim=16": 0.5, f"{NDCG}/literal/dim=8": 0.3}
    plant(tmp_path / "run", scores=scores, baseline=dict.fromkeys(scores, 0.25))
    groups = groups_of(tmp_path / "run")
    *others, cut = paper_tables(groups)
    assert cut.columns == [("", "full"), ("dimensions", "16"), ("dimensions", "8")]
    shown = {tuple(labels): [cut.text(value) for value in values] for labels, values in cut.rows}
    assert shown["untrained", NDCG] == ["0.2500"] * 3
    assert shown[groups[0].name, NDCG] == ["0.6000", "0.5000", "0.4000"]
    assert len(shown) == 2  # nothing of slices, which models are not compared by
    assert "dim=" not in "".join(markdown(table) for table in others)
    assert not any("dim=" in d.key for d in compare_to_untrained(groups[0]).differences)
    assert not any("dim=" in str(result.metric_name) for result in eval_results(scores))
    assert "By dimension" in page(groups, groups[0].runs, [], [])
