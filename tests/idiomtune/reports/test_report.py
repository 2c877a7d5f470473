"""`idiomtune report` on planted runs: groups, tables, comparisons, what is reported."""

from __future__ import annotations

import csv
import io
import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import spearmanr

from idiomtune.errors import UserError
from idiomtune.hub.model_card import eval_results
from idiomtune.plugins.models import model_values
from idiomtune.plugins.score import score_card
from idiomtune.reports.compare import compare, comparison_notes
from idiomtune.reports.frames import Group, ScoreMean, group_runs
from idiomtune.reports.runs import find_runs, read_runs
from idiomtune.reports.score_tables import as_csv, as_markdown, detail_tables, paired_table, paper_tables
from idiomtune.reports.tables import latex, latex_document, markdown
from tests.planted_runs import SCORES, plant, plant_queries, query, table_of, write_lines
from tests.programs import ROOT, main_of

main = main_of("report")

R_PRECISION, NDCG = "idiolink/val/sentence/r_precision", "idiolink/val/sentence/ndcg@10"
OTHER: dict[str, Any] = {"trainer": {"learning_rate": 5.0}}


def groups_of(*folders: Path) -> list[Group]:
    return group_runs(read_runs(find_runs(folders)))


# ------------------------------------------------------------------------------------------------- groups


def test_runs_that_differ_in_seed_alone_are_one_group(tmp_path: Path) -> None:
    runs = [(42, 1e-4, 0.5), (43, 1e-4, 0.7), (42, 1e-3, 0.2), (44, 1e-4, 0.6)]
    for number, (seed, rate, value) in enumerate(runs):
        own: dict[str, Any] = {"trainer": {"learning_rate": rate, "log_every": number}, "run_dir": "x"}
        plant(tmp_path / str(number), scores={NDCG: value}, seed=seed, **own)
    first, second = groups_of(tmp_path)
    assert [first.name, second.name] == ["learning_rate=0.0001", "learning_rate=0.001"]
    assert first.summary == "3 seeds (42, 43, 44)"
    mean = first.means[False, NDCG]
    assert (mean.mean, mean.std, mean.seeds) == pytest.approx((0.6, 0.1, 3))  # sample std
    assert second.mean(NDCG) == ScoreMean(0.2, None, 1)
    (group,) = groups_of(plant(tmp_path / "again", scores={NDCG: 0.8}, seed=42), tmp_path / "0")
    assert group.mean(NDCG) == ScoreMean(0.5, None, 1)
    assert "given 2 times" in "".join(group.notes())


E5 = model_values("e5_base")
SHORT_NAMES = {  # of a model, and of what was changed of it; its path if it has none
    "model=e5_base": E5,
    "model=minilm, tokens_per_forward=512": model_values("minilm") | {"tokens_per_forward": 512},
    "model=e5_base, pooling=cls": E5 | {"pooling": "cls"},
    "model=one/best": model_values("pretrained") | {"path": "/runs/idiolink_ft/one/best"},
}


@pytest.mark.parametrize(
    "runs",
    [
        {"lora=null": {"forgetting": {"lora": None}}, "lora=8": {"forgetting": {"lora": 8}}},
        {name: {"model": model} for name, model in SHORT_NAMES.items()},
        # Models in folders of one name stay apart.
        {f"model={path}": {"model": {"path": path}} for path in ("runs/a/one/best", "runs/b/one/best")},
    ],
)
def test_names_say_what_groups_differ_in(tmp_path: Path, runs: dict[str, dict[str, Any]]) -> None:
    for number, own in enumerate(runs.values()):
        plant(tmp_path / str(number), **own)
    if "lora=null" in runs:
        plant(tmp_path / "older", seed=2)  # without an option that was not set
    assert [group.name for group in groups_of(tmp_path)] == list(runs)


