"""The end of a run, a sweep or an evaluation on one screen: verdicts, tables, where things are."""

import logging
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from idiomtune.reports.compare import Difference, beats_untrained
from idiomtune.reports.screens import show_finished_run, show_finished_sweep, show_scores
from idiomtune.reports.tables import Table, plain_text
from tests.own_data import write_lines
from tests.planted_runs import SCORES, plant, plant_queries, query, score_at, table_of

NDCG = "idiolink/val/sentence/ndcg@10"
BEFORE = {f"{idiom}{number}": 0.5 + 0.01 * number for idiom in "abcdefgh" for number in range(6)}
NOISE = [0.02, -0.02, 0.01, -0.01, 0.03, -0.03]


def test_only_the_paired_test_beats_the_untrained_model() -> None:
    """A score that is 1 for both, or of one query, cannot choose a checkpoint."""
    for after, before, interval, num, beats, can_choose in (
        (0.5, 0.4, None, 11, "is not clearly better than", True),
        (0.5, 0.5, (0.0, 0.0), 11, "does NOT beat", True),
        (0.5, 0.4, (0.05, 0.15), 11, "beats", True),
        (1.0, 1.0, (0.0, 0.0), 11, "does NOT beat", False),
        (1.0, 0.5, (0.0, 0.0), 1, "is not clearly better than", False),  # one query
    ):
        found = Difference(score_at(NDCG), after, before, num, num, interval, interval, 0.5, 0.5)
        verdict = beats_untrained([found])
        assert verdict.startswith(beats)
        assert ("cannot choose" in verdict) != can_choose


def test_a_run_ends_in_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for gains, verdict, sentence in (
        ((0.2, 0.2), "better", "beats"),
        ((-0.2, -0.2), "worse", "does NOT beat"),
        ((0.2, -0.18), "no clear", "is not clearly better"),  # within chance, which beats nothing
    ):
        caplog.clear()
        values = {k: v + gains[k[0] not in "aceg"] + NOISE[i % 6] for i, (k, v) in enumerate(BEFORE.items())}
        folder = plant_queries(tmp_path / verdict[:2], values, BEFORE)
        show_finished_run(folder, all_scores=False)
        monitored = capsys.readouterr().out.split("monitored, ")[1]
        assert NDCG in monitored
        assert verdict in monitored
        assert monitored.index("untrained") < monitored.index("trained ┃ difference")
        assert "IdioLink, val" not in monitored  # one table on the first screen
        for part in (str(folder / "best"), f"next: idiomtune explore {folder} ", sentence):
            assert part in caplog.text
        # Of the scores that chose no checkpoint, those that became worse.
        is_named = "worse than untrained: idiolink/val/sentence/r_precision" in caplog.text
        assert is_named == (verdict == "worse")
        # On the page, too, a score that is only higher has no mark of a better one.
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert {*re.findall(r'<td class="n (\w+)"', page)} == {verdict} & {"better", "worse"}


def test_a_run_shows_the_idiomatic_query_that_gained_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what each model finds, three a model; nothing where no query gained."""
    gains = {"a1": (0.6, "idiomatic"), "b1": (0.9, "literal"), "c1": (0.8, "idiomatic")}
    folder = plant_queries(tmp_path / "run", {"a1": 0.6}, {"a1": 0.2})
    top = [{"id": f"d{n} \x1b {'long ' * 30}", "usage": "sense", "relevant": True} for n in range(4)]
    for part, sign in (("per_query_baseline", 0), ("per_query", 1)):
        records = [query(name, sign * gain, usage=use, top=top) for name, (gain, use) in gains.items()]
        write_lines(folder / part / "idiolink.jsonl", records)
    show_finished_run(folder, all_scores=False)
    shown = capsys.readouterr().out
    assert re.findall("sentence of [abc]1", shown) == ["sentence of c1"]
    assert re.findall(r"✓ sense: (d\d)", shown) == ["d0", "d1", "d2"] * 2
    assert max(len(line) for line in shown.splitlines() if "✓ sense" in line) <= 100
    assert "\x1b" not in shown
    for name, values in (("lost", {"a1": 0.1}), ("alone", None)):
        show_finished_run(plant_queries(tmp_path / name, {"a1": 0.1}, values), all_scores=False)
        assert "sentence of" not in capsys.readouterr().out


def test_the_mean_of_scores_has_an_interval_by_whole_idioms() -> None:
    """If all scores are of the same queries, and there are idioms enough."""
    changes = pd.Series([0.1, 0.3] * 6, index=[*"aabbccddeeff"])
    base = Difference(score_at(NDCG), 0.6, 0.4, 12, 6, (0.1, 0.2), (0.2, 0.2), changes=changes)
    interval = "(+0.2000, 95% by whole idioms [+0.2000, +0.2000], 6 idioms)"
    assert interval in beats_untrained([base] * 2)
    for other in ({"by_cluster": None}, {"changes": changes[:-1]}, {"changes": changes[::-1]}):
        assert "95%" not in beats_untrained([base, replace(base, **other)])


def test_all_scores_are_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_finished_run(plant(tmp_path / "run"), all_scores=True)
    assert f"{NDCG}/literal" in capsys.readouterr().out
    table = table_of({NDCG: 0.5, f"{NDCG}/literal": 0.4})
    for all_scores, value in ((True, "0.5000"), (False, "50.00")):
        show_scores(table, "somebody/model", [], all_scores=all_scores)
        shown = capsys.readouterr().out
        assert value in shown
        assert ("literal" in shown) == all_scores


def test_a_sweep_ends_with_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "0", seed=1, status="failed")
    plant(tmp_path / "1", seed=2, status="failed")
    show_finished_sweep(tmp_path)
    assert "idiomtune report" not in capsys.readouterr().out  # which would have no scores to report
    plant(tmp_path / "2", seed=3, scores=dict.fromkeys(SCORES, 0.4))
    plant(tmp_path / "3", seed=4, scores=dict.fromkeys(SCORES, 0.7))
    show_finished_sweep(tmp_path)
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].strip() == f"4 jobs by {NDCG}"
    assert "the best job: 3 (seed=4)" in shown
    assert shown.count("failed") == 2


def test_a_page_never_fails_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = plant(tmp_path / "a")
    (folder / "report.html").mkdir()
    with caplog.at_level(logging.WARNING):
        show_finished_run(folder, all_scores=False)
    assert str(folder / "report.html") in caplog.text
    show_finished_run(tmp_path / "gone", all_scores=False)


def test_no_figure_is_cut_on_a_narrow_terminal() -> None:
    """Columns that do not fit follow in a table of their own, with the same labels; each once, in order."""
    figures = [[f"{n:.4f}" for n in range(first, first + 9)] for first in (100, 200)]
    columns = ["model", *(f"instruction\nmetric {n}" for n in range(9))]
    table = Table("a benchmark", columns, [["ours", *figures[0]], ["theirs", *figures[1]]])
    lines = plain_text([table], width=40).splitlines()
    assert max(map(len, lines)) <= 40
    for label, row in zip(("ours", "theirs"), figures, strict=True):
        cells = [line.strip("│ ").split(" │ ") for line in lines if label in line]
        assert [cell.strip() for _, *shown in cells for cell in shown] == row
