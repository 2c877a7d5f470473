"""Tasks of mteb by name: their scores are those of the same data as files, and a slip is told first."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict

from idiomtune.benchmarks import Benchmark, build_benchmarks, requests_of
from idiomtune.benchmarks.own.collections import read_collection
from idiomtune.benchmarks.own.pairs import OwnPairBenchmark, read_pairs
from idiomtune.benchmarks.own.retrieval import OwnRetrievalBenchmark
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import EvaluateSettings, TrainSettings, check
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import DataMissingError, UserError
from idiomtune.reports.frames import group_runs
from idiomtune.reports.runs import read_runs
from idiomtune.reports.score_tables import paper_tables
from tests.own_data import write_collection, write_lines
from tests.programs import ROOT
from tests.tiny_runs import composed, train

if TYPE_CHECKING:  # mteb takes seconds to import, which the processes without these tests are spared
    from idiomtune.benchmarks.mteb.scoring import MtebBenchmark

WORDS = ["cat", "rate", "bag", "secret", "ship", "ice", "joke", "wedding", "rain", "tape"]
STS = [
    {"sentence1": f"The {a} was here.", "sentence2": f"A {b} and a {a} came.", "score": float(i * j % 5)}
    for i, a in enumerate(WORDS)
    for j, b in enumerate(WORDS[:4])
]
DOCUMENTS = [
    {"_id": f"d{i}", "title": a.title() * (i % 2), "text": f"The {a} was here."} for i, a in enumerate(WORDS)
]
QUERIES = [{"_id": f"q{i}", "text": f"Where is the {a}?"} for i, a in enumerate(WORDS)]
RELEVANT = {f"q{i}": {f"d{i}": 2, f"d{(i + 3) % 10}": 1} for i in range(8)}

Local = Callable[[str, Any], None]


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Local:
    """Gives a task of mteb other data, which need no network."""
    import mteb

    def give(name: str, dataset: Any) -> None:
        def load_data(self: Any, *_: Any, **__: Any) -> None:
            self.dataset, self.data_loaded = dataset, True

        monkeypatch.setattr(type(mteb.get_task(name)), "load_data", load_data)

    return give


def sts(rows: list[dict[str, Any]] = STS) -> DatasetDict:
    return DatasetDict(test=Dataset.from_list(rows))


def retrieval() -> dict[str, Any]:
    as_mteb_has_it = [[{"id": row["_id"], **row} for row in rows] for rows in (DOCUMENTS, QUERIES)]
    corpus, queries = (Dataset.from_list(rows).remove_columns("_id") for rows in as_mteb_has_it)
    split = {"corpus": corpus, "queries": queries, "relevant_docs": RELEVANT, "top_ranked": None}
    return {"default": {"test": split}}


def benchmark(*options: str) -> MtebBenchmark:
    from idiomtune.benchmarks.mteb.scoring import MtebBenchmark

    settings = check(EvaluateSettings, composed("evaluate", "benchmark=[mteb]", *options))
    ((built,), missing) = build_benchmarks(settings)
    assert not missing
    assert isinstance(built, MtebBenchmark)
    return built


def test_scores_are_those_of_the_same_data_as_files(tmp_path: Path, tiny: Encoder, local: Local) -> None:
    """And equal texts are embedded once, whoever asks for them."""
    local("STS12", sts())
    local("SciFact", retrieval())
    pairs = read_pairs(write_lines(tmp_path / "pairs.jsonl", STS))
    judged = [f"{q}\t{d}\t{grade}" for q, grades in RELEVANT.items() for d, grade in grades.items()]
    folder = write_collection(
        tmp_path / "log",
        corpus="".join(json.dumps(row) + "\n" for row in DOCUMENTS),
        queries="".join(json.dumps(row) + "\n" for row in QUERIES),
        qrels="\n".join(["query-id\tcorpus-id\tscore", *judged]),
    )
    ours: list[Benchmark] = [
        OwnPairBenchmark("own_sts", {"pairs": pairs}),
        OwnRetrievalBenchmark([read_collection("log", folder)]),
    ]
    alone = Suite(ours).run(tiny)
    both = Suite([*ours, benchmark("benchmark.mteb.tasks=[STS12,SciFact]")]).run(tiny)
    assert both.num_texts == alone.num_texts
    spearman, ndcg = (both.scores[key] for key in ("own_sts/pairs/spearman", "own_retrieval/log/ndcg@10"))
    assert 0.1 < ndcg < 0.99
    mtebs = {key: value for key, value in both.scores.items() if key not in alone.scores}
    expected = {"mteb/STS12/cosine_spearman": spearman, "mteb/SciFact/ndcg_at_10": ndcg}
    assert mtebs == pytest.approx(expected, abs=6e-6)  # mteb rounds nDCG to five digits
    assert any("STS12" in note and version("mteb") in note for note in both.notes)


def test_several_languages(tiny: Encoder, local: Local) -> None:
    """The task's score is their mean; what can be monitored is what is scored."""
    from idiomtune.benchmarks.mteb.scoring import MtebBenchmark, tasks_named

    local("STS22.v2", {"en": sts(STS[:20]), "de": sts(STS[20:]), "de-en": sts(STS[10:30])})
    options = ("benchmark=[mteb]", "benchmark.mteb.tasks=[STS22.v2]", "benchmark.mteb.languages=[deu]")
    built = check(EvaluateSettings, composed("evaluate", *options))
    expected = [f"mteb/STS22.v2/{part}cosine_spearman" for part in ("", "de/", "de-en/", "de-fr/", "de-pl/")]
    assert built.score_keys(["mteb"]) == expected
    tasks = tasks_named(["STS22.v2"], ["deu"])
    tasks[0].hf_subsets = ["de", "de-en"]
    tasks[0].load_data()
    scores = Suite([MtebBenchmark(tasks)]).run(tiny).scores
    assert list(scores) == expected[:3]
    assert scores[expected[0]] == pytest.approx((scores[expected[1]] + scores[expected[2]]) / 2)


