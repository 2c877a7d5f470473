"""Our scores beside a paper's: which scorecard is of which row, what is said of the others, the kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from idiomtune.commands.report import main
from idiomtune.config import EvaluateSettings, check
from idiomtune.declarations.benchmark import PublishedRow
from idiomtune.declarations.registry import benchmark_types
from idiomtune.reports.runs import flat
from idiomtune.reports.score_tables import matches
from tests.tiny_runs import composed

PUBLISHED: Any = benchmark_types()["epsilon"].published()  # type: ignore[operator,misc]

# As the paper calls them; BERT is "less so" human-aligned.
KINDS = {
    "human-aligned": ["BERT CLS", "BERT CLS+SEP", "BERT mean", "E5", "UAE"],
    "compositionally-inclined": ["ModernBERT CLS", "ModernBERT CLS+SEP", "ModernBERT mean", "S-BERT"],
    "anti-compositional": [
        *("DeBERTa-v3 CLS", "DeBERTa-v3 CLS+SEP", "DeBERTa-v3 mean"),
        *("S-GPT", "Qwen3, mean", "Qwen3, last token"),
    ],
}


def test_the_rule_gives_the_papers_kinds() -> None:
    found: dict[str, list[str]] = {}
    for row in PUBLISHED.rows:
        found.setdefault(PUBLISHED.kind(row.scores), []).append(row.name)
    assert found == KINDS


@pytest.mark.parametrize("row", PUBLISHED.rows, ids=lambda row: row.name)
def test_a_rows_command_composes_and_is_of_that_row_alone(row: PublishedRow) -> None:
    config = composed("evaluate", *row.overrides)
    check(EvaluateSettings, config)
    assert [other.name for other in PUBLISHED.rows if matches(other, flat(config))] == [row.name]
    local = flat(config) | {"model.path": f"/models/{row.checkpoints[0].split('/')[-1]}"}
    assert matches(row, local)
    for option, value in (
        ("model.pooling", "max"),
        ("benchmark.epsilon.instruction", "Other."),
        ("benchmark.epsilon.phrases", "compound"),
        ("model.glossary", ["mine.tsv"]),
        ("model.path", "nobody/other"),
    ):
        assert not matches(row, flat(config) | {option: value})


def scorecard(path: Path, scores: dict[str, float], *overrides: str) -> str:
    card: dict[str, Any] = {"scores": scores, "meta": {"config": composed("evaluate", *overrides)}}
    path.write_text(json.dumps(card), encoding="utf-8")
    return str(path)


def test_ours_stand_below_the_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = {
        **{"epsilon/C/p_value": 1.0, "epsilon/PC/p_value": 0.01, "epsilon/NC/p_value": 0.01},
        **{"epsilon/C/rank_biserial": 0.123, "epsilon/C/rank_biserial/head": 0.456},
    }
    bert = next(row for row in PUBLISHED.rows if row.name == "BERT mean")
    cards = [
        scorecard(tmp_path / "bert.json", ours, *bert.overrides),
        scorecard(tmp_path / "other.json", ours, "model.pooling=max"),
    ]
    assert main([*cards, "published=epsilon", f"output={tmp_path / 'out'}"]) == 0
    printed = capsys.readouterr().out
    assert "note: other.json: of no published row" in printed
    assert "model=deberta_v3_base 'benchmarks=[epsilon]' model.pooling=last4 'output=<file>.json'" in printed
    lines = (tmp_path / "out" / "published.md").read_text(encoding="utf-8").splitlines()
    first = lines.index(
        "| BERT mean | published | human-aligned | 0.731 | 0.000 | 0.042 | 0.491 | 0.589 | 0.527 |"
    )
    assert (
        lines[first + 1]
        == "| BERT mean | bert.json | human-aligned | 1.000 | 0.010 | 0.010 | 0.123 | – | – |"
    )
    assert not any(line.startswith("BERT mean: ours by") for line in lines)
    assert any(line.startswith("BERT CLS: ours by") for line in lines)


def test_the_published_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published=epsilon"]) == 0
    assert "S-GPT" in capsys.readouterr().out
    assert main(["published=idiolink"]) == 2
    assert "epsilon" in capsys.readouterr().err
