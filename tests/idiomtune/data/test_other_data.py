"""The commands of docs/other-data.md read what they name: small files of our own in the published layouts."""

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from idiomtune.benchmarks.user.collections import read_collection
from idiomtune.benchmarks.user.pairs import UserPairBenchmark
from idiomtune.cli import PROGRAMS
from idiomtune.config import validate
from idiomtune.config.words import overrides_of
from idiomtune.data.user.examples import ExampleTable
from idiomtune.data.user.load import user_splits
from idiomtune.data.user.source import Source, find_sources
from idiomtune.io.tables import read_rows
from tests.benchmarks import benchmarks_of
from tests.doc_pages import shell_lines
from tests.programs import ROOT
from tests.tiny_runs import composed

COMMANDS = [
    shlex.split(line) for line in shell_lines(ROOT / "docs" / "other-data.md") if line.startswith("idiomtune")
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_of(part: str, *more: str) -> Any:
    """The settings of the page's only command with this part; a placeholder is a name of its own."""
    ((program, command, *arguments),) = [words for words in COMMANDS if part in " ".join(words)]
    assert program == "idiomtune"
    words = [re.sub(r"<(\w+)>", r"\1", argument) for argument in arguments]
    rewritten = overrides_of(words, command, PROGRAMS[command].subject)
    return validate(PROGRAMS[command].settings, composed(command, *rewritten, *more))


def put(path: str, content: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content, encoding="utf-8")


def told(part: str, *more: str) -> list[list[tuple[str, str | None, str | None, str | None]]]:
    """Of each row for training the texts, and the words of their spans, their groups and meanings."""
    data = settings_of(part, *more).data.user_data
    assert len(user_splits(data).train)
    table = ExampleTable(find_sources(data.train, "data.train")[0], data.columns, data.form)
    return [
        [(s.text, s.span and s.text[slice(*s.span)], s.group, s.meaning) for s in example.sentences]
        for example in table.examples()
    ]


def test_chengyusts() -> None:
    put(
        "chengyusts.csv",
        "first,second,score\n他画蛇添足。,他多此一举。,4.5\n他画蛇添足。,他画了一条蛇。,0.5\n",
    )
    settings = settings_of("chengyusts")
    ((built,), _) = benchmarks_of(settings, ["own_sts"])
    assert isinstance(built, UserPairBenchmark)
    pairs = [(pair.first.text, pair.second.text, pair.gold) for pair in built.data["chengyusts"]]
    assert pairs == [("他画蛇添足。", "他多此一举。", 4.5), ("他画蛇添足。", "他画了一条蛇。", 0.5)]


def test_parseme() -> None:
    def entries(language: str, *labels: list[str]) -> str:
        texts = [{"text": f"{language} text {n}", "raw_text": f"{language} idiom {n}"} for n in range(2)]
        rows = [text | {"label": label} for text, label in zip(texts, labels, strict=False)]
        return "".join(json.dumps(row) + "\n" for row in rows)

    put("subtask2/FR/test.jsonl", entries("fr", ["plain 1", "plain 2"], ["plain 3"]))
    put("subtask2/PL/test.jsonl", entries("pl", ["plain 4"]))
    put("subtask2/PT/test.jsonl", entries("pt", ["plain 5"], ["plain 6"]))
    rows = told("data=parseme")
    assert [[text for text, *_ in row] for row in rows] == [
        ["fr idiom 0", "plain 1", "plain 2"],
        ["fr idiom 1", "plain 3"],
    ]
    splits = user_splits(settings_of("data=parseme").data.user_data)
    assert (len(splits.train), len(splits.val), splits.train.form) == (3, 2, "pairs")


def test_multiidiom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of its card; the Hub's rows come as dictionaries."""
    usages = {"It": "idiomatic", "That": "idiomatic", "This": "literal", "One": "literal"}
    rows = [
        {
            **{"language": "English", "idiom_id": f"en_{idiom}", "idiom": idiom, "meaning_id": f"m{start}"},
            **{"sense_number": 1, "idiomaticity": usage, "register": ["neutral"], "region": ["Global"]},
            **{"sentence": f"{start} {words} today.", "span_start": len(start) + 1, "matched_span": words},
            "span_end": len(start) + 1 + len(words),
        }
        for idiom, words in {"break the ice": "broke the ice", "hold water": "held water"}.items()
        for start, usage in usages.items()
    ]
    from_the_hub = Mock(side_effect=lambda name, _option: Source(name, hub=rows))
    monkeypatch.setattr("idiomtune.data.user.source._hub_source", from_the_hub)
    found = told("data=multiidiom", "data.val_share=0.5")
    assert found[0] == [("It broke the ice today.", "broke the ice", "break the ice", "idiomatic")]
    assert found[7] == [("One held water today.", "held water", "hold water", "literal")]
    names = {call.args[0] for call in from_the_hub.call_args_list}
    assert names == {"hf:Justarandomperson/MultIdiom_Dataset:train"}


def test_id10m(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quotation mark is a token; a sentence with two expressions is two rows, one with none is no row."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    script = importlib.import_module("bio_tags")
    tagged = [("He", "O"), ("broke", "B-IDIOM"), ("the", "I-IDIOM"), ("ice", "I-IDIOM"), (".", "O")]
    sentence = "".join(f"{token}\t{tag}\n" for token, tag in tagged)
    put("bio_format/english/train_english.tsv", f"{sentence}\n{sentence.replace('He', 'She')}\nNo\tO\n\n")
    two = 'It\tO\n"\tO\nkick\tB-IDIOM\nit\tO\noff\tI-IDIOM\n,\tO\nat\tB-IDIOM\nlast\tI-IDIOM'
    put("bio_format/english/dev_english.tsv", two)
    for words in (shlex.split(line) for line in shell_lines(ROOT / "docs" / "other-data.md")):
        if words[:2] == ["python", "examples/bio_tags.py"]:
            script.main(*words[2:])
    assert told("train_english") == [
        [(f"{name} broke the ice .", "broke the ice", "broke the ice", None)] for name in ("He", "She")
    ]
    rows = [row.values for row in read_rows(Path("dev_english.jsonl"))]
    assert [row["text"][row["span_start"] : row["span_end"]] for row in rows] == ["kick it off", "at last"]
    assert [row["group"] for row in rows] == ["kick off", "at last"]
    put("wrong.tsv", "a\tB-IDIOM\nb\tX\n")
    with pytest.raises(SystemExit, match="line 2"):
        script.main("wrong.tsv", "wrong.jsonl")


def test_astitch() -> None:
    rows = "0,It is a big fish.,big fish\n1,He caught a big fish.,big fish\n0,She is a big fish.,big fish\n"
    put("EN/train_zero_shot.csv", f"label,sentence1,sentence2\n{rows}")
    put("EN/dev.csv", f"label,sentence1,sentence2\n{rows.replace('fish', 'cheese')}")
    assert told("train_zero_shot") == [
        [("It is a big fish.", None, "big fish", "0")],
        [("He caught a big fish.", None, "big fish", "1")],
        [("She is a big fish.", None, "big fish", "0")],
    ]


def test_idiomx(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the idioms is asked for, by idiomatic sentences, among all of them."""
    rows = [
        {
            **{"idiom_canonical": f"idiom {idiom}", "meaning_paraphrases_en": '["a", "b"]'},
            **{"example_normalized": f"sentence {idiom} {number} {usage}", "example_usage_label": usage},
            "idiom_canonical_meaning": None if number == 0 else f"meaning  {number}",
            "idiom_level_explanation_en": "why",
        }
        for idiom in range(10)
        for number, usage in enumerate(["literal", "idiomatic", "idiomatic", "idiomatic"])
    ]
    put("rows.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.syspath_prepend(ROOT / "examples")
    importlib.import_module("idiomx").main("rows.jsonl")
    settings = settings_of("idiomx")
    collection = read_collection("idiomx", settings.benchmark["own_retrieval"].paths["idiomx"])
    texts = dict(zip(collection.ids, (request.text for request in collection.documents), strict=True))
    assert len(texts) == 10
    assert texts["i3"] == (
        'idiom: idiom 3. idiom: idiom 3. meaning: meaning 1. paraphrase: ["a", "b"]. explanation: why. '
        "usage: sentence 3 0 sentence 3 1 sentence 3 2"
    )
    # The last two of the ten, as numpy shuffles them with the notebook's seed.
    found = [(query.text.text, list(query.grades.items())) for query in collection.queries]
    assert found == [
        (f"sentence {idiom} {number}", [(idiom, 1.0)]) for idiom in (3, 6) for number in (1, 2, 3)
    ]
