"""Two modes of one run compared, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.planted_runs import query, write_lines
from train.errors import UserError
from train.report import main
from train.reports.modes import means_by_query, read_values
from train.reports.statistics import compare


def record(item: str, mode: str, value: float) -> dict[str, object]:
    metrics = {"top1_accuracy": value, "rank_difference": value, "ndcg@5": value}
    return {"id": item, "mode": mode, "split": "train_cv", "compound": "c", **metrics}


def test_compare_by_hand() -> None:
    """Differences 1, 2, 3, 4, 0: all of one sign, so that p is 2 / 2^4 without the tie."""
    result = compare([2, 3, 4, 5, 1], [1, 1, 1, 1, 1])
    assert (result.greater, result.equal, result.smaller) == (4, 1, 0)
    assert (result.ours, result.theirs) == (3.0, 1.0)
    assert 0 < result.low < 2 < result.high <= 4
    assert result.p_value < 0.13
    assert compare([1, 1], [1, 1]).p_value == 1.0


def test_items_are_paired_by_id_and_averaged_over_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [record("a", "caption", 0), record("a", "experts_text", 1)]
    second = [record("b", "experts_text", 1), record("b", "caption", 1)]
    again = [record("a", "experts_text", 0), record("a", "caption", 0)]
    for number, records in enumerate((first, second, again)):
        folder = tmp_path / "sweep" / str(number) / "per_query"
        folder.mkdir(parents=True)
        (folder / "admire.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    runs = read_values([tmp_path / "sweep"])
    assert means_by_query(runs, "admire/train_cv/experts_text/ndcg@5") == {"a": 0.5, "b": 1.0}
    assert main([str(tmp_path / "sweep"), "modes=experts_text,caption"]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("top1_accuracy: experts_text 0.7500 ± ")
    assert "greater in 1, equal in 1, smaller in 0 of 2 items" in line
    assert main([str(tmp_path / "sweep"), "modes=experts_image,caption"]) == 2
    assert main([str(tmp_path / "sweep"), "modes=caption"]) == 2
    with pytest.raises(UserError, match=r"eval\.per_query=true"):
        read_values([tmp_path / "nothing"])


def test_any_benchmark_with_modes_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [query("a1", 0.5), query("a1", 0.75, mode="span")]
    write_lines(tmp_path / "run" / "per_query" / "idiolink.jsonl", records)
    assert main([str(tmp_path / "run"), "modes=span,sentence", "split=val"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert "span 0.7500" in line
        assert "difference +0.2500" in line


def test_idiomatic_and_literal_items_are_compared_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without literal items counts for the others; a sense that nobody has gets no line."""
    first = [
        {**record(item, mode, value), "sense": sense}
        for item, sense, ours in (("a", "idiomatic", 1.0), ("b", "literal", 0.0), ("c", "literal", 0.0))
        for mode, value in (("experts_text", ours), ("caption", 0.5))
    ]
    second = [{**r, "id": "d"} for r in first if r["sense"] == "idiomatic"]
    for number, records in enumerate((first, second)):
        folder = tmp_path / str(number) / "per_query"
        folder.mkdir(parents=True)
        (folder / "admire.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    assert main([str(tmp_path), "modes=experts_text,caption"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ndcg@5")]
    assert [line.partition(":")[0] for line in lines] == [*("ndcg@5", "ndcg@5/idiomatic", "ndcg@5/literal")]
    assert "experts_text 1.0000" in lines[1]
    assert "difference +0.5000 [+0.5000, +0.5000]" in lines[1]
    assert "of 2 items" in lines[2]
    assert "difference -0.5000 [-0.5000, -0.5000]" in lines[2]
    assert "nan" not in "".join(lines)
    (tmp_path / "0" / "per_query" / "admire.jsonl").unlink()
    assert main([str(tmp_path), "modes=experts_text,caption"]) == 0
    assert "literal" not in capsys.readouterr().out


@pytest.mark.parametrize("line", ["{", "[1]", '{"id": "a"}', "[" * 100_000])
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run" / "per_query" / "admire.jsonl"
    path.parent.mkdir(parents=True)
    good = json.dumps(record("a\u2028b", "caption", 0), ensure_ascii=False)
    path.write_text(f"{good}\n{good}\n", encoding="utf-8")
    assert list(means_by_query(read_values([tmp_path]), "admire/train_cv/caption/ndcg@5")) == ["a\u2028b"]
    path.write_text(f"{good}\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"admire\.jsonl, line 2"):
        read_values([tmp_path])
