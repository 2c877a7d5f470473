"""Several processes compute what one computes, and end together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import process_jobs
from tests.launches import EVALUATION, Launches
from tests.own_data import mixture_options, write, write_collection
from tests.tiny_clip import save_tiny_clip
from tests.tiny_runs import DRAWN, WholeRun, assert_same_run, metrics, weights
from train.encoder.encoder import Encoder
from train.encoder.forward import ForwardBatch
from train.encoder.parallel import partition_by_size
from train.errors import UserError
from train.io.processes import Processes
from train.requests import Request

SHORT = "model.tokens_per_forward=256"  # several passes for each process
SHORTER = "model.tokens_per_forward=128"  # also of a few short texts


@pytest.fixture(scope="module")
def launches() -> Iterator[Launches]:
    started = Launches()
    yield started
    started.close()


def own_pairs(tiny_path: Path) -> Path:
    """A table of pairs, some of one group, with spans and weights."""
    rows = "".join(
        f"what is a number {i}?,number {i},it is {i},it is not {i + 1},g{i // 3},{1 + i % 2}\n"
        for i in range(50)
    )
    return write(tiny_path.parent / "pairs.csv", f"anchor,span,positive,negative,group,weight\n{rows}")


def experiment_options(name: str, tiny_path: Path) -> list[str]:
    common = [*("data=sample", "device=cpu", "model=pretrained", f"model.path={tiny_path}"), SHORT]
    clip, bert = tiny_path.parent / "clip", tiny_path.parent / "bert"
    if name == "aima" and not clip.is_dir():
        save_tiny_clip(clip)
    return {
        # 144 anchors in steps of 60: the last is shorter; in-batch false negatives are masked
        "idiolink": [*DRAWN, "objective.loss.false_negatives=mask", "trainer.batch_size=60", *common],
        "idiolink_ft": ["+experiment=idiolink_ft", "trainer.batch_size=48", *common],
        "adaptive_triplet": ["+experiment=adaptive_triplet", "trainer.batch_size=40", *common],
        "joint": ["+experiment=joint", "trainer.batch_size=48", *common],
        "own": [
            *("+experiment=own", f"data.train={own_pairs(tiny_path)}", "trainer.batch_size=20"),
            *("objective.query_mode=[span,sentence]", *common[1:], SHORTER),
        ],
        # seven steps of three parts, in batches of 22, 12 (the last shorter) and 48
        "mixture": [*mixture_options(tiny_path.parent), "trainer.batch_size=48", *common],
        "pairwise": ["+experiment=admire_experts", "objective.loss.rank=pairwise", *common, SHORTER],
        "listwise": ["+experiment=admire_experts", "objective.loss.rank=listwise", *common, SHORTER],
        "top1": ["+experiment=admire_experts", "objective.loss.rank=top1", *common, SHORTER],
        # steps of both kinds: those that rank embed nothing
        "aima": [
            *(
                "+experiment=admire_aima",
                *common,
                SHORTER,
                f"objective.clip.path={clip}",
                "trainer.batch_size=7",
            ),
            *(f"objective.sense_encoder.path={bert}", "objective.sense_encoder.stage=beside"),
            *("objective.captions.summariser=null", "objective.astitch=[train_one_shot]"),
        ],
    }[name]


def assert_close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], of: str = "") -> None:
    assert ours.keys() == theirs.keys()
    assert any(".log." not in name for name in ours)
    for name, expected in theirs.items():
        scale = max(float(expected.norm()), 1e-6)
        assert float((ours[name] - expected).norm()) / scale < 1e-5, (of, name)


def test_gradients_of_two_processes_are_those_of_one(
    launches: Launches, tiny_path: Path, tmp_path: Path
) -> None:
    """With dropout, in equal and unequal micro-batches, with and without gradient caching."""
    names = ["idiolink", "idiolink_ft", "adaptive_triplet", "joint", "mixture", "own"]
    names += ["pairwise", "listwise", "top1", "aima"]
    options = {name: experiment_options(name, tiny_path) for name in names}
    jobs = [
        {
            "options": options[name],
            "output": str(tmp_path / f"{name}_two"),
            "cached": str(tmp_path / f"{name}_two_cached"),
        }
        for name in names
    ]
    ended = launches(2, "tests.process_jobs:gradients_of_all", jobs=jobs)
    assert [status for status, _ in ended] == [0, 0], ended
    for name in names:
        process_jobs.gradients(options[name], str(tmp_path / "one"), cached=str(tmp_path / "cached"))
        one = load_file(tmp_path / "one")
        for file in ("cached", f"{name}_two", f"{name}_two_cached"):
            assert_close(load_file(tmp_path / file), one, name)


def test_more_processes_than_texts(launches: Launches, tiny_path: Path, tmp_path: Path) -> None:
    """One pass a step: two of three processes have nothing to embed."""
    options = [o for o in experiment_options("idiolink", tiny_path) if o != SHORT]
    options += ["model.tokens_per_forward=100000", "trainer.batch_size=2"]
    process_jobs.gradients(options, str(tmp_path / "one"))
    ended = launches(3, "tests.process_jobs:gradients", options=options, output=str(tmp_path / "three"))
    assert [status for status, _ in ended] == [0, 0, 0], ended
    assert_close(load_file(tmp_path / "three"), load_file(tmp_path / "one"))


def test_a_run_of_two_processes_is_that_of_one_and_goes_on_after_a_kill(
    launches: Launches, tmp_path: Path, options: list[str], whole_run: WholeRun
) -> None:
    run_options = [*options, "eval.cache=true", SHORT]
    alone = whole_run(run_options)
    run = "tests.process_jobs:whole_run"
    ended = launches(2, run, folder=str(tmp_path / "two"), options=run_options)
    assert [status for status, _ in ended] == [0, 0], ended
    assert not Path("not_the_main_one").exists()
    one, two = weights(alone / "best"), weights(tmp_path / "two" / "best")
    assert all(torch.allclose(one[name], two[name], rtol=1e-4, atol=1e-6) for name in one)
    ours, theirs = (json.loads((f / "scores.json").read_text()) for f in (alone, tmp_path / "two"))
    assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-6)
    assert ours["baseline"] == pytest.approx(theirs["baseline"], abs=1e-6)
    for a, b in zip(metrics(alone), metrics(tmp_path / "two"), strict=True):
        assert a.get("loss", 0.0) == pytest.approx(b.get("loss", 0.0), rel=1e-5)
    left = [sorted(p.relative_to(f) for p in f.rglob("*")) for f in (alone, tmp_path / "two")]
    assert left[0] == left[1]

    for rank, evaluation in ((1, 3), (0, 2)):  # the baseline is the first
        folder = tmp_path / f"killed_{rank}"
        ended = launches(2, run, folder=str(folder), options=run_options, die=[rank, evaluation])
        assert ended[rank][0] == -9
        assert ended[1 - rank][0] == 1  # ended by itself, well before it would have been ended
        assert "another process of this launch ended" in ended[1 - rank][1]
        assert "that an earlier run kept" in ended[0][1]  # of two processes: their rounding is another
        ended = launches(2, run, folder=str(folder), options=[], go_on=True)
        assert [status for status, _ in ended] == [0, 0], ended
        assert_same_run(tmp_path / "two", folder)


def test_an_evaluation_is_shared_out_and_gives_the_scores_of_one(
    launches: Launches, tmp_path: Path, tiny_path: Path
) -> None:
    run_options = ["data=sample", "device=cpu", "model=pretrained", f"model.path={tiny_path}", "split=val"]
    run_options += ["benchmark=[idiolink,semeval2022,own_retrieval]"]
    run_options += [f"benchmark.own_retrieval.path={write_collection(tmp_path / 'search')}"]

    def options(name: str) -> list[str]:
        store = ["benchmark.own_retrieval.shard_size=1", f"benchmark.own_retrieval.store={tmp_path / name}"]
        return [*run_options, *store, f"output={tmp_path / f'{name}.json'}"]

    process_jobs.evaluation(options("one"))
    ended = launches(2, EVALUATION, options=options("two"))
    assert [status for status, _ in ended] == [0, 0], ended
    stores = [tmp_path / name / "search" / "sentence" for name in ("one", "two")]
    shards = [{path.name: path.read_bytes() for path in store.glob("[!.]*")} for store in stores]
    assert len(shards[0]) == 4
    assert shards[0] == shards[1]
    one, two = (json.loads((tmp_path / f"{n}.json").read_text())["scores"] for n in ("one", "two"))
    assert len(one) > 20
    assert two == pytest.approx(one, abs=1e-6)


def test_an_error_of_one_process_ends_all(launches: Launches, tmp_path: Path, options: list[str]) -> None:
    ended = launches(
        2, "tests.process_jobs:whole_run", folder=str(tmp_path / "run"), options=options, fail=True
    )
    assert [status for status, _ in ended] == [1, 1]
    assert "this process has run into something" in ended[1][1]
    assert "another process of this launch ended" in ended[0][1]


def test_an_error_of_the_main_process_is_told_to_all(
    launches: Launches, tmp_path: Path, options: list[str]
) -> None:
    """As when its disk is full; here the folder is somebody else's."""
    (tmp_path / "step_3").mkdir()
    ended = launches(2, "tests.process_jobs:whole_run", folder=str(tmp_path), options=options)
    assert [status for status, _ in ended] == [1, 1]
    assert "already contains a run" in ended[0][1]
    assert "the main process failed" in ended[1][1]
    assert f"the run folder {tmp_path} already contains a run" in ended[1][1]


