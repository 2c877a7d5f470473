"""Ties, and queries that find themselves: scores of the user's own data that prove something."""

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
import torch

from idiomtune import Encoder
from idiomtune.benchmarks.suite import Suite
from idiomtune.benchmarks.user import HeldOutOptions
from idiomtune.benchmarks.user.pairs import HeldOutBenchmark
from idiomtune.cli import settings_of as checked_settings
from idiomtune.config import EvaluateSettings, TrainSettings, validate
from idiomtune.data.user.load import user_splits
from idiomtune.errors import UserError
from idiomtune.programs.evaluate import evaluate as score_model
from tests.benchmarks import by_text, in_turn
from tests.own_data import write, write_lines
from tests.tiny_runs import composed

Log = pytest.LogCaptureFixture
Rows = list[dict[str, object]]


def collection(folder: Path, order: list[int], judged: str = "q{n}\td{n}\t1\n") -> None:
    """Documents in this order, of which four queries each want one."""
    write_lines(folder / "corpus.jsonl", [{"_id": f"d{i}", "text": f"one two three {i}"} for i in order])
    kind = judged[0]
    write_lines(folder / "queries.jsonl", [{"_id": f"{kind}{n}", "text": f"what is {n}"} for n in range(4)])
    rows = "".join(judged.format(n=n) for n in range(4))
    write(folder / "qrels.tsv", f"query-id\tcorpus-id\tscore\n{rows}")


def evaluate(tiny: Path, folder: Path, *options: str) -> dict[str, float]:
    """The scores of `idiomtune evaluate` on a collection."""
    output = folder / "scores.json"
    files = (f"benchmark.own_retrieval.path={folder}", f"output={output}", "overwrite=true")
    model = ("model=pretrained", f"model.path={tiny}", "device=cpu", f"per_query={folder / 'queries.out'}")
    config = composed("evaluate", "benchmark=[own_retrieval]", *files, *model, *options)
    score_model(checked_settings(EvaluateSettings, config))
    scores: dict[str, float] = json.loads(output.read_text(encoding="utf-8"))["scores"]
    return scores


def test_a_query_with_itself_alone_to_find_is_left_out(tmp_path: Path, tiny_path: Path, caplog: Log) -> None:
    """And no query finds itself, not even last."""
    caplog.set_level("INFO")
    mine = tmp_path / "mine"
    collection(mine, list(range(6)), "d{n}\td{n}\t1\n")
    with pytest.raises(UserError, match=r"qrels\.tsv.*exclude_self=true"):
        evaluate(tiny_path, mine, "benchmark.own_retrieval.exclude_self=true")
    with (mine / "qrels.tsv").open("a") as file:
        file.write("d1\td5\t1\n")
    scores = evaluate(tiny_path, mine, "benchmark.own_retrieval.exclude_self=true")
    assert "3 of 4 queries" in caplog.text
    record = json.loads((mine / "queries.out").read_text(encoding="utf-8"))
    found = {top["id"]: top["text"] for top in record["top"]}
    assert (record["id"], found) == ("d1", {f"d{n}": f"one two three {n}" for n in (0, 2, 3, 4, 5)})
    assert scores["own_retrieval/mine/recall@10"] == 1


def held_out(folder: Path, rows: Rows, train: str = "") -> HeldOutBenchmark:
    """The benchmark of held-out rows, pairs or labelled texts."""
    content = {"anchor": "question,answer\nwhat?,it\nwho?,she\n", "text": "text,label\na,x\nb,y\n"}
    training = write(folder / "train.csv", train or content[next(iter(rows[0]))])
    val = write_lines(folder / "val.jsonl", rows)
    options = ("+experiment=own", f"data.train={training}", f"data.val={val}")
    settings: TrainSettings = validate(TrainSettings, composed("train", *options))
    limits = HeldOutOptions(name="own_val", max_queries=100, max_documents=100)
    return HeldOutBenchmark({"": user_splits(settings.data.user_data).val}, [], limits)


def scored(benchmark: HeldOutBenchmark, vectors: dict[str, int]) -> Any:
    """Its scores by a model that gives texts of one number the same vector."""
    one_hot = torch.eye(max(vectors.values()) + 1)
    return benchmark.score(by_text({text: one_hot[n] for text, n in vectors.items()}))


def test_symmetric_pairs(tmp_path: Path) -> None:
    """(A, B) and (B, A): a perfect model scores 1, since A is not a wrong answer to itself."""
    names = [(f"cat {i}", f"dog {i}") for i in range(5)]
    rows: Rows = [{"anchor": x, "positive": y} for pair in names for x, y in permutations(pair)]
    benchmark = held_out(tmp_path, rows)
    scores = scored(benchmark, {text: i for i, pair in enumerate(names) for text in pair}).by_key
    assert scores["own_val/score"] == scores["own_val/map@100"] == scores["own_val/precision@1"] == 1
    nothing = {text: n for n, text in enumerate(text for pair in names for text in pair)}
    assert scored(benchmark, nothing).by_key["own_val/score"] < 0.6  # all other documents tie


