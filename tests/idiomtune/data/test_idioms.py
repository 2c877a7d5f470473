"""The project's own data set in IdioLink's form, alone and together with IdioLink."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idiomtune.config import PushSettings, TrainSettings, validate
from idiomtune.config.words import overrides_of
from idiomtune.data.idiolink import available_splits, idiolink_root, load_split
from idiomtune.data.idioms import TEXTS, idioms_folder, is_idioms
from idiomtune.data.magpie import MORE_USES, NEUTRAL, PROJECT_USES
from idiomtune.errors import UserError
from idiomtune.expressions import ExpressionIndex
from idiomtune.glossaries.tables import GLOSSARIES, read_glossary
from idiomtune.programs.push import push
from idiomtune.writing.rules import Rules
from idiomtune.writing.slots import Draft, Slot
from tests.own_data import write
from tests.tiny_runs import composed


def settings_of(*options: str) -> Any:
    return validate(
        TrainSettings, composed("train", *overrides_of(["+experiment=idiolink_ft", *options], "train", ""))
    )


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDIOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_every_expression_has_texts_of_each_usage_in_one_split() -> None:
    folder = idioms_folder()
    assert available_splits(folder) == ["train", "val"]
    splits = [load_split(folder, name) for name in ("train", "val")]
    idioms = [{record.idiom for record in split.documents} for split in splits]
    assert list(map(len, idioms)) == [319, 80]
    assert not idioms[0] & idioms[1]
    english = read_glossary([GLOSSARIES / "english.tsv"]).senses
    assert idioms[0] | idioms[1] <= english.keys()
    for split in splits:
        of_idiom = Counter((record.idiom, record.usage) for record in (*split.documents, *split.queries))
        assert {of_idiom[name, "idiomatic"] for name, _ in of_idiom} == {4}
        assert {of_idiom[name, "sense"] for name, _ in of_idiom} == {4}
        assert {of_idiom[name, "literal"] for name, _ in of_idiom} == {0, 4}


def test_the_texts_keep_the_rules_of_write() -> None:
    """Few break one: a loose literal use (*bring the whole house down*), an idiom within an idiom."""
    lines = [path.read_text("utf-8").splitlines() for path in TEXTS.glob("*.tsv")]
    tables = [csv.DictReader(part, delimiter="\t", quoting=csv.QUOTE_NONE) for part in lines]
    rows = [row for table in tables for row in table]
    rules, broken = Rules(ExpressionIndex({row["expression"] for row in rows})), Counter[str]()
    for row in rows:
        sources: list[Draft] = []
        for usage in ("literal", "idiomatic", "sense", "simplification"):
            if found := re.fullmatch(r"(.*)\[\[(.+)\]\](.*)", row[usage]):
                draft = Draft("".join(found.groups()), found[2])
                slot = Slot(1, row["expression"], 1, row["domain"], usage)
                of_usage = sources if usage == "simplification" else []
                broken[rules.broken_rule(slot, draft, of_usage) or ""] += 1
                sources += [draft] if usage == "idiomatic" else []
    assert broken.total() > 6000
    assert not broken["no near duplicate"]
    assert broken[""] > 0.97 * broken.total()


def test_the_neutral_sentences_have_hardly_an_idiom() -> None:
    index = ExpressionIndex(read_glossary([GLOSSARIES / "english.tsv"]).senses)
    neutral = NEUTRAL.read_text("utf-8").splitlines()
    assert len(set(neutral)) == len(neutral) == 2000
    assert sum(bool(index.find(text)) for text in neutral[::4]) < 5
    assert sum(path.stat().st_size for path in (*TEXTS.iterdir(), PROJECT_USES, MORE_USES, NEUTRAL)) < 2.5e6


def test_it_trains_alone_by_name_and_beside_idiolink(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDIOM_DATA", str(real_data))
    alone = settings_of("data=idioms")
    assert alone.objective.build(alone.inputs).describe()
    both = settings_of("data=idiolink_idioms")
    objective = both.objective.build(both.inputs)
    names = {idiom for idiom, _ in objective.idiom_sentences}
    real = load_split(real_data / "idiolink", "train")
    assert len(names) == 319 + len({document.idiom for document in real.documents})
    assert len(objective.files) == 4


def test_an_idiom_in_two_splits_is_refused_in_whichever_folder(tmp_path: Path) -> None:
    for name in ("indexes.json", "queries.json"):
        val = (idioms_folder() / "val" / name).read_text("utf-8")
        write(tmp_path / "mine" / "train" / name, val.replace("own_val", "m"))
    for also, named in (
        (tmp_path / "mine", r"splits train and val|splits val and train"),
        ("idioms", "own_train"),
    ):
        settings = settings_of("data=idioms", f"data.also={also}")
        with pytest.raises(UserError, match=named):
            settings.objective.build(settings.inputs)


def test_a_folder_of_its_name_counts_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_idioms("idioms")
    (tmp_path / "idioms").mkdir()
    with pytest.raises(UserError, match="no IdioLink split"):
        idiolink_root("idioms", sample=False)


def test_it_can_be_pushed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    options = composed("push", "checkpoint=idioms", "repo_id=me/idioms", "dry_run=true")
    assert push(validate(PushSettings, options)) is None
    shown = capsys.readouterr().out
    assert "cc0-1.0" in shown
    assert "train/indexes.json" in shown
    assert "val/queries.json" in shown