def test_folds_are_averaged_within_a_seed(tmp_path: Path) -> None:
    for seed, values in ((1, (0.2, 0.4)), (2, (0.4, 0.8)), (3, (0.9,))):
        for fold, score in enumerate(values):
            own: dict[str, Any] = {"data": {"fold": fold}}
            plant(tmp_path / f"{seed}_{fold}", scores={NDCG: score}, baseline={}, seed=seed, **own)
    (group,) = groups_of(tmp_path)
    mean = group.means[False, NDCG]
    assert (mean.mean, mean.seeds) == pytest.approx((0.45, 2))
    assert "seed 3 lacks fold 1" in "".join(group.notes())


def test_scores_with_a_glossary_are_marked(tmp_path: Path) -> None:
    plant(tmp_path / "without")
    for name, known in {"glossary": {"files": ["a.tsv"]}, "glossary_learned": [{"files": ["a.tsv"]}]}.items():
        path = plant(tmp_path / name, model={"glossary": [name]}) / "scores.json"
        card = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(card | {"meta": card["meta"] | {name: known}}), encoding="utf-8")
    notes = [note for group in groups_of(tmp_path) for note in group.notes()]
    assert [note.endswith(": with a glossary (a.tsv)") for note in notes] == [True] * 2


# ------------------------------------------------------------------------------------------------- tables


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
    idiolink, *others = [markdown(table).splitlines() for table in paper_tables(groups_of(tmp_path))]
    assert idiolink[0] == "| model | sentence R-Precision | sentence nDCG@10 | span nDCG@10 |"
    assert idiolink[2:] == [
        "| BM25 | – | – | 30.00 |",
        "| untrained | 25.00 | 25.00 | – |",
        "| idiolink_ft | 50.00 ± 0.00 | 61.00 ± 1.41 | – |",
    ]
    assert [line for table in others for line in table[2:]] == [
        "| idiolink_ft | English | 0.123 ± 0.000 | – |",
        "| idiolink_ft | together | – | 0.900 ± 0.000 |",
        "| idiolink_ft | English | 0.350 ± 0.000 |",
        "| idiolink_ft | caption | 7.500 ± 0.000 |",
    ]


