"""`overwrite=true` replaces what the same program has made, and nothing else: of files and folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import idiomtune as it
from idiomtune.errors import UserError
from idiomtune.io.claims import claimed
from idiomtune.programs import new
from idiomtune.programs.explore import explore, parse
from tests.dictionaries import write_extract
from tests.planted_runs import plant

QUICK = {
    "data": "sample",
    "benchmark.idiolink.bm25_modes": [],
    "benchmark.idiolink.query_modes": ["sentence"],
}
Make = Callable[[Path], object]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted") / "run"
    plant(folder, scores={"idiolink/val/sentence/ndcg@10": 0.5}, baseline={})
    return folder


@pytest.fixture(
    params=[
        *("output.json", "queries.jsonl", "page.html", "index.html", "README.md"),
        *("idioms.csv", "idioms.tsv", "idioms.parquet", "verdict.json"),
        *("report.html", "table.md", "table.csv", "table.tex"),
    ]
)
def kind(request: pytest.FixtureRequest, tiny_path: Path, planted: Path, tmp_path: Path) -> tuple[str, Make]:
    """A file's name, and what writes it, over one of its own."""
    name: str = request.param
    extract = tmp_path / "words.jsonl"

    def evaluate(option: str) -> Make:
        return lambda folder: it.evaluate(
            tiny_path, ["idiolink"], overwrite=True, **{option: folder / name}, **QUICK
        )

    def glossary(folder: Path) -> None:
        write_extract(extract)
        it.glossary("wiktionary", folder / name, path=str(extract), overwrite=True)

    makers: dict[str, Make] = {
        "output.json": evaluate("output"),
        "queries.jsonl": evaluate("per_query"),
        "page.html": lambda f: it.explore(tiny_path, corpus="sample", output=f / name, overwrite=True),
        **dict.fromkeys(
            ("index.html", "README.md"),
            lambda f: explore(parse([f"{tiny_path}", "corpus=sample", f"space={f}", "overwrite=true"])),
        ),
        **dict.fromkeys(("idioms.csv", "idioms.tsv", "idioms.parquet"), glossary),
        "verdict.json": lambda f: it.gate(
            planted, floor="idiolink/val/sentence/ndcg@10:0.1", output=f / name
        ),
        **dict.fromkeys(
            ("report.html", "table.md", "table.csv", "table.tex"), lambda f: it.report(planted, output=f)
        ),
    }
    return name, makers[name]


def test_a_file_of_its_own_alone_is_replaced(
    kind: tuple[str, Make], tmp_path: Path, tiny_path: Path, planted: Path
) -> None:
    name, make = kind
    folder, precious = tmp_path / "out", tmp_path / "precious"
    folder.mkdir()
    make(folder)
    made = (folder / name).read_bytes()
    make(folder)
    assert (folder / name).exists()
    theirs = {
        b"\x08\0\0\0{}": "something",
        (tiny_path / "model.safetensors").read_bytes(): "weights",
        (planted / "scores.json").read_bytes(): "a run's scores",
        b'{"id": 1, "benchmark": "idiolink"}\n': "lines",
        b"<!doctype html><title>mine</title>": "a page",
        b"expression\tmeaning\nspill the beans\ttell\n": "a glossary",
        b" " + made[:3]: "nearly",
    }
    for content in theirs:
        for is_link in (False, True):
            (folder / name).unlink()
            if is_link:
                precious.write_bytes(content)
                (folder / name).symlink_to(precious)
            else:
                (folder / name).write_bytes(content)
            with pytest.raises(UserError, match=name):
                make(folder)
            assert (folder / name).read_bytes() == content, theirs[content]
    assert {path.name for path in folder.glob(".*")} == set()


@pytest.mark.parametrize("stray", ["notes.txt", "new/out", "new/notes.txt", "out", ".out.partial/x"])
@pytest.mark.parametrize("record", [None, "record.json"])
def test_a_folder_of_the_users_with_the_hidden_name_is_left_alone(
    stray: str, record: str | None, tmp_path: Path
) -> None:
    file = tmp_path / ".out.partial" / stray
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with (
        pytest.raises(UserError, match=r"output=.*\.out\.partial"),
        claimed("output", tmp_path / "out", record=record, overwrite=True),
    ):
        pass
    assert [path for path in (tmp_path / ".out.partial").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "mine"


def test_a_link_or_file_with_the_hidden_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / ".out.partial").symlink_to(tmp_path / "precious")
    (tmp_path / ".other.partial").write_text("mine")
    for name in ("out", "other"):
        with pytest.raises(UserError, match="partial"), claimed("output", tmp_path / name):
            pass
    assert not any((tmp_path / "precious").iterdir())
    assert (tmp_path / ".other.partial").read_text() == "mine"


def test_what_a_block_leaves_to_resume_from_is_its_own(tmp_path: Path) -> None:
    work = tmp_path / ".out.partial"

    def start(*, fails: bool) -> None:
        with claimed("output", tmp_path / "out", resumed=["state"]) as new:
            (work / "state").write_text("so far")
            if fails:
                raise UserError("slip")
            new.write_text("done")

    for _ in range(2):
        with pytest.raises(UserError, match="slip"):
            start(fails=True)
        assert [path.name for path in work.iterdir()] == ["state"]
    start(fails=False)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_new_folder_writes_through_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert new.main([str(tmp_path / "project")]) == 2
    assert "config.yaml" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere.yaml").exists()