def test_a_text_is_no_mistake_of_its_own(tmp_path: Path) -> None:
    """An anchor that is its positive finds it, and a sentence under two labels does not count as wrong."""
    cats = [f"cat {i}" for i in range(5)]
    benchmark = held_out(tmp_path, [{"anchor": cat, "positive": cat} for cat in cats])
    assert scored(benchmark, {cat: i for i, cat in enumerate(cats)}).by_key["own_val/score"] == 1
    rows: Rows = [{"text": t, "label": label} for label in "ab" for t in ("both", f"{label} 1", f"{label} 2")]
    vectors = {"both": 0, "a 1": 0, "a 2": 0, "b 1": 1, "b 2": 1}
    first = scored(held_out(tmp_path / "labelled", rows), vectors).per_query[0]
    assert (first["query"], first["ndcg@10"]) == ("both", 1.0)


COPIES: dict[str, Callable[[str, int], dict[str, object]]] = {
    "annotators": lambda text, n: {"text": text, "annotator": "ABC"[n]},
    "blanks": lambda text, n: {"text": text.replace(" ", " " * (n + 1)) + " " * n},
    "letters": lambda text, n: {"text": normalize("NFD" if n else "NFC", text)},
}


@pytest.mark.parametrize(("how", "by"), zip(COPIES, ("label", "group", "label"), strict=True))
def test_copies_of_a_row_count_once(how: str, by: str, tmp_path: Path, tiny: Encoder, caplog: Log) -> None:
    """As if each text were there once, whatever else its rows say: no text finds itself."""
    caplog.set_level("INFO")
    texts = {f"café {kind} {n}": kind for kind in ("closed", "open", "new") for n in range(3)}
    results = []
    for num in (1, 3):
        rows: Rows = [COPIES[how](text, n) | {by: kind} for text, kind in texts.items() for n in range(num)]
        rows.append({"text": "alone", by: "single"})
        benchmark = held_out(tmp_path / str(num), rows, f"text,{by}\na,x\nb,y\n")
        results.append(Suite([benchmark]).run(tiny))
    assert results[0].scores == results[1].scores
    assert [len(card.per_query["own_val"]) for card in results] == [9, 9]
    assert "count once" in caplog.text


def test_contradictory_rows_are_named_and_not_scored(tmp_path: Path, caplog: Log) -> None:
    """Under two meanings of one group; the same text in two groups is no contradiction."""
    uses = ["idiomatic"] * 3 + ["literal"] * 3
    rows: Rows = [{"text": f"ice {n}", "group": "ice", "meaning": use} for n, use in enumerate(uses)]
    rows += [
        {"text": "ice  0", "group": "ice", "meaning": "literal"},
        {"text": "ice 1", "group": "tea", "meaning": "idiomatic"},
        {"text": "tea 1", "group": "tea", "meaning": "idiomatic"},
    ]
    training = "text,group,meaning\na,x,idiomatic\nb,x,literal\n"
    scores = held_out(tmp_path, rows, training).score(in_turn(torch.eye(20)))
    assert "meanings: 1" in caplog.text
    assert "val.jsonl row 1 and" in caplog.text
    assert "val.jsonl row 7" in caplog.text
    assert not [r for r in scores.per_query if "0" in r["query"] or any("0" in d["text"] for d in r["top"])]
    assert [r["query"] for r in scores.per_query].count("ice 1") == 2
    held_out(
        tmp_path / "all", [{**row, "group": "ice"} for row in rows[:1] + rows[6:7] + rows[1:3]], training
    )
    with pytest.raises(UserError, match=r"data\.val="):
        held_out(tmp_path / "none", [rows[0], rows[6]], training)


def test_the_median_rank_is_that_of_the_first_right_row(tmp_path: Path) -> None:
    """Of three queries, two find their answer at once and one not before another's."""
    benchmark = held_out(tmp_path, [{"anchor": f"q{i}", "positive": f"a{i}"} for i in range(3)])
    scores = scored(benchmark, {"a0": 0, "a1": 1, "a2": 2, "q0": 0, "q1": 1, "q2": 0})
    first, second, last = (r["rank"] for r in sorted(scores.per_query, key=lambda r: r["query"]))
    assert (first, second, scores.by_key["own_val/median_rank"]) == (1, 1, 1)
    assert last > 1
    assert {(score.split, score.mode) for score in scores.scores} == {("", "")}


def test_held_out_scores_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    """Where all documents tie, each is as likely at each of 30 ranks."""
    rows: Rows = [{"anchor": f"cat {i}", "positive": f"dog {i}"} for i in range(30)]
    vectors = dict.fromkeys((str(text) for row in rows for text in row.values()), 0)
    first, second = (scored(held_out(tmp_path, rows[::step]), vectors).by_key for step in (1, -1))
    assert first == pytest.approx(second, abs=1e-12)
    assert first["own_val/recall@10"] == pytest.approx(1 / 3)
