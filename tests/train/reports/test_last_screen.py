"""The end of a run on one screen: monitored scores with intervals, a table a benchmark, where things are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.planted_runs import plant, plant_queries
from train.reports import show_finished_run
from train.reports.last_screen import show_scores


@pytest.mark.parametrize(
    ("gain", "verdict"), [(0.2, "better"), (0.0, "no clear difference"), (-0.2, "worse")]
)
def test_a_run_ends_in_its_verdict(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    gain: float,
    verdict: str,
) -> None:
    caplog.set_level(logging.INFO)
    before = {f"{idiom}{number}": 0.5 + 0.01 * number for idiom in "abcdefgh" for number in range(6)}
    noise = [0.02, -0.02, 0.01, -0.01, 0.03, -0.03]
    values = {name: value + gain + noise[i % 6] for i, (name, value) in enumerate(before.items())}
    folder = plant_queries(tmp_path / "run", values, before)
    show_finished_run(folder, all_scores=False)
    monitored, *tables = capsys.readouterr().out.split("monitored, ")[1].split("IdioLink, val")
    assert verdict in monitored
    assert len(tables) == 1
    assert "untrained" in tables[0]
    assert str(folder / "best") in caplog.text
    assert ("does NOT beat" in caplog.text) == (gain <= 0)


def test_a_gain_within_chance_beats_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = {f"{idiom}{number}": 0.5 for idiom in "abcdefgh" for number in range(6)}
    values = {name: value + (0.2 if name[0] in "aceg" else -0.18) for name, value in before.items()}
    show_finished_run(plant_queries(tmp_path / "run", values, before), all_scores=False)
    assert "is not clearly better than the untrained model" in caplog.text
    assert "beats" not in caplog.text


def test_all_scores_are_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_finished_run(plant(tmp_path / "run"), all_scores=True)
    assert "idiolink/val/sentence/ndcg@10/literal" in capsys.readouterr().out
    scores = {"idiolink/val/span/ndcg@10": 0.5, "idiolink/val/span/ndcg@10/literal": 0.4}
    show_scores(scores, "somebody/model", ["a note"], all_scores=True)
    assert "ndcg@10/literal" in capsys.readouterr().out
    show_scores(scores, "somebody/model", ["a note"], all_scores=False)
    shown = capsys.readouterr().out
    assert "50.00" in shown
    assert "literal" not in shown
