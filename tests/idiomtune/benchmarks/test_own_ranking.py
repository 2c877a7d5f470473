"""The user's own rankings: four forms of a file, and scores by hand and against pytrec_eval."""

from pathlib import Path
from typing import Any

import pytest
import pytrec_eval
import torch
from scipy.stats import spearmanr

from idiomtune.benchmarks import Result
from idiomtune.benchmarks.user.collections import UserQuery
from idiomtune.benchmarks.user.ranking import UserRankingBenchmark, add_rankings, read_ranking
from idiomtune.errors import UserError
from idiomtune.requests import Request
from tests.benchmarks import in_turn
from tests.own_data import write, write_lines

ASKED = Request("q", role="query")


def read(folder: Path, *rows: dict[str, Any]) -> UserRankingBenchmark:
    return UserRankingBenchmark({"mine": read_ranking(write_lines(folder / "mine.jsonl", rows))})


def test_forms(tmp_path: Path) -> None:
    """Candidates are sorted, so that their order in the file says nothing."""
    row = {"id": 7, "query": "q", "candidates": ["c", "a", "b"], "grades": [0, 2, 1]}
    graded = write_lines(tmp_path / "graded.jsonl", [row])
    pairs = write(tmp_path / "pairs.csv", "query_id,query,candidate,grade\n7,q,c,0\n7,q,a,2\n7,q,b,1\n")
    lists = '7,q,"[""c"", ""a"", ""b""]","[0, 2, 1]"'
    table = write(tmp_path / "lists.csv", f"id,query,candidates,grades\n{lists}\n")
    expected = UserQuery("7", ASKED, {"a": 2.0, "b": 1.0, "c": 0.0})
    for path in (graded, pairs, table):
        assert read_ranking(path) == [expected], path
        assert list(read_ranking(path)[0].grades) == ["a", "b", "c"], path
    ordered = write_lines(tmp_path / "ordered.jsonl", [{"query": "q", "candidates": ["a", "b", "c"]}])
    (query,) = read_ranking(ordered)
    assert (query.grades, query.relevant_above) == ({"a": 2, "b": 1, "c": 0}, 1)
    rows = [{"query": "q", "pos": ["b"], "neg": ["c", "a"]}, {"query": "alone", "pos": ["x"], "neg": []}]
    queries = read_ranking(write_lines(tmp_path / "positives.jsonl", rows))
    assert queries[0].grades == {"a": 0, "b": 1, "c": 0}
    result = UserRankingBenchmark({"mine": queries}).score(in_turn(torch.eye(4)))
    assert [record["query"] for record in result.per_query] == ["q"]
    assert "1 of 2 queries" in result.notes[0]


def test_copies_of_candidates_and_of_the_query_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = "".join(f"7,a cat,{text},{grade},{n}\n" for text, grade in (("a  cat", 1), ("b", 0)) for n in "AB")
    header = "query_id,query,candidate,grade,annotator\n"
    (query,) = read_ranking(write(tmp_path / "mine.csv", header + rows))
    assert query.grades == {"a  cat": 1, "b": 0}
    columns, own = (record.getMessage() for record in caplog.records)
    assert columns.endswith("mine.csv: not read: annotator")
    assert "mine.csv: 1 of 1 queries" in own
    with pytest.raises(UserError, match="'candidate': 'b' has the grades 0 and 2"):
        read_ranking(write(tmp_path / "mine.csv", header + rows + "7,a cat,b,2,C\n"))


def test_scores_by_hand(tmp_path: Path) -> None:
    """Two queries of three and two candidates; the second, by its span, is right."""
    benchmark = read(
        tmp_path,
        {"query": "one", "candidates": ["a", "b", "c"], "grades": [2, 0, 1], "group": "g"},
        {"query": "two words", "candidates": ["d", "e"], "grades": [1, 0], "span": "words"},
    )
    assert benchmark.requests[-1] == Request("two words", (4, 9), "query", pooling="span")
    first = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.9, 0.1]])  # b, c, a
    second = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    asked = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    result = benchmark.score(in_turn(torch.cat([first, second, asked])))
    log3 = 1.584962500721156
    ndcg = (1 / log3 + 2 / 2) / (2 + 1 / log3)
    expected = {
        **{"ndcg@10": (ndcg + 1 / log3) / 2, "mrr": 0.5, "map": ((1 / 2 + 2 / 3) / 2 + 1 / 2) / 2},
        **{"r_precision": 0.25, "spearman": -1, "span/ndcg@10": (ndcg + 1) / 2},  # a, c, b by grade
    }
    found = {metric: result.by_key[f"own_ranking/mine/{metric}"] for metric in expected}
    assert found == pytest.approx(expected)
    records = [(r["name"], r["mode"], r["group"], r["rank"]) for r in result.per_query]
    assert records == [  # the rank of the first relevant one
        *(("mine", "sentence", "g", 2), ("mine", "sentence", None, 2)),
        *(("mine", "span", "g", 2), ("mine", "span", None, 1)),
    ]
    assert result.per_query[0]["top"][0] == {"text": "b", "grade": 0.0}