def test_what_is_drawn_is_the_same_each_time(tiny: Encoder, local: Local) -> None:
    """Clustering draws samples; generators of the run are as they were."""
    pairs = [(i, f"The {a} {b} came.") for i in range(10) for a in WORDS for b in WORDS]
    rows = [{"sentences": text, "labels": (len(text) + i) % 3} for i, text in pairs]
    local("TwentyNewsgroupsClustering.v2", DatasetDict(test=Dataset.from_list(rows)))
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    before = generators()
    clustering = benchmark("benchmark.mteb.tasks=TwentyNewsgroupsClustering.v2")
    assert 20 < len(requests_of(clustering)) <= 40  # of a thousand it takes 4%
    suite = Suite([clustering])
    first, second = (suite.run(tiny).scores for _ in range(2))
    assert first == second
    assert 0 < first["mteb/TwentyNewsgroupsClustering.v2/v_measure"] < 1
    assert generators() == before


def test_cuda_is_not_started_and_keeps_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: pytest.fail("CUDA was started"))
    torch.manual_seed(7)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    config = composed("evaluate", "benchmark=[mteb]", "benchmark.mteb.tasks=[STS12]")
    check(EvaluateSettings, config)
    assert seeds[-1] == 7


def generators() -> tuple[Any, ...]:
    numpys: Any = np.random.get_state()
    return random.getstate(), numpys[1].tolist(), torch.get_rng_state().tolist()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), ("benchmark.mteb", "tasks=[")),
        (("benchmark.mteb.tasks=[sts21]",), ("'sts21'", "STS22", "STS16")),
        (("benchmark.mteb.tasks=[STS12]", "benchmark.mteb.languages=[deu]"), ("STS12", "deu")),
        (("benchmark.mteb.tasks=[CIFAR10]",), ("CIFAR10", "image")),
        (("benchmark.mteb.tasks=[STS12]", "split=STS12"), ("split=STS12", "mteb")),
        (
            ("benchmark.mteb.tasks=[CQADupstackRetrieval]", "benchmark.mteb.splits=[validation]"),
            ("CQADupstackRetrieval", "validation", "only on test"),
        ),
    ],
)
def test_a_slip_is_told_with_the_options(options: tuple[str, ...], named: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        check(TrainSettings, composed("config", "benchmark=[mteb]", *options))
    assert all(part in str(caught.value) for part in named), caught.value


def test_without_mteb_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "idiomtune.benchmarks.mteb.scoring", None)
    with pytest.raises(UserError, match=r"benchmark\.mteb.*pip install 'idiomtune\[mteb\]'"):
        check(EvaluateSettings, composed("evaluate", "benchmark=[mteb]", "benchmark.mteb.tasks=[STS12]"))


