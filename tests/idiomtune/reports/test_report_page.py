"""The page: well-formed, complete in itself, and safe for whatever texts it shows."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.io.files import fingerprint
from idiomtune.reports.runs import read_lines
from idiomtune.reports.screens import show_finished_run
from tests.planted_runs import plant, plant_queries, query, write_lines
from tests.programs import main_of

main = main_of("report")

_VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Checked(HTMLParser):
    """Fails on tags that do not match, and collects what is referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data", "xlink:href")]
        assert not [k for k, _ in attrs if k.startswith("on")]
        self.open += [] if tag in _VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert tag in _VOID or self.open.pop() == tag


def checked(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    assert text.lstrip().startswith("<!doctype html>")
    page = Checked(text)
    assert all(reference.startswith("data:image/") for reference in page.references)
    assert not page.tags & {"script", "link", "iframe", "object"}
    assert not [part for part in ("url(", "@import", "Undefined") if part in text]
    return text


def shown(folder: Path) -> str:
    """The page of a run."""
    show_finished_run(folder, all_scores=False)
    return checked(folder / "report.html")


def admire_run(folder: Path, data: Path) -> Path:
    """A run with an ordered item of the sample's AdMIRe."""
    table = data / "subtask_a_train.tsv"
    row = dict(zip(*(line.split("\t") for line in table.read_text("utf-8").splitlines()[:2]), strict=True))
    names = [row[f"image{i}_name"] for i in range(1, 6)]
    record = {"id": "train_1", "split": "train", "mode": "caption", "compound": row["compound"]}
    record |= {"sentence": row["sentence"], "sense": row["sentence_type"]}
    scores = {"top1_accuracy": 0.0, "rank_difference": 4.0, "ndcg@5": 0.9}
    plant(folder, files={str(table): "sum"})
    orders = {"order": names, "gold": names[::-1]}
    write_lines(folder / "per_query" / "admire.jsonl", [{**record, **scores, **orders}])
    return folder


def test_texts_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script> & \"so on\""
    folder = plant_queries(tmp_path / "a", {"a1": 0.2, "b1": 0.4}, model={"path": evil})
    records = [query("a1", 0.2, sentence=evil, idiom=evil), query("b1", 0.4, usage="<b>odd")]
    write_lines(folder / "per_query" / "idiolink.jsonl", records)
    plant(tmp_path / "b")
    assert main([str(tmp_path), f"output={tmp_path / 'out'}"]) == 0
    text = checked(tmp_path / "out" / "report.html")
    assert "<b>odd" not in text
    assert "&lt;script&gt;alert(" in text


def test_a_runs_own_page(tmp_path: Path) -> None:
    """Documents by their sentences where the data is as it was, labels in words as well as in colour."""
    data = tmp_path / "val" / "indexes.json"
    data.parent.mkdir()
    document = {"id": "d1", "sentence": "Ice < water & snow.", "idiom": "other", "usage": "literal"}
    data.write_text(json.dumps([document]))
    facts: dict[str, Any] = {"files": {str(data): fingerprint(data)}}
    facts["tracking"] = {"wandb": {"api_key": "hidden-thing"}}
    folder = plant_queries(tmp_path / "run", {"a1": 0.9, "b1": 0.1}, {"a1": 0.2, "b1": 0.4}, **facts)
    text = shown(folder)
    headings = ("Worst", "Best", "Lost most by training", "Gained most by training")
    parts = ("Ice &lt; water &amp; snow.", "✗ not relevant", "literal, of “other”")
    for part in (*parts, *(f"<summary>{heading}</summary>" for heading in headings)):
        assert part in text
    assert "hidden-thing" not in text
    assert text.count('<img class="chart" src="data:image/svg+xml;') == 1
    assert 'alt="Training loss: training loss; idiolink: val/sentence/ndcg@10"' in text
    data.write_text("[]")
    assert "Ice &lt;" not in shown(folder)


def own_query(id_: str, value: float, found: list[tuple[str, float]], **facts: object) -> dict[str, object]:
    """A record of `per_query/own_val.jsonl`: what was found, and its grades."""
    top = [{"id": f"id of {text}", "text": text, "grade": grade} for text, grade in found]
    about = {"split": "", "mode": "span", "id": id_, "group": "g", "query": f"query {id_}", "is_main": True}
    return {**about, "ndcg@10": value, "top": top, **facts}


def test_ones_own_data_is_shown_by_examples_before_its_tables(tmp_path: Path) -> None:
    scores = {"own_val/score": 0.6, "own_val/ndcg@10": 0.4, "own_val/span/ndcg@10": 0.6}
    folder = plant(tmp_path / "run", scores=scores, baseline=dict.fromkeys(scores, 0.3), experiment="own")
    found = [("right & good", 1.0), ("wrong", 0.0), *((f"text {i}", 0.0) for i in range(5))]
    records = [
        own_query("a", 0.9, found),
        own_query("b", 0.3, found[::-1]),
        own_query("c", 0.1, found, mode="", is_main=False),
        {**own_query("d", 0.1, []), "predicted": 0.5, "gold": 3.0},  # a scored pair finds nothing
    ]
    write_lines(folder / "per_query" / "own_val.jsonl", records)
    write_lines(folder / "per_query_baseline" / "own_val.jsonl", [own_query("a", 0.4, found)])
    text = shown(folder)
    assert text.index("What it finds") < text.index("<summary>Worst") < text.index("<table>")
    yes, no = '<span class="mark yes">✓ relevant</span>', '<span class="mark no">✗ not relevant</span>'
    for heading, *parts in (
        ("Worst", "query b"),
        ("Best", "query a"),
        ("Gained most by training", f"{yes} right &amp; good", f"{no} wrong", ".900</b>, untrained 0.4"),
    ):
        section = text.split(f"<summary>{heading}</summary>")[1].split("</details>")[0]
        assert not [part for part in parts if part not in section]
    assert section.count("<li>") == 5
    assert "query c" not in text
    assert "lines are damaged" not in text


def test_pictures_are_small_and_inside(tmp_path: Path) -> None:
    folder = admire_run(tmp_path / "here", SAMPLE_ROOT / "admire")
    (folder / "plots").mkdir()
    for name in ("epsilon.png", "learning_curve.png"):
        (folder / "plots" / name).write_bytes(b"\x89PNG")
    text = shown(folder)
    assert text.count('<img src="data:image/jpeg;base64,') == 10  # the one item is worst and best
    assert "✗ should be 5" in text
    assert text.count("data:image/png") == 1  # the learning curve is drawn again
    gone = tmp_path / "gone"
    shutil.copytree(SAMPLE_ROOT / "admire", gone, ignore=shutil.ignore_patterns("images"))
    captions = admire_run(tmp_path / "captions", gone)
    assert "data:image/jpeg" not in shown(captions)
    shutil.rmtree(gone)
    assert "images are shown by their names" in shown(captions)


def test_every_line_of_results_is_read_or_told(tmp_path: Path) -> None:
    """Lines of records end at a line feed; other characters that some call line ends are text."""
    folder = plant_queries(tmp_path / "run", {"a1": 0.5})
    texts = [f"One{separator}two." for separator in "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e\r"]
    records = [query(f"a{i}", 0.5, sentence=text) for i, text in enumerate(texts)]
    path = folder / "per_query" / "idiolink.jsonl"
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_text(lines, encoding="utf-8", newline="")
    read, damaged = read_lines(path)
    assert [record["sentence"] for record in read] == texts
    assert damaged == 0
    path.write_bytes(b"\xff" + lines.encode())  # no UTF-8
    assert read_lines(path)[1] == 1
    assert read_lines(path / "idiolink.jsonl") == ([], 0)  # an evaluation is a file, without a folder
    bad = "{", "[" * 100_000, json.dumps(query("b1", 0.5, top=[3]))
    path.write_text("\n".join((json.dumps(query("a1", 0.5)), *bad)) + "\n", encoding="utf-8")
    assert "per_query/idiolink.jsonl: 3 lines are damaged" in shown(folder)


def test_items_that_name_other_pictures_show_none(tmp_path: Path) -> None:
    """Records of a run that somebody sent may name anything; only the data's own images are opened."""
    data = Path(shutil.copytree(SAMPLE_ROOT / "admire", tmp_path / "data"))
    secret = Path(shutil.copy(next(data.rglob("*.jpg")), tmp_path / "secret.jpg"))
    folder = admire_run(tmp_path / "run", data)
    path = folder / "per_query" / "admire.jsonl"
    (record,), _ = read_lines(path)
    names = [str(secret), "../../../../secret.jpg", "../secret.jpg", "", "."]
    for changes in (
        {"order": names, "gold": names},
        {"compound": str(tmp_path), "order": ["secret.jpg"], "gold": ["secret.jpg"]},
        {"order": [3, None], "gold": [3]},
    ):
        write_lines(path, [record | changes])
        assert "data:image/jpeg" not in shown(folder)