def test_queries_without_an_order_to_find(tmp_path: Path) -> None:
    """All candidates with one grade: without a relevant one left out, otherwise without a correlation."""
    grades = {"none": [0, 0], "all": [1, 1], "one": [1, 0]}
    rows = [{"query": query, "candidates": ["a", "b"], "grades": of} for query, of in grades.items()]
    benchmark = read(tmp_path, *rows)
    a, b = [1.0, 0.0], [0.0, 1.0]
    result = benchmark.score(in_turn([a, b, a, b, a, a]))
    assert [record["query"] for record in result.per_query] == ["all", "one"]
    assert [record["spearman"] for record in result.per_query] == [None, pytest.approx(1)]
    assert result.by_key["own_ranking/mine/spearman"] == pytest.approx(1)
    assert any("1 of 3 queries" in note for note in result.notes)


def test_a_document_without_a_grade_has_the_grade_0_in_records() -> None:
    result, queries = Result(), [UserQuery("7", ASKED, {"judged": 1.0})]
    place = ("own_ranking", "mine", "sentence")
    add_rankings(result, place, ["mrr"], queries, [["other", "judged"]], lambda text: {"text": text})  # type: ignore[arg-type]
    assert result.per_query[0]["top"] == [{"text": "other", "grade": 0.0}, {"text": "judged", "grade": 1.0}]
    assert (result.per_query[0]["rank"], result.per_query[0]["mrr"]) == (2, 0.5)


def test_in_gold_order_the_first_is_relevant(tmp_path: Path) -> None:
    benchmark = read(tmp_path, {"query": "q", "candidates": ["z", "y", "x"]})
    # x, y, z: the second best first, then the best
    result = benchmark.score(in_turn([[0.0, 1.0], [1.0, 0.0], [1.0, 0.5], [1.0, 0.0]]))
    assert result.by_key["own_ranking/mine/map"] == result.by_key["own_ranking/mine/mrr"] == 0.5
    assert result.by_key["own_ranking/mine/r_precision"] == 0


@pytest.mark.parametrize("way", [1, -1])
def test_neither_gold_order_nor_the_alphabet_shows_through_ties(tmp_path: Path, way: int) -> None:
    """By chance the reciprocal rank of one of three is (1 + 1/2 + 1/3) / 3."""
    forms = ["it is {}", "it is not {}", "who knows {}"][::way]
    rows = [{"query": f"q{i}", "candidates": [form.format(i) for form in forms]} for i in range(200)]
    equal = read(tmp_path, *rows).score(in_turn(torch.ones(800, 2))).by_key
    assert equal["own_ranking/mine/mrr"] == pytest.approx(11 / 18, abs=0.06)
    assert equal["own_ranking/mine/spearman"] == 0


def test_equal_to_others() -> None:
    g = torch.Generator().manual_seed(0)
    queries, parts = [], []
    for number in range(15):
        size = int(torch.randint(2, 30, (1,), generator=g))
        grades = torch.randint(0, 4, (size,), generator=g)
        grades[0] = 1
        names = tuple(f"d{n:02d}" for n in range(size))
        queries.append(
            UserQuery(str(number), ASKED, dict(zip(names, grades.double().tolist(), strict=True)), "g")
        )
        parts.append(torch.randn(size, 6, generator=g))
    asked = torch.randn(15, 6, generator=g)
    result = UserRankingBenchmark({"mine": queries}).score(in_turn(torch.cat([*parts, asked])))
    qrel, run = {}, {}
    for query, part, vector in zip(queries, parts, asked, strict=True):
        cosines = torch.nn.functional.cosine_similarity(part, vector[None]).tolist()
        qrel[query.id] = {c: int(grade) for c, grade in query.grades.items()}
        run[query.id] = dict(zip(query.grades, cosines, strict=True))
    measures = {"ndcg_cut.1,5,10", "recip_rank", "map", "Rprec"}
    theirs = pytrec_eval.RelevanceEvaluator(qrel, measures).evaluate(run)
    for record, query in zip(result.per_query, queries, strict=True):
        expected = theirs[record["id"]]
        metrics = {"mrr": "recip_rank", "map": "map", "r_precision": "Rprec"}
        metrics |= {f"ndcg@{k}": f"ndcg_cut_{k}" for k in (1, 5, 10)}
        for ours, name in metrics.items():
            assert record[ours] == pytest.approx(expected[name], abs=1e-9), name
        if len(set(query.grades.values())) > 1:
            correlation = spearmanr(list(run[query.id].values()), list(query.grades.values())).statistic
            assert record["spearman"] == pytest.approx(correlation)