def test_forward_batches_are_divided_by_their_size() -> None:
    batches = [
        ForwardBatch([[0] * length] * number, [], []) for length, number in ((9, 1), (4, 2), (3, 2), (2, 2))
    ]
    assert partition_by_size(batches, 2).numbers == [[0, 3], [1, 2]]
    assert partition_by_size(batches, 5).numbers == [[0], [1], [2], [3], []]


def test_forward_batches_are_cut_for_idle_processes_where_they_are_long(tiny: Encoder) -> None:
    tiny.tokens_per_forward = 100_000
    words = "the ship broke the ice and nobody in the harbour saw it happen "
    requests = [Request(f"{i} {words * 3}") for i in range(100)]
    assert len(tiny.forward_batches(requests)) == 1
    assert len(tiny.forward_batches(requests, min_batches=4)) in (4, 5)
    assert len(tiny.forward_batches(requests[:5], min_batches=4)) == 1  # too short to be worth it


def test_alone_there_is_nothing_to_agree_on() -> None:
    alone = Processes()
    assert alone.is_main
    assert alone.any(True)
    assert not alone.any(False)
    assert alone.from_main(lambda: 3) == 3
    with pytest.raises(UserError, match="as it is"):
        alone.from_main(lambda: (_ for _ in ()).throw(UserError("as it is")))
