"""MAGPIE: both published forms, what is left out, what a spoiled file says; the real one, if it is here."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from idiomtune.config import EvaluateSettings, validate
from idiomtune.data.magpie import FILES, read_magpie, read_project_uses
from idiomtune.data.names import MAGPIE
from idiomtune.data.sources import DataFiles, dataset_folder
from idiomtune.data.usages import labelled_usages
from idiomtune.errors import DataMissingError, UserError
from idiomtune.expressions import find_expression
from tests.programs import refused
from tests.tiny_runs import composed

PUBLISHED = "MAGPIE_filtered_split_typebased.jsonl"


def rows(idiom: str, number: int = 3, words: str = "broke the ice") -> list[dict[str, Any]]:
    """As upstream publishes them: so many of each usage."""
    made = []
    for n, label in itertools.product(range(number), "il"):
        sentence = f"Sentence {n} ({label}): they {words}."
        start, (first, *_, last) = sentence.index(words), words.split()
        ends = [[start, start + len(first)], [sentence.rindex(last), start + len(words)]]
        context = ["One.", "Two.", sentence, "Four.", "Five."]
        made.append({"idiom": idiom, "label": label, "offsets": ends, "context": context, "confidence": 1.0})
    return made


def written(folder: Path, records: list[dict[str, Any]], name: str = PUBLISHED) -> DataFiles:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return DataFiles(FILES, folder)


def test_both_forms_give_the_same_sentences(tmp_path: Path) -> None:
    records = rows("break the ice") + rows("tie the knot", 40, "tied the knot") + rows("few", 2)
    usages = read_magpie(written(tmp_path / "a", records), [])
    assert [usage.phrase for usage in usages] == ["break the ice"] * 6 + ["tie the knot"] * 60
    first = usages[0]
    assert first.sentence[slice(*first.span or ())] == "broke the ice"
    assert [usage.is_idiomatic for usage in usages[:6]] == [True] * 3 + [False] * 3
    short = [record | {"sentence": record.pop("context")[2]} for record in records]
    assert read_magpie(written(tmp_path / "b", short, "magpie.jsonl"), []) == usages


def test_scored_idioms_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Expressions with their words, or of some of them, and sentences with one of them."""
    records = rows("break the ice") + rows("miss the boat", 4, "missed the boat")
    records += rows("rock the boat", 3, "rocked the boat") + rows("tie the knot", 4, "tied the knot")
    records[-1]["context"][2] += " So they missed the boat."
    caplog.set_level("INFO")
    usages = read_magpie(written(tmp_path / "a", records), ["miss the boat", "break the ice for someone"])
    assert {usage.phrase for usage in usages} == {"rock the boat", "tie the knot"}
    assert len([usage for usage in usages if usage.phrase == "tie the knot"]) == 7
    assert "2 expressions of IdioLink's (break the ice, miss the boat), 1 sentences" in caplog.text


def test_a_spoiled_file_is_named_by_line_and_field(tmp_path: Path) -> None:
    for field, value in (("label", "?"), ("offsets", []), ("context", [])):
        records = rows("break the ice")
        records[3][field] = value
        files = written(tmp_path / "a", records)
        refused(lambda: read_magpie(files, []), PUBLISHED, "row 4", field)  # noqa: B023


def test_a_gate_is_fitted_to_magpie_and_our_own_sentences_or_to_these_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = read_project_uses([])
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path))
    written(tmp_path / "magpie", rows("break the ice"))
    assert labelled_usages([])[6:] == own
    data = [f"data.magpie={tmp_path / 'magpie'}", "benchmark=[semeval2022]"]
    inputs = validate(EvaluateSettings, composed("evaluate", *data)).inputs
    monkeypatch.delenv("IDIOM_DATA")
    assert len(labelled_usages([], inputs)) == 6 + len(own)
    assert not caplog.records
    monkeypatch.setattr("idiomtune.data.sources.GITHUB_FILES", "http://127.0.0.1:9")
    assert labelled_usages([]) == own
    assert "8928 sentences" in caplog.text
    with pytest.raises(DataMissingError, match=r"(?s)7fa677b8.*data\.magpie="):
        labelled_usages([], whole=True)
    (tmp_path / "magpie" / PUBLISHED).write_text("{}\n")
    with pytest.raises(UserError, match="row 1"):
        labelled_usages([], inputs)


def test_our_own_uses_are_three_of_each_usage_and_hold_no_scored_idiom() -> None:
    usages = read_project_uses([])
    counts = Counter((usage.phrase, usage.is_idiomatic) for usage in usages)
    assert (set(counts.values()), len(counts)) == ({3}, 2 * 1488)
    assert usages[0].sentence[slice(*usages[0].span or ())] == "a bed of roses"
    others = read_project_uses(["across the board"])
    assert not [usage for usage in others if find_expression(usage.sentence, "across the board")]


def test_nothing_scored_is_in_the_real_data(real_data: Path) -> None:
    folder = dataset_folder(MAGPIE, None, str(real_data), sample=False)
    if folder is None:
        pytest.skip("no MAGPIE here")
    usages = read_magpie(DataFiles(FILES, folder), ["break the ice", "in the black"])
    assert len(usages) > 5000
    assert len({usage.phrase for usage in usages}) > 165
    assert not [usage for usage in usages if "in the black" in usage.sentence.lower()]