def test_latex_is_balanced_and_escaped(tmp_path: Path) -> None:
    plant(tmp_path / "a", model={"path": r"50% of_a & b \ {c} ~^#$ε±<"})
    plant(tmp_path / "b", model={"path": "plain"})
    (table,) = paper_tables(groups_of(tmp_path))
    text = latex(table)
    escaped = r"model=50\% of\_a \& b \textbackslash{} \{c\} \textasciitilde{}\textasciicircum{}\#\$"
    rules = (r"\toprule", r"\midrule", r"\bottomrule", r"\multicolumn{2}{c}{sentence}", r"\cmidrule(lr){2-3}")
    assert not [part for part in (escaped + r"$\varepsilon$$\pm$$<$", *rules) if part not in text]
    bare = re.sub(r"\\[&%$#_{}]", "", text)
    assert (bare.count("{"), bare.count("$") % 2) == (bare.count("}"), 0)
    assert not re.search(r"[%#_~^]", bare)
    rows = [line for line in bare.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert [row.count("&") for row in rows] == [2] * 4  # heads, untrained, both runs
    document = latex_document([table], ["a note % with\nlines"])
    assert all(line.startswith("%") for line in document.splitlines()[:3])


def test_scores_of_cut_embeddings_are_a_table_of_their_own(tmp_path: Path) -> None:
    """They are slices: not compared, in no other table and not in the card's headline."""
    scores = SCORES | {f"{NDCG}/dim=8": 0.4, f"{NDCG}/dim=16": 0.5, f"{NDCG}/literal/dim=8": 0.3}
    plant(tmp_path / "run", scores=scores, baseline=dict.fromkeys(scores, 0.25))
    groups = groups_of(tmp_path / "run")
    *others, cut = paper_tables(groups)
    assert cut.columns[2:] == ["full", "dimensions\n16", "dimensions\n8"]
    assert [list(row) for row in cut.rows] == [  # nothing of slices, which models are not compared by
        ["untrained", NDCG, *["0.2500"] * 3],
        [groups[0].name, NDCG, "0.6000", "0.5000", "0.4000"],
    ]
    assert "dim=" not in "".join(markdown(table) for table in others)
    assert not any("dim=" in d.key for d in compare(groups[0]).differences)
    assert not any("dim=" in str(result.metric_name) for result in eval_results(table_of(scores), {}))


def test_a_name_is_no_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    name = "=1+1"
    (group,) = groups_of(plant(tmp_path / "run", scores=dict.fromkeys(SCORES, -0.25)))
    text = as_csv([replace(group, name=name, runs=[replace(group.runs[0], name=name)])])
    rows = [(r["group"], r["runs"], r["score"], r["mean"]) for r in csv.DictReader(io.StringIO(text))]
    assert rows == [(f"'{name}", f"'{name}", score, "-0.25") for score in SCORES]


# -------------------------------------------------------------------------------------------- comparisons


def test_queries_are_paired_by_id(tmp_path: Path) -> None:
    """Differences 0.1 and 0.3 (idiom a), 0.2 (b): all positive, so p is 2 / 8 by query.

    An interval by two idioms, however narrow, would say nothing of others: there is none.
    """
    plant_queries(tmp_path / "ours", {"a1": 0.6, "b1": 0.5, "a2": 0.9}, {"a2": 0.6, "a1": 0.5, "b1": 0.3})
    (group,) = groups_of(tmp_path)
    paired = compare(group)
    first, second = paired.differences
    assert comparison_notes([paired]) == []
    assert (first.key, second.key) == (R_PRECISION, NDCG)
    assert (second.num_queries, second.num_clusters, second.verdict) == (3, 2, "better")
    assert second.difference == pytest.approx(0.2)
    assert (second.p_query, second.p_cluster, second.by_cluster) == (2 / 8, None, None)
    assert second.by_query == pytest.approx((0.1, 0.3))
    table = paired_table(paired)
    assert "3 queries of 2 idioms" in table.title
    assert table.columns[-2:] == ["95% by idiom", "p by idiom"]
    values = {f"{idiom}{n}": 0.1 * n for idiom in "abcdef" for n in (1, 2)}
    (group,) = groups_of(plant_queries(tmp_path / "six", values, dict.fromkeys(values, 0.0)))
    assert all(d.by_cluster is not None for d in compare(group).differences)


def test_queries_are_averaged_over_seeds_and_compared_if_they_are_the_same(tmp_path: Path) -> None:
    plant_queries(tmp_path / "a1", {"a1": 0.2, "b1": 0.4}, seed=1)
    plant_queries(tmp_path / "a2", {"a1": 0.6, "b1": 0.8}, seed=2)
    plant_queries(tmp_path / "b", {"a1": 0.1, "b1": 0.2}, seed=1, **OTHER)
    plant(tmp_path / "c", trainer={"learning_rate": 6.0})  # no records
    more = {"a1": 0.2, "b1": 0.4, "c1": 0.4}
    plant_queries(tmp_path / "d", more, trainer={"learning_rate": 7.0})  # other queries
    folder = plant_queries(tmp_path / "e", {"a1": 0.2, "b1": 0.4}, trainer={"learning_rate": 8.0})
    write_lines(folder / "per_query" / "idiolink.jsonl", [query("a1", 0.9), query("b1", 0.9)])
    ours, theirs, *others = groups_of(tmp_path)
    result = compare(ours, theirs).differences[0]
    assert (result.candidate, result.reference) == pytest.approx((0.5, 0.15))
    assert result.by_query == pytest.approx((0.3, 0.4))
    for other, part in zip(others, ("run c", "2 and 3, 2 in both", "run e"), strict=True):
        paired = compare(ours, other)
        assert paired.differences[0].by_query is None
        (note,) = comparison_notes([paired])
        assert "idiolink" in note
        assert part in note
    assert compare(ours, others[0]).differences[0].difference == pytest.approx(0.5 - 0.5)


def test_differences_are_shown_idiom_by_idiom(tmp_path: Path) -> None:
    """The greatest gain first: b gains 0.5, a 0.1 and loses 0.3."""
    plant_queries(tmp_path / "ours", {"a1": 0.6, "a2": 0.2, "b1": 0.9}, {"a1": 0.5, "a2": 0.5, "b1": 0.4})
    assert main([str(tmp_path / "ours")]) == 0
    (table,) = detail_tables(compare(groups_of(tmp_path)[0]))
    assert table.columns == ["idiom", R_PRECISION, NDCG]
    assert table.rows == [["b", "+0.5000", "+0.5000"], ["a", "-0.1000", "-0.1000"]]
    assert "| b | +0.5000 | +0.5000 |" in (tmp_path / "ours" / "table.md").read_text(encoding="utf-8")
    assert "idiom by idiom" in (tmp_path / "ours" / "report.html").read_text(encoding="utf-8")


def test_cross_validations_are_compared_by_fold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for fold, gain in enumerate((0.1, 0.3)):
        options: dict[str, Any] = {"data": {"fold": fold}}
        plant_queries(tmp_path / f"a{fold}", {f"a{fold}": 0.5 + gain}, **options)
        plant_queries(tmp_path / f"b{fold}", {f"a{fold}": 0.5}, **OTHER, **options)
    assert main([str(tmp_path)]) == 0
    assert "fold by fold" in capsys.readouterr().out
    plant_queries(tmp_path / "c", {"a0": 0.5}, data={"fold": 0, "folds": 8})  # another division
    ours, theirs, other = groups_of(tmp_path)
    paired = compare(ours, theirs)
    assert dict(paired.differences[1].folds) == pytest.approx({0: 0.1, 1: 0.3})
    assert "| 1 | +0.3000 | +0.3000 |" in as_markdown([ours, theirs], [], [paired], [])
    assert not len(compare(ours, other).differences[0].folds)


def semeval(folder: Path, subset: str, expressions: list[str | None], **sides: list[float]) -> Group:
    """A run with pairs whose gold scores are 0.1, 0.2, …: predictions after and before training."""
    gold = [(i + 1) / 10 for i in range(len(expressions))]
    scores = [{f"semeval2022/dev/en/{subset}/spearman": spearmanr(s, gold).statistic} for s in sides.values()]
    plant(folder, scores=scores[0], baseline=scores[1])
    facts: dict[str, Any] = {"split": "dev", "language": "EN", "subset": subset}
    for name, predicted in sides.items():
        rows = [
            facts | {"id": str(i), "expression": expressions[i], "predicted": p, "gold": gold[i]}
            for i, p in enumerate(predicted)
        ]
        write_lines(folder / name / "semeval2022.jsonl", rows)
    (group,) = groups_of(folder)
    return group


def test_correlations_have_intervals_but_no_p(tmp_path: Path) -> None:
    """And each expression's pairs come nearer to gold or not: before, the ranks of 0 and 1 are swapped;
    after, those of 2 and 3. a gains 1 rank of 4, b loses it.
    """
    gold = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    before = [0.2, 0.1, 0.4, 0.3, 0.6, 0.5, 0.8, 0.7]
    group = semeval(tmp_path / "a", "sts", [None] * 8, per_query=gold, per_query_baseline=before)
    (difference,) = compare(group).differences
    assert difference.p_query is difference.p_cluster is None
    low, high = difference.by_query or (1, 0)
    assert 0 <= low < difference.difference < high < 0.6
    sides = {"per_query": [0.1, 0.2, 0.4, 0.3], "per_query_baseline": [0.2, 0.1, 0.3, 0.4]}
    group = semeval(tmp_path / "b", "idiom", [*"aabb"], **sides)
    paired = compare(group)
    assert paired.differences[0].in_ranks
    (table,) = detail_tables(paired)
    assert "rank" in table.title
    assert table.rows == [["a", "+0.2500"], ["b", "-0.2500"]]
    assert table.title in as_markdown([group], [], [paired], [])


# -------------------------------------------------------------------------------------------------- modes


def test_two_modes_are_compared_item_by_item(tmp_path: Path) -> None:
    """a and b over both runs, c and d of one run each: differences 0.5, 0, −0.5 and 0.5."""
    modes, slices = ("experts_text", "caption"), ("", "/idiomatic", "/literal")
    keys = [f"admire/train_cv/{mode}/ndcg@5{slice_}" for mode in modes for slice_ in slices]
    values = {"a": ("idiomatic", 1.0, 0.5), "b": ("literal", 0.5, 0.5)}
    values |= {"c": ("literal", 0.0, 0.5), "d": ("idiomatic", 1.0, 0.5)}
    for run in ("abc", "abd"):
        plant(tmp_path / run, scores=dict.fromkeys(keys, 0.5))
        facts: dict[str, Any] = {"split": "train_cv", "compound": "c"}
        records = [
            facts | {"id": item, "mode": mode, "sense": values[item][0], "ndcg@5": values[item][number]}
            for item in run
            for number, mode in enumerate(modes, 1)
        ]
        write_lines(tmp_path / run / "per_query" / "admire.jsonl", records)
    lines = list(runpy.run_path(str(ROOT / "runs" / "modes.py"))["compared"](str(tmp_path), *modes))
    assert [line.partition(":")[0] for line in lines] == keys[:3]
    assert "0.6250 − 0.5000 = +0.1250" in lines[0]  # of four items
    assert "+0.5000 [+0.5000, +0.5000]" in lines[1]
    assert "-0.2500" in lines[2]


# ------------------------------------------------------------------------------------------------ reports


def test_failed_unfinished_and_damaged_jobs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "sweep"
    for number, status in enumerate(("finished", "running", "finished", "failed", "finished")):
        plant(sweep / str(number), status=status, seed=number)
    (sweep / "2" / "scores.json").write_text("[1]")
    (sweep / "4" / "config.yaml").write_text("a: [")
    (sweep / "4" / "run.json").unlink()
    assert main([str(sweep)]) == 0
    shown = capsys.readouterr().out
    notes = ("1 (running)", "3 (failed): FAILED", "4 (damaged)", "config.yaml", "scores.json")
    assert not [note for note in notes if note not in shown]
    assert "FAILED" in (sweep / "report" / "report.html").read_text(encoding="utf-8")
    assert shown.splitlines()[-1] == str(sweep / "report")


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


def test_the_report_of_several_is_beside_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing in the folder above all of them."""
    for seed, name in enumerate(("a/x", "a/z", "b/y")):
        plant(tmp_path / name, seed=seed)
    scorecard = tmp_path / "zero.json"
    card = score_card(table_of(SCORES), {}, {"model": "other", "config": {"model": {"path": "other"}}})
    scorecard.write_text(json.dumps(card))
    monkeypatch.chdir(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_dir()}
    for named, folder in ((("b/y", "a/x"), "b/report"), (("a", "b"), "a/report"), (("zero.json",), "report")):
        assert main(named) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / folder)
        before.add(tmp_path / folder)
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == before
    _, group = groups_of(tmp_path / "a" / "x", scorecard)
    assert group.name.startswith("other")
    scorecard.write_text("{}")
    with pytest.raises(UserError, match=r"zero\.json"):
        groups_of(scorecard)


def test_what_cannot_be_reported_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    plant(tmp_path / "failed", status="failed")
    for name, named in (
        (tmp_path / "nowhere", "nowhere"),
        (tmp_path / "empty", "no run in it"),
        (tmp_path / "failed", "failed (failed): FAILED"),
    ):
        assert main([str(name)]) == 2
        assert named in capsys.readouterr().err


def test_against_chooses_the_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, rate in enumerate((1.0, 2.0, 3.0)):
        plant(tmp_path / str(number), trainer={"learning_rate": rate}, baseline={})
    assert main([str(tmp_path), f"against={tmp_path / '1'}"]) == 0
    shown = capsys.readouterr().out
    assert all(f"learning_rate={rate} − learning_rate=2" in shown for rate in (1, 3))
