"""Files of texts, known by their kind: one text per line, a table, or what no program reads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from idiomtune.data.user.texts import read_texts
from idiomtune.explorer.models import find_corpus
from tests.programs import refused, settings_of

pytestmark = pytest.mark.usefixtures("in_folder")
TEXTS = ["He broke the ice.", "[They] broke the ice & sank, 1 < 2", "{braces}\tand a tab"]


LINES = "\n".join(TEXTS)
READ = {
    "plain.txt": (f"{LINES}\n".encode(), [1, 2, 3]),
    "no_suffix": (f"\ufeff{TEXTS[0]}\r\n\r\n  {TEXTS[1]}\r\n{TEXTS[2]}".encode(), [1, 3, 4]),
    "old_mac.txt": ("\r".join(TEXTS).encode(), [1, 2, 3]),
    "portuguese.pt": (f"\n\n{LINES}\n \n".encode(), [3, 4, 5]),
    "packed.txt.gz": (gzip.compress(LINES.encode()), [1, 2, 3]),
    "rows.csv": (pd.DataFrame({"sentence": TEXTS, "n": [1, 2, 3]}).to_csv(index=False).encode(), [2, 3, 4]),
    "rows.jsonl": ("\n".join(json.dumps({"text": text}) for text in TEXTS).encode(), [1, 2, 3]),
}
REFUSED = {
    "image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "wide.txt": LINES.encode("utf-16"),
    "program.py": LINES.encode(),
    "list.json": json.dumps(TEXTS).encode(),
    "other.csv": b"body,n\nx,1\n",
    "blank.txt": b"\n \r\n",
}


@pytest.mark.parametrize("name", READ)
def test_texts_have_the_numbers_of_their_lines(name: str) -> None:
    content, numbers = READ[name]
    Path(name).write_bytes(content)
    texts = list(read_texts(name, "corpus"))
    assert [line for *_, line in texts] == numbers
    assert [text for text, *_ in texts] == TEXTS


@pytest.mark.parametrize("blank", ["  ", "<br>", None])
def test_rows_without_a_text_are_counted(blank: str | None, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": text, "n": 1} for text in (TEXTS[0], blank, TEXTS[1], blank)]
    pd.DataFrame(rows).to_csv("rows.csv", index=False)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"n": 1}])), encoding="utf-8")
    for name, expected, num in (("rows.csv", [2, 4], "2 rows"), ("rows.jsonl", [1, 3], "3 rows")):
        caplog.clear()
        assert [line for *_, line in read_texts(name, "corpus")] == expected
        (warning,) = (r.getMessage() for r in caplog.records if "without a text" in r.getMessage())
        assert all(part in warning for part in (name, num))


def test_a_file_that_is_no_list_of_texts_is_refused_by_name() -> None:
    for name, content in REFUSED.items():
        Path(name).write_bytes(content)
        refused(lambda: list(read_texts(name, "corpus")), name)  # noqa: B023
        if name != "other.csv":  # may be a table to train on
            refused(lambda: find_corpus(settings_of("explore", models=["x"], corpus=name)), name)  # noqa: B023
