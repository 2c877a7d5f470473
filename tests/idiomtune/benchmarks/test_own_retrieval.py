"""The user's own collections: layouts, spans, scores by hand and others', IdioLink as BEIR has it."""

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import pytrec_eval
import torch

from idiomtune import Encoder
from idiomtune.benchmarks import retrieval
from idiomtune.benchmarks.suite import Suite
from idiomtune.benchmarks.user import RETRIEVAL_METRICS
from idiomtune.benchmarks.user.collections import Collection, UserQuery, read_collection
from idiomtune.benchmarks.user.retrieval import UserRetrievalBenchmark
from idiomtune.data.idiolink import load_split
from idiomtune.errors import UserError
from idiomtune.requests import EmbeddingRequest
from tests.benchmarks import idiolink, in_turn
from tests.own_data import write, write_beir, write_collection

DOCUMENTS = ["Cats A cat sat.", "Rates rose.", "He let the cat out of the bag."]


def relevance(collection: Collection) -> dict[str, dict[str, float]]:
    return {
        query.id: {collection.ids[d]: grade for d, grade in query.grades.items()}
        for query in collection.queries
    }


def trec(folder: Path) -> None:
    """Without headers, with a quotation mark that nothing closes, and a carriage return within a text."""
    corpus = 'd1\tCats A cat sat.\nd2\tRates rose.\nd3\tHe let the "cat\rout of the bag.\n'
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "collection.tsv").write_bytes(corpus.encode())
    write(folder / "queries.tsv", "q1\ta sitting cat\nq2\ta secret is told\n")
    write(folder / "qrels.txt", "q1 0 d1 2\nq1 0 d3 1\nq1 0 d2 0\nq2 0 d3 1\n")


def mteb(folder: Path) -> None:
    """In shards, with numbers for ids."""
    corpus = [{"_id": n, "title": "", "text": text} for n, text in enumerate(DOCUMENTS, 1)]
    queries = [{"_id": 1, "text": "a sitting cat"}, {"_id": 2, "text": "a secret is told"}]
    judged = [(1, 1, 2), (1, 3, 1), (2, 3, 1)]
    qrels = [{"query-id": q, "corpus-id": d, "score": score} for q, d, score in judged]
    shards = {
        "corpus/test-00000-of-00002": corpus[:2],
        "corpus/test-00001-of-00002": corpus[2:],
        "queries/test-00000-of-00001": queries,
        "default/dev-00000-of-00001": qrels[:1],
        "default/test-00000-of-00001": qrels,
    }
    write(folder / "default" / ".gitattributes", "*.parquet filter=lfs")
    for name, rows in shards.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{name}.parquet")


@pytest.mark.parametrize("layout", [write_collection, trec, mteb])
def test_every_layout_gives_the_same(tmp_path: Path, layout: Any) -> None:
    layout(tmp_path)
    found = read_collection("mine", tmp_path)
    assert [document.text.replace('"', "").replace("\r", " ") for document in found.documents] == DOCUMENTS
    named = {
        q.lstrip("q"): {d.lstrip("d"): g for d, g in grades.items()} for q, grades in relevance(found).items()
    }
    assert named == {"1": {"1": 2, "3": 1}, "2": {"3": 1}}
    assert found.modes == ["sentence"]
    assert all(path.is_file() for path in found.files)


def test_which_judgements_is_chosen(tmp_path: Path) -> None:
    folder = write_collection(tmp_path)
    write(folder / "qrels" / "dev.tsv", "q1\td2\n")  # without a header or grades: whatever was clicked
    assert relevance(read_collection("mine", folder))["q2"] == {"d3": 1}
    assert relevance(read_collection("mine", folder, "dev")) == {"q1": {"d2": 1}}
    assert read_collection("mine", folder, "dev").num_left_out == 1
    with pytest.raises(UserError, match="dev, test, and none for train"):
        read_collection("mine", folder, "train")


