"""What docs/ecosystem.md shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.test_structure import ROOT
from train.mteb_tasks import IdioLinkRetrieval

PAGE = (ROOT / "docs" / "ecosystem.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning")
@pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension`:FutureWarning")
def test_snippets_run_one_after_the_other(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(snippet.replace("sentence-transformers/all-MiniLM-L6-v2", str(tiny_path)), names)
    assert names["trainer"].state.global_step == 1
    assert names["infonce"].isfinite()
    assert names["triplet"].isfinite()
    assert len(names["mined"][0]) > 0
    assert names["scores"].keys() >= {names["evaluator"].primary_metric, "semeval2022/dev/all/sts/spearman"}
    assert list((tmp_path / "out" / "mteb").rglob(f"{IdioLinkRetrieval.metadata.name}.json"))


def test_every_example_is_listed() -> None:
    for path in sorted((ROOT / "examples").glob("*.py")):
        assert f"| `python examples/{path.name}" in PAGE
    for name in re.findall(r"examples/(\w+\.py)", PAGE):
        assert (ROOT / "examples" / name).is_file()