@pytest.mark.parametrize(
    ("error", "is_missing"),
    [
        (ConnectionError("Couldn't reach\nthe Hub"), True),
        (ValueError("Couldn't find cache for stsbenchmark for config 'en'"), True),
        (ValueError("Split dev not found in ['train']"), False),
    ],
)
def test_data_that_cannot_be_had_are_told(
    error: Exception, is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a model is loaded; only data that is not there can be left out."""
    import mteb

    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(mteb.get_task("STS12")), "load_data", fails)
    settings = check(
        EvaluateSettings, composed("evaluate", "benchmark=[mteb]", "benchmark.mteb.tasks=[STS12]")
    )
    with pytest.raises(UserError) as caught:
        build_benchmarks(settings, ["mteb"])
    assert isinstance(caught.value, DataMissingError) == is_missing
    reason = " ".join(str(error).split())
    assert all(part in str(caught.value) for part in ("data of STS12", "mteb/sts12-sts", reason))
    assert ("without STS12" in str(caught.value)) == is_missing


def test_a_split_that_the_data_do_not_have_is_told(local: Local) -> None:
    local("STS12", DatasetDict(train=Dataset.from_list(STS), test=Dataset.from_list(STS)))
    with pytest.raises(UserError, match=r"STS12 .* on dev.* have train, test.*benchmark\.mteb\.splits"):
        benchmark("benchmark.mteb.tasks=STS12", "benchmark.mteb.splits=[dev]")


def test_another_split_of_retrieval_is_not_taken_for_the_one_asked_for(
    tiny: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mteb itself takes the only one there is."""
    judged = [
        {"query-id": q, "corpus-id": d, "score": n} for q, of in RELEVANT.items() for d, n in of.items()
    ]
    rows = {"default": judged, "corpus": DOCUMENTS, "queries": QUERIES}
    splits = {"default": ["test"], "corpus": ["corpus"], "queries": ["queries"]}
    for module in ("mteb.abstasks.retrieval_dataset_loaders", "idiomtune.benchmarks.mteb.scoring"):
        monkeypatch.setattr(f"{module}.get_dataset_config_names", lambda *_, **__: list(rows))
        monkeypatch.setattr(
            f"{module}.get_dataset_split_names", lambda _, config_name, **__: splits[config_name]
        )
    monkeypatch.setattr(
        "mteb.abstasks.retrieval_dataset_loaders.load_dataset",
        lambda _, config, **__: Dataset.from_list(rows[config]),
    )
    with pytest.raises(UserError, match=r"SciFact .* on dev.* have test"):
        benchmark("benchmark.mteb.tasks=SciFact", "benchmark.mteb.splits=[dev]")
    splits["default"] = ["dev"]
    asked_for = benchmark("benchmark.mteb.tasks=SciFact", "benchmark.mteb.splits=[dev]")
    (note,) = Suite([asked_for]).run(tiny).notes
    assert "on dev" in note


def test_mteb_is_imported_where_it_is_chosen_alone() -> None:
    code = (
        "import sys; from idiomtune.config import EvaluateSettings, check; "
        "from idiomtune.config.compose import compose_config; "
        "check(EvaluateSettings, compose_config('evaluate')); sys.exit('mteb' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_a_run_is_monitored_and_reported(tmp_path: Path, options: list[str], local: Local) -> None:
    local("STS12", sts())
    kept = [option for option in options if not option.startswith(("benchmark", "trainer.m"))]
    key = "mteb/STS12/cosine_spearman"
    best = train(
        tmp_path / "run",
        [
            *(*kept, "benchmark=[mteb]", "benchmark.mteb.tasks=[STS12]"),
            *(f"trainer.monitor={key}", "trainer.max_steps=2", "eval.every=1"),
        ],
    )
    card = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))
    assert card["scores"] == {key: best}
    assert card["baseline"].keys() == {key}
    (table,) = paper_tables(group_runs(read_runs([tmp_path / "run"])))
    assert (table.title, table.columns[1:]) == ("mteb, STS12, in percent", ["cosine_spearman"])
    assert key in (tmp_path / "run" / "best" / "README.md").read_text(encoding="utf-8")
