"""Corpora embedded into files: the scores of memory, going on after a cut, other models refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune.benchmarks.own.collections import read_collection
from idiomtune.benchmarks.own.retrieval import OwnRetrievalBenchmark
from idiomtune.benchmarks.suite import Scorecard, Suite
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.io.vectors import VectorStore
from tests.own_data import write_collection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three documents, one with a span, and two queries."""
    corpus = (
        '{"_id": "d1", "title": "Cats", "text": "A cat sat.", "span": "cat"}\n'
        '{"_id": "d2", "text": "Rates rose."}\n{"_id": "d3", "text": "He let the cat out of the bag."}\n'
    )
    queries = '{"_id": "d3", "text": "it is told", "span": "told"}\n{"_id": "q1", "text": "a sitting cat"}\n'
    return write_collection(
        tmp_path / "mine", corpus=corpus, queries=queries, qrels="d3\td1\t1\nq1\td1\t2\nq1\td3\t1\n"
    )


def scored(folder: Path, encoder: Encoder, store: Path | None = None, **options: Any) -> Scorecard:
    collection = read_collection("mine", folder, exclude_self=True, streamed=store is not None)
    benchmark = OwnRetrievalBenchmark([collection], store=store, shard_size=2)
    return Suite([benchmark], dimensions=[8], **options).run(encoder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("[!.]*") if p.is_file()}


def test_scores_are_those_of_memory(folder: Path, tiny: Encoder, tmp_path: Path) -> None:
    kept = scored(folder, tiny, tmp_path / "store", keep_stores=True)
    here = scored(folder, tiny)
    assert {"own_retrieval/mine/span/ndcg@10", "own_retrieval/mine/ndcg@10/dim=8"} <= here.scores.keys()
    assert kept.scores == pytest.approx(here.scores, abs=1e-6)
    for result, has_texts in ((here, True), (kept, False)):  # a store holds no texts to show
        found = [one for record in result.per_query["own_retrieval"] for one in record["top"]]
        assert {bool(one.pop("text")) for one in found} == {has_texts}
    assert kept.per_query == here.per_query
    assert sorted(contents(tmp_path / "store")) == [
        f"mine/{mode}/{name}"
        for mode in ("sentence", "span")
        for name in ("00000.npy", "00001.npy", "store.json")
    ]
    embeddings = torch.cat(list(VectorStore(tmp_path / "store" / "mine" / "sentence", 3, tiny.dimension, 2)))
    texts = ["Cats A cat sat.", "Rates rose.", "He let the cat out of the bag."]
    torch.testing.assert_close(embeddings, tiny.encode(texts))


def test_embedding_goes_on_where_it_was_cut_short(
    folder: Path, tiny: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, numbers = VectorStore.write, []

    def watched(store: VectorStore, number: int, rows: Any) -> None:
        numbers.append(number)
        if numbers == [0, 1]:
            raise KeyboardInterrupt
        write(store, number, rows)

    scored(folder, tiny, tmp_path / "whole", keep_stores=True)
    monkeypatch.setattr(VectorStore, "write", watched)
    with pytest.raises(KeyboardInterrupt):
        scored(folder, tiny, tmp_path / "cut", keep_stores=True)
    assert "mine/sentence/00001.npy" not in contents(tmp_path / "cut")
    scored(folder, tiny, tmp_path / "cut", keep_stores=True)
    assert numbers == [0, 1, 1, 0, 1]  # by sentence, again, and by span
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    scored(folder, tiny, tmp_path / "cut", keep_stores=True)
    assert len(numbers) == 5


def test_other_embeddings_are_refused(folder: Path, tiny: Encoder, tmp_path: Path) -> None:
    """Of another model, of other documents or spans, and in a lower precision."""
    store = tmp_path / "store"
    scored(folder, tiny, store, keep_stores=True)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UserError, match="differ in precision"):
        scored(folder, tiny, store, keep_stores=True)
    corpus = (folder / "corpus.jsonl").read_text()
    for old, new in (("rose", "fell"), ('"span": "cat"', '"span": "sat"')):
        (folder / "corpus.jsonl").write_text(corpus.replace(old, new))
        with pytest.raises(UserError, match="differ in documents"):
            scored(folder, tiny, store, keep_stores=True)
    (folder / "corpus.jsonl").write_text(corpus)
    with torch.no_grad():
        next(tiny.parameters())[5, 3] += 1
    with pytest.raises(UserError, match=r"differ in model .* benchmark\.own_retrieval\.store="):
        scored(folder, tiny, store, keep_stores=True)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Rates rose.", "Rates fell.", "document 'd2' changed"),
        (
            '{"_id": "d3", "text": "He let the cat out of the bag."}\n',
            "",
            "the last 1 documents no longer exist",
        ),
        ("bag.", 'bag."}\n{"_id": "d4", "text": "One more.', "document 'd4' changed"),
    ],
)
def test_documents_that_change_while_they_are_embedded(
    folder: Path, tiny: Encoder, tmp_path: Path, old: str, new: str, says: str
) -> None:
    """No vector of another text is ever written: the corpus as it was finds what is right."""
    whole = scored(folder, tiny, tmp_path / "whole", keep_stores=True)
    collection = read_collection("mine", folder, exclude_self=True, streamed=True)
    corpus = (folder / "corpus.jsonl").read_text()
    assert old in corpus
    (folder / "corpus.jsonl").write_text(corpus.replace(old, new))
    with pytest.raises(UserError, match=f"{says}.*: start again"):
        Suite(
            [OwnRetrievalBenchmark([collection], store=tmp_path / "store", shard_size=2)],
            keep_stores=True,
        ).run(tiny)
    (folder / "corpus.jsonl").write_text(corpus)
    assert scored(folder, tiny, tmp_path / "store", keep_stores=True).scores == whole.scores
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_a_checkpoints_embeddings_are_not_kept(folder: Path, tiny: Encoder, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = scored(folder, tiny, store).scores
    with torch.no_grad():
        next(tiny.parameters())[:] *= -1
    assert scored(folder, tiny, store).scores != first
    with torch.no_grad():
        next(tiny.parameters())[:] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        scored(folder, tiny, store)
    assert contents(store) == {}
