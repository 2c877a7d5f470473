"""The figures of a card, tried on the CPU with small models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import gpu

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_sections_have_figures_and_a_failure_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(_: gpu.Bench) -> gpu.Rows:
        yield "first", "1"
        raise MemoryError("out of memory")

    for name in ("parity", "large_batches", "scoring"):  # which take longer
        monkeypatch.setattr(gpu.Bench, name, failing)
    for name in ("resumed", "largest_batch"):
        monkeypatch.setattr(gpu.Bench, name, lambda _: iter([("weights", "the same")]))
    assert gpu.main(["--device", "cpu", "--tiny", "--output", str(tmp_path / "gpu.md")]) == 1
    page = (tmp_path / "gpu.md").read_text()
    assert page.count("| failed | MemoryError: out of memory |") == 3
    assert "| weights | the same |" in page
    for size in ("110M", "0.6B"):
        assert re.search(rf"\| {size}, ours \| [\d.]+ s a step, memory not measured", page)
        assert re.search(rf"\| {size}, ours against the library \| [\d.]+ times as fast", page)
    assert gpu.main(["--device", "cpu", "--tiny", "--minutes", "0"]) == 0
    assert "not measured" not in capsys.readouterr().err