def test_excluded_documents_are_not_searched(tmp_path: Path) -> None:
    """As in BRIGHT; a query without any lists N/A there."""
    queries = '_id,text,excluded_ids\nq1,cats,"[""d1"", ""N/A""]"\nq2,rates,N/A\n'
    folder = write_collection(tmp_path, queries=None, qrels="q1\td3\t1\nq2\td2\t1\n")
    write(folder / "queries.csv", queries)
    collection = read_collection("mine", folder)
    assert [list(query.left_out) for query in collection.queries] == [[0], []]
    vectors = torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0.9, 0.1, 0], [1.0, 0, 0], [0, 1.0, 0]])
    result = UserRetrievalBenchmark([collection]).score(in_turn(vectors))
    assert result.by_key["own_retrieval/mine/mrr@10"] == 1
    assert "d1" not in [top["id"] for top in result.per_query[0]["top"]]
    write(folder / "queries.csv", queries.replace("d1", "d9"))
    with pytest.raises(UserError, match="'excluded_ids': there is no document 'd9'"):
        read_collection("mine", folder)
    assert not any(q.left_out for q in read_collection("mine", folder, missing="ignore").queries)


def test_what_a_layout_has_and_is_not_read_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Columns, a second column for a role, other splits and files; not a README. And which split is read."""
    caplog.set_level("INFO")
    corpus = '{"_id": "d%s", "text": "%s", "body": "x", "metadata": {}}\n'
    texts = ["A cat", "A  cat", "A dog"]
    folder = write_collection(
        tmp_path,
        corpus="".join(corpus % (n, text) for n, text in enumerate(texts)),
        queries='{"_id": "q1", "query": "A cat", "gold_ids": ["d1"]}\n',
        qrels="q1\td0\t1\nq1\td0\t1\nq1\td2\t2\n",
    )
    for name in (
        "qrels/dev.tsv",
        "top_ranked.jsonl",
        "instruction/test.jsonl",
        "README.md",
        ".gitattributes",
    ):
        write(folder / name, "q1\td1\t1\n")
    assert [q.grades for q in read_collection("mine", folder).queries] == [{0: 1, 2: 2}]
    (documents, queries, read, files, warning) = (record.getMessage() for record in caplog.records)
    assert documents.endswith("corpus.jsonl: not read: body, metadata")
    assert queries.endswith("queries.jsonl: not read: gold_ids")
    assert "qrels/test.tsv" in read
    assert "1 of them copies" in read
    assert files.endswith("not read: instruction, qrels/dev.tsv, top_ranked.jsonl")
    assert "exclude_self=true" in warning
    (query,) = read_collection("mine", folder, exclude_self=True).queries
    assert (query.grades, query.left_out) == ({2: 2}, [0, 1])
    write(folder / "qrels/test.tsv", "q1\td0\t1\nq1\td0\t2\n")
    with pytest.raises(UserError, match="'document': 'd0' has the grades 1 and 2"):
        read_collection("mine", folder)


def test_scores_by_hand(tmp_path: Path) -> None:
    """q1 finds d3, d2, d1; q2, with a judgement that says irrelevant, is left out."""
    folder = write_collection(tmp_path, qrels="q1\td1\t2\nq1\td3\t1\nq2\td2\t0\n")
    benchmark = UserRetrievalBenchmark([read_collection("mine", folder)])
    assert [request.role for request in benchmark.requests] == ["document"] * 3 + ["query"]
    documents = torch.tensor([[0.1, 1.0], [0.5, 0.5], [3.0, 0.0]])
    result = benchmark.score(in_turn(torch.cat([documents, torch.tensor([[1.0, 0.0]])])))
    scores = {key.removeprefix("own_retrieval/mine/"): value for key, value in result.by_key.items()}
    assert list(scores) == list(RETRIEVAL_METRICS)
    best = 2 + 1 / 1.584962500721156
    expected = {
        **{"ndcg@1": 0.5, "ndcg@10": (1 + 2 / 2) / best, "map@100": (1 + 2 / 3) / 2},
        **{"recall@1": 0.5, "recall@5": 1, "precision@1": 1, "mrr@10": 1},
    }
    assert {metric: scores[metric] for metric in expected} == pytest.approx(expected)
    (record,) = result.per_query
    assert [(top["id"], top["grade"]) for top in record["top"]] == [("d3", 1), ("d2", 0), ("d1", 2)]
    assert record["rank"] == 1
    assert "1 of 2 queries" in result.notes[0]


def test_equal_to_pytrec_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    """150 documents, a few queries at a time; no query finds itself."""
    monkeypatch.setattr(retrieval, "_MAX_SIMILARITIES", 1000)
    g = torch.Generator().manual_seed(0)
    documents, queries = torch.randn(150, 8, generator=g), torch.randn(20, 8, generator=g)
    ids = [f"d{n:03d}" for n in range(150)]
    grades = torch.randint(0, 4, (20, 150), generator=g) * (torch.rand(20, 150, generator=g) < 0.2)
    grades[:, 100] = 1
    asked = [
        UserQuery(
            ids[n] if n < 10 else f"q{n}",
            EmbeddingRequest("x", role="query"),
            {d: float(grade) for d, grade in enumerate(row) if grade and (d != n or n >= 10)},
            "all",
            left_out=[n] if n < 10 else [],
        )
        for n, row in enumerate(grades.tolist())
    ]
    collection = Collection("mine", ids, list(map(EmbeddingRequest, ids)), asked, 0, [])
    result = UserRetrievalBenchmark([collection]).score(in_turn(torch.cat([documents, queries])))
    cosines = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=2).tolist()
    run = {
        query.id: {id_: value for id_, value in zip(ids, row, strict=True) if id_ != query.id}
        for query, row in zip(asked, cosines, strict=True)
    }
    qrel = {
        query.id: {ids[d]: int(grade) for d, grade in query.grades.items() if ids[d] != query.id}
        for query in asked
    }
    measures = {"ndcg_cut.1,5,10,100", "recall.1,5,10,100", "map_cut.100", "P.1", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(qrel, measures).evaluate(run)
    names = {"map@100": "map_cut_100", "precision@1": "P_1", "mrr@10": "recip_rank"}
    for record in result.per_query:
        for metric in RETRIEVAL_METRICS:
            name = names.get(metric, metric.replace("ndcg@", "ndcg_cut_").replace("@", "_"))
            expected = theirs[record["id"]][name]
            if metric == "mrr@10" and expected < 0.1:  # nothing relevant among the first ten
                expected = 0
            assert record[metric] == pytest.approx(expected, abs=1e-6), metric
    assert 0 in [record["mrr@10"] for record in result.per_query]


def test_spans(tmp_path: Path) -> None:
    """Of queries, by their text or offsets; of documents behind their titles."""
    corpus = (
        '{"_id": "d1", "title": "Cats", "text": "A cat sat.", "span": "cat"}\n'
        '{"_id": "d3", "text": "He told."}\n{"_id": "d2", "title": "Rates", "text": ""}\n'
    )
    queries = (
        '{"_id": "q1", "text": "a cat", "span_start": 2, "span_end": 5, "group": "g"}\n'
        '{"_id": "q2", "text": "told", "instruction": "Find it"}\n'
    )
    folder = write_collection(tmp_path, corpus=corpus, queries=queries)
    collection = read_collection("mine", folder, instruction="Search")
    documents = [
        EmbeddingRequest("Cats A cat sat.", (7, 10)),
        EmbeddingRequest("He told."),
        EmbeddingRequest("Rates"),
    ]
    assert list(collection.documents) == documents
    about = [(q.text.span, q.text.instruction, q.group) for q in collection.queries]
    assert about == [((2, 5), "Search", "g"), (None, "Find it", None)]
    benchmark = UserRetrievalBenchmark([collection])
    pooled = [request.pooling for request in benchmark.requests]
    assert pooled == ["sentence"] * 5 + ["span", "sentence", "sentence"] + ["span", "sentence"]
    result = benchmark.score(in_turn(torch.eye(10)))
    assert {"own_retrieval/mine/ndcg@10", "own_retrieval/mine/span/ndcg@10"} <= result.by_key.keys()
    assert any("1 of 2 texts have no span" in note for note in result.notes)


def test_idiolinks_sample_as_beirs_has_its_scores(tmp_path: Path, sample_root: Path, tiny: Encoder) -> None:
    split = load_split(sample_root, "val")
    collection = read_collection("mine", write_beir(tmp_path, split))
    benchmarks = idiolink([split], "sentence", "span"), UserRetrievalBenchmark([collection])
    scores = Suite(benchmarks).run(tiny).scores
    for mode, between in (("sentence", ""), ("span", "span/")):
        ours = scores[f"own_retrieval/mine/{between}ndcg@10"]
        assert ours == pytest.approx(scores[f"idiolink/val/{mode}/ndcg@10"], abs=1e-6)
