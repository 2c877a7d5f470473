"""Texts of users and strangers in a model's card: shown as they are, never read as Markdown or HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

from idiomtune.encoder.glossary import Entry, Glossary
from idiomtune.hub.card import card, escaped, in_code, learnt_card

_TEXTS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a | b", "`code`", "[here](https://x.test)",
    "![i](u)",
    "two\nlines", "---\nlicense: mit\n---", "\u2028## heading", "a\r| b | c |", "&lt;b&gt;", "\\| x",
    "**bold**",
    "\x1b[31m",
]  # fmt: skip


@pytest.mark.parametrize("text", _TEXTS)
def test_a_text_is_one_line_without_marks(text: str) -> None:
    line = escaped(text)
    assert len(line.splitlines()) == 1
    assert "<" not in line
    bare = line.replace("\\\\", "")
    for mark in "`[]|*":
        assert bare.count(mark) == bare.count("\\" + mark)
    assert "`" not in in_code(text)
    assert len(in_code(text).splitlines()) == 1


@pytest.mark.parametrize("text", _TEXTS)
def test_a_learnt_models_card_shows_a_glossarys_texts_as_they_are(text: str, tmp_path: Path) -> None:
    def written(said: str) -> str:
        (tmp_path / "g.tsv").touch()
        entry = Entry(f"x {said}", said, source=said, licence=said)
        glossary = Glossary({f"x {said}": [said, said]}, (entry,), (tmp_path / "g.tsv",), ())
        return learnt_card({"path": str(tmp_path / "model")}, glossary)

    usual, odd = written("plain").splitlines(), written(text).splitlines()
    assert len(odd) == len(usual)
    assert [line.partition(" ")[0] for line in odd[6:]] == [line.partition(" ")[0] for line in usual[6:]]
    assert "<" not in odd[-1]
    assert "<script" not in "\n".join(odd)


def test_a_folders_name_does_not_leave_its_backticks() -> None:
    text = card(
        "learnt", {}, model="a` <b>\n# x", into="tokens", glossary={"expressions": 1}, about="", rows=[]
    )
    assert "<b>" not in text.replace("`a' <b> # x`", "")
    assert "\n# x" not in text
