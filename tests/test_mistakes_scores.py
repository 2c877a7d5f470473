"""Planted mistakes of scoring: ties, a query that finds itself, scores that prove nothing."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks import by_text
from tests.mistakes import Mistake, run_mistake
from tests.own_data import write, write_lines
from tests.tiny_runs import composed
from train.benchmarks.own import OwnValOptions
from train.benchmarks.own.pairs import OwnValBenchmark
from train.config import TrainSettings, check
from train.data.own.load import own_splits
from train.reports.compare import Difference, beats_untrained

EVALUATE = ("benchmarks=[own_retrieval]", "benchmark.own_retrieval.path=mine", "device=cpu")


def collection(order: list[int], judged: str = "q{n}\td{n}\t1\n") -> dict[str, str]:
    """Documents in this order, of which four queries each want one."""
    documents = [{"_id": f"d{i}", "text": f"one two three {i}"} for i in order]
    queries = [{"_id": f"q{n}", "text": f"what is {n}"} for n in range(4)]
    return {
        "mine/corpus.jsonl": "".join(json.dumps(row) + "\n" for row in documents),
        "mine/queries.jsonl": "".join(json.dumps(row) + "\n" for row in queries),
        "mine/qrels.tsv": "query-id\tcorpus-id\tscore\n" + "".join(judged.format(n=n) for n in range(4)),
    }


def test_ties_do_not_follow_the_file(tmp_path: Path, tiny_path: Path) -> None:
    """Documents that are all equal after truncation: the same scores whatever their order, and a note."""
    scores = []
    for name, order in (("forwards", list(range(30))), ("backwards", list(range(29, -1, -1)))):
        folder = tmp_path / name
        folder.mkdir()
        tied = Mistake(
            name,
            (*EVALUATE, "model.max_length=4", "output=scores.json"),
            ["own_retrieval/mine, by sentence: 100.0% of the relevant documents", "tie with irrelevant ones"],
            collection(order),
            "train.evaluate",
            0,
        )
        run_mistake(tied, folder, tiny_path)
        scores.append(json.loads((folder / "scores.json").read_text(encoding="utf-8"))["scores"])
    assert scores[0] == scores[1]
    assert scores[0]["own_retrieval/mine/ndcg@10"] < 0.4  # .64 with the relevant ones first


def test_a_query_with_itself_alone_to_find_is_left_out(tmp_path: Path, tiny_path: Path) -> None:
    files = collection(list(range(6)), judged="d{n}\td{n}\t1\n")
    files["mine/queries.jsonl"] = "".join(
        json.dumps({"_id": f"d{n}", "text": f"what is {n}"}) + "\n" for n in range(4)
    )
    option = "benchmark.own_retrieval.exclude_self=true"
    options = (*EVALUATE, option, "output=scores.json", "per_query=queries.jsonl")
    run_mistake(Mistake("", options, [option, "qrels"], files, "train.evaluate"), tmp_path, tiny_path)
    files["mine/qrels.tsv"] += "d1\td5\t1\n"
    says = ["3 of 4 queries have no relevant document to find, and are left out"]
    run_mistake(Mistake("", options, says, files, "train.evaluate", 0), tmp_path, tiny_path)
    (record,) = (
        json.loads(line) for line in (tmp_path / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    )
    assert record["id"] == "d1"
    assert sorted(top["id"] for top in record["top"]) == [
        "d0",
        "d2",
        "d3",
        "d4",
        "d5",
    ]  # not itself, not even last
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert scores["own_retrieval/mine/recall@10"] == 1


def held_out(folder: Path, name: str, rows: list[dict[str, object]]) -> OwnValBenchmark:
    train = write(
        folder / "train.csv", "question,answer\n" + "".join(f"what {i}?,it {i}\n" for i in range(8))
    )
    if "label" in rows[0]:
        write(train, "text,label\n" + "".join(f"text {i},l{i % 2}\n" for i in range(8)))
    val = write_lines(folder / name, rows)
    options = ("+experiment=own", f"data.train={train}", f"data.val={val}")
    settings: TrainSettings = check(TrainSettings, composed("config", *options))
    limits = OwnValOptions(name="own_val", max_queries=100, max_documents=100)
    return OwnValBenchmark({"": own_splits(settings.data.own).val}, [], limits)


def scored(benchmark: OwnValBenchmark, vectors: dict[str, int]) -> dict[str, float]:
    """Its scores by a model that gives texts of one number the same vector."""
    return benchmark.score(one_hot(vectors)).by_key


def one_hot(vectors: dict[str, int]) -> Any:
    return by_text({text: torch.eye(max(vectors.values()) + 1)[n] for text, n in vectors.items()})


def test_symmetric_pairs(tmp_path: Path) -> None:
    """(A, B) and (B, A): a perfect model scores 1, since A is not a wrong answer to itself."""
    names = [(f"cat {i}", f"dog {i}") for i in range(5)]
    rows: list[dict[str, object]] = [
        {"anchor": x, "positive": y} for pair in names for x, y in permutations(pair)
    ]
    vectors = {text: i for i, pair in enumerate(names) for text in pair}
    scores = scored(held_out(tmp_path, "val.jsonl", rows), vectors)
    assert scores["own_val/score"] == scores["own_val/map@100"] == scores["own_val/precision@1"] == 1
    worse = {text: n for n, text in enumerate(vectors)}  # nothing finds anything: all other documents tie
    assert scored(held_out(tmp_path, "val.jsonl", rows), worse)["own_val/score"] < 0.6


def test_an_anchor_that_is_its_positive_finds_it(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"anchor": f"cat {i}", "positive": f"cat {i}"} for i in range(5)]
    scores = scored(held_out(tmp_path, "val.jsonl", rows), {f"cat {i}": i for i in range(5)})
    assert scores["own_val/score"] == 1


def test_a_sentence_under_two_labels_is_not_its_own_mistake(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"text": text, "label": label} for label in "ab" for text in ("both", f"{label} 1", f"{label} 2")
    ]
    vectors = {"both": 0, "a 1": 0, "a 2": 0, "b 1": 1, "b 2": 1}
    benchmark = held_out(tmp_path, "val.jsonl", rows)
    first = benchmark.score(one_hot(vectors)).per_query[0]
    assert (first["query"], first["ndcg@10"]) == ("both", 1.0)


def test_held_out_scores_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"anchor": f"cat {i}", "positive": f"dog {i}"} for i in range(30)]
    vectors = {text: 0 for i in range(30) for text in (f"cat {i}", f"dog {i}")}
    found = [
        scored(held_out(tmp_path, f"{n}.jsonl", order), vectors) for n, order in enumerate((rows, rows[::-1]))
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-12)
    # A document is as likely at each of 30 ranks.
    assert found[0]["own_val/recall@10"] == pytest.approx(1 / 3)


KEY = "own_val/score"


def difference(interval: tuple[float, float] | None, num_queries: int = 11) -> dict[str, Difference]:
    return {KEY: Difference(KEY, 0.5, 0.4, num_queries, num_queries, interval, interval, 0.5, 0.5)}


@pytest.mark.parametrize(
    ("after", "before", "differences", "verdict"),
    [
        (0.5, 0.4992, difference((-0.1, 0.1)), "is not clearly better than the untrained model"),
        (0.5, 0.4992, {}, "is not clearly better than the untrained model"),
        (0.5, 0.4, difference(None), "is not clearly better than the untrained model"),
        (0.5, 0.5, difference((0.0, 0.0)), "does NOT beat the untrained model"),
        (0.5, 0.4, difference((0.05, 0.15)), "beats the untrained model"),
    ],
)
def test_only_the_paired_test_beats_the_untrained_model(
    after: float, before: float, differences: dict[str, Difference], verdict: str
) -> None:
    said = beats_untrained([KEY], {KEY: after}, {KEY: before}, differences)
    assert said.startswith(verdict)
    assert "cannot choose" not in said


@pytest.mark.parametrize(
    ("before", "differences"), [(1.0, difference((0.0, 0.0))), (0.5, difference((0.0, 0.0), num_queries=1))]
)
def test_a_score_that_cannot_choose_is_named(before: float, differences: dict[str, Difference]) -> None:
    assert "cannot choose a checkpoint" in beats_untrained([KEY], {KEY: 1.0}, {KEY: before}, differences)


def test_a_run_ends_with_its_paired_test(tmp_path: Path, tiny_path: Path) -> None:
    """The held-out score is compared by query, and one that cannot choose is named in the last lines."""
    pairs = "question,answer\n" + "".join(
        f"{w} {i},{w} {i} it is\n" for w in ("cat", "dog") for i in range(8)
    )
    options = ("+experiment=own", "device=cpu", "data.train=train.csv", "data.val=[val.csv]", "run_dir=out")
    one = Mistake(
        "one",
        (*options, "trainer.max_epochs=1", "eval.per_query=true"),
        ["one query", f"{KEY} ", "this score cannot choose a checkpoint"],
        {"train.csv": pairs, "val.csv": "question,answer,negative\nwho is it,who it is,nothing\n"},
        "train",
        0,
    )
    done = run_mistake(one, tmp_path, tiny_path)
    assert "not tested" not in done.stdout
