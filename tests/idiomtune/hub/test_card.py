"""A model's card: the command, the scores, and texts of strangers, never read as Markdown or HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from idiomtune.data.dictionaries import Entry
from idiomtune.glossaries.tables import Glossary
from idiomtune.hub.model_card import (
    command,
    describe_outcome,
    escape_markdown,
    eval_results,
    in_code,
    learned_card,
    write_card,
)
from tests.planted_runs import plant, plant_queries, table_of

NEEDED = "'data.train='\"'\"'my (1).csv'\"'\"''"  # once more for the shell


def test_quotation_marks_that_nothing_needs_are_left_out(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", experiment="own")
    (run / ".hydra").mkdir()
    overrides = run / ".hydra" / "overrides.yaml"
    for recorded, expected in (
        (["model=pretrained", "model.path='intfloat/e5-base-v2'"], "model=intfloat/e5-base-v2"),
        (["model=pretrained", "model.path='/home/me/models/mine'", "run_dir='x'"], "'model=…/models/mine'"),
        (["model=pretrained", "model.path='mine'"], "model=pretrained model.path=mine"),  # a folder or not?
        (["data.train='my (1).csv'"], NEEDED),
    ):
        overrides.write_text(yaml.safe_dump(["+experiment=own", *recorded]), encoding="utf-8")
        assert command(run) == f"idiomtune train +experiment=own {expected}"
    for option in (
        "data.train=[/home/me/secret/a.csv,'/home/me/secret/b c.csv', \"/home/me/secret/c.csv\"]",
        "+objective.parts={a: {data: {train: /home/secret/a.csv}}, b: {data: {train: ~/home/secret/b.csv}}}",
        "benchmark.own_sts.path={mine: C:\\\\home\\\\me\\\\secret\\\\a.csv}",
    ):  # no folder of this machine is published
        overrides.write_text(yaml.safe_dump([option]), encoding="utf-8")
        assert "home" not in command(run)
        assert command(run).count("…/secret/") == option.count("secret")
    for option in ("model=intfloat/e5-base-v2", "trainer.monitor=[idiolink/val/span/ndcg@10]"):
        overrides.write_text(yaml.safe_dump([option]), encoding="utf-8")
        assert option in command(run)
    overrides.write_bytes(b"\xad +experiment=own\n")  # damaged: what else is known has to do
    assert command(run).startswith("idiomtune train +experiment=own")


def test_a_score_of_any_benchmark_is_a_result_for_the_hub() -> None:
    (result,) = eval_results(table_of({"mybench/accuracy": 0.5}), {})
    assert (result.dataset_split, result.metric_type, result.dataset_type) == (None, "accuracy", "mybench")


def test_a_card_says_that_training_did_not_help(tmp_path: Path) -> None:
    """On how many queries of how many groups; not of another checkpoint's scores."""
    queries = [f"{idiom}{number}" for idiom in "ab" for number in range(4)]
    low, high = dict.fromkeys(queries, 0.2), dict.fromkeys(queries, 0.8)
    helped, lost = plant_queries(tmp_path / "helped", high, low), plant_queries(tmp_path / "lost", low, high)
    scores = {run: json.loads((run / "scores.json").read_text(encoding="utf-8")) for run in (helped, lost)}
    assert describe_outcome(helped, scores[helped]) == describe_outcome(lost, scores[helped]) == []
    (said,) = describe_outcome(lost, scores[lost])
    assert said.startswith("on 8 queries of 2 groups, this model does NOT beat")


_TEXTS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a | b", "`code`", "[here](https://x.test)",
    "two\nlines", "---\nlicense: mit\n---", "\u2028## heading", "a\r| b | c |", "\\| x", "**bold**",
    "\x1b[31m",
]  # fmt: skip


def test_a_text_is_one_line_without_marks(tmp_path: Path) -> None:
    """Alone, and in the card of a model that learned a glossary, where it may be anywhere."""
    (tmp_path / "g.tsv").touch()

    def written(said: str) -> list[str]:
        entry = Entry(f"x {said}", said, source=said, licence=said)
        glossary = Glossary({f"x {said}": [said, said]}, (entry,), (tmp_path / "g.tsv",), ())
        model = {"path": str(tmp_path / "model")}
        return learned_card(model, glossary.describe(), glossary.senses).splitlines()

    usual = [line.partition(" ")[0] for line in written("plain")]
    for text in _TEXTS:
        line = escape_markdown(text)
        assert len(line.splitlines()) == len(in_code(text).splitlines()) == 1
        bare = line.replace("\\\\", "")
        assert not [mark for mark in "`[]|*" if bare.count(mark) != bare.count("\\" + mark)]
        assert "`" not in in_code(text)
        odd = written(text)
        assert len(odd) == len(usual)
        assert [line.partition(" ")[0] for line in odd[6:]] == usual[6:]
        assert "<" not in line + odd[-1]
        assert "<script" not in "\n".join(odd)


def test_a_folders_name_does_not_leave_its_backticks() -> None:
    facts: dict[str, Any] = {"into": "tokens", "glossary": {"expressions": 1}, "about": "", "rows": []}
    text = write_card("learned", {}, model="a` <b>\n# x", **facts)
    assert "<b>" not in text.replace("`a' <b> # x`", "")
    assert "\n# x" not in text
