"""Several processes compute what one computes, with whole and with sharded weights, and end together."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from idiomtune import Encoder
from idiomtune.encoder.forward import ForwardBatch
from idiomtune.encoder.parallel import partition_by_size
from idiomtune.requests import EmbeddingRequest
from tests import process_jobs
from tests.launches import EVALUATION, launch
from tests.own_data import mixture_options, write_collection
from tests.tiny_clip import save_tiny_clip
from tests.tiny_families import FAMILIES, tiny_checkpoint
from tests.tiny_runs import DRAWN, WholeRun, assert_same_run, files_of, metrics, weights

RUN = "tests.process_jobs:whole_run"
# Several passes for each process, also of fewer texts, and of a few short ones.
SEVERAL, SHORT, SHORTER = (f"model.tokens_per_forward={number}" for number in (512, 256, 128))


def succeeded(ended: list[tuple[int, str]]) -> list[tuple[int, str]]:
    assert [status for status, _ in ended] == [0] * len(ended), ended
    return ended


def on_cpu(tiny_path: Path) -> list[str]:
    return ["device=cpu", "precision=fp32", "model=pretrained", f"model.path={tiny_path}"]


def experiment_options(name: str, tiny_path: Path) -> list[str]:
    common = ["data=sample", *on_cpu(tiny_path), SHORT]
    clip, bert = tiny_path.parent / "clip", tiny_path.parent / "bert"
    if name == "aima" and not clip.is_dir():
        save_tiny_clip(clip)
    # 144 anchors in steps of 60: the last is shorter; in-batch false negatives are masked
    idiolink = [*DRAWN, "objective.loss.false_negatives=mask", "trainer.batch_size=60", *common[:-1], SEVERAL]
    return {
        "idiolink": idiolink,
        "checkpointed": [*idiolink, "trainer.activation_checkpointing=true"],
        "few texts": [*idiolink[:-1], "model.tokens_per_forward=100000", "trainer.batch_size=2"],
        "adaptive_triplet": ["+experiment=adaptive_triplet", "trainer.batch_size=40", *common],
        # seven steps of three parts, in batches of 22, 12 (the last shorter) and 48
        "mixture": [*mixture_options(tiny_path.parent), "trainer.batch_size=48", *common],
        "listwise": ["+experiment=admire_experts", "objective.loss.rank=listwise", *common],
        # steps of both kinds: those that rank embed nothing
        "aima": [
            *("+experiment=admire_aima", *common, SHORTER, "trainer.batch_size=7"),
            *(f"objective.clip.path={clip}", f"objective.sense_encoder.path={bert}"),
            *("objective.sense_encoder.stage=beside", "objective.captions.summariser=null"),
            "objective.astitch=[train_one_shot]",
        ],
    }[name]


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> Callable[[str], dict[str, Any]]:
    """The gradients of one process, each computed once; by gradient caching they are the same."""
    folder = tmp_path_factory.mktemp("one")

    def gradients(name: str) -> dict[str, torch.Tensor]:
        if not (folder / name).exists():
            options = experiment_options(name, tiny_path)
            process_jobs.gradients(options, str(folder / name), cached=str(folder / f"{name}_cached"))
            assert_close(load_file(folder / f"{name}_cached"), load_file(folder / name), name)
        return load_file(folder / name)

    return gradients


def assert_close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], of: str) -> None:
    assert ours.keys() == theirs.keys()
    assert any(".log." not in name for name in ours)
    for name, expected in theirs.items():
        scale = max(float(expected.norm()), 1e-6)
        assert float((ours[name] - expected).norm()) / scale < 1e-5, (of, name)


# With few texts there is one pass a step: all but one of the processes have nothing to embed.
EVERY = ("idiolink", "few texts", "adaptive_triplet", "mixture", "listwise", "aima")
# Gradient caching knows no objective: in several processes a few ask, in one process all.
CACHED = ("idiolink", "checkpointed", "adaptive_triplet", "few texts")
# Processes, what they compute → what is special about it, for all of them.
SHARED: dict[str, tuple[int, dict[str, dict[str, bool]]]] = {
    "two": (2, {name: {} for name in EVERY}),
    # also by way of what keeps a GPU's shards in main memory
    "two, sharded": (2, {"idiolink": {}, "checkpointed": {}, "adaptive_triplet": {"offloaded": True}}),
    "three, sharded": (3, {"few texts": {}}),
}


@pytest.mark.parametrize("kind", SHARED)
def test_gradients_of_several_processes_are_those_of_one(
    of_one: Callable[[str], dict[str, Any]], tiny_path: Path, tmp_path: Path, kind: str
) -> None:
    """With dropout, masked negatives or mined triplets, in equal and unequal numbers of passes."""
    count, chosen = SHARED[kind]
    jobs = [
        {
            "options": experiment_options(name, tiny_path),
            "output": str(tmp_path / name),
            "cached": str(tmp_path / f"{name}_cached") if name in CACHED else None,
            "sharded": "sharded" in kind,
            **more,
        }
        for name, more in chosen.items()
    ]
    succeeded(launch(count, "tests.process_jobs:gradients_of_all", jobs=jobs))
    for name in chosen:
        expected = of_one("idiolink" if name == "checkpointed" else name)
        for file in (name, f"{name}_cached") if name in CACHED else (name,):
            assert_close(load_file(tmp_path / file), expected, file)


def test_every_architecture_can_be_sharded(tmp_path: Path) -> None:
    folders = [str(tiny_checkpoint(family, tmp_path / name)) for name, family in FAMILIES.items()]
    succeeded(launch(2, "tests.process_jobs:families", folders=folders))


def test_a_run_of_two_processes_is_that_of_one_and_goes_on_after_kills(
    tmp_path: Path, options: list[str], whole_run: WholeRun
) -> None:
    run_options = [*options, "eval.cache=true", SEVERAL]
    alone, two = whole_run(run_options), tmp_path / "two"
    succeeded(launch(2, RUN, folder=str(two), options=run_options))
    assert not Path("not_the_main_one").exists()
    ours, theirs = weights(alone / "best"), weights(two / "best")
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6) for name in ours)
    cards = [json.loads((folder / "scores.json").read_text()) for folder in (alone, two)]
    for part in ("scores", "baseline"):
        assert cards[0][part] == pytest.approx(cards[1][part], abs=1e-6)
    for a, b in zip(metrics(alone), metrics(two), strict=True):
        assert a.get("loss", 0.0) == pytest.approx(b.get("loss", 0.0), rel=1e-5)
    assert files_of(alone) == files_of(two)

    folder = tmp_path / "killed"
    # The other process at its second evaluation; the first is the untrained model's.
    ended = launch(2, RUN, folder=str(folder), options=run_options, die=[1, 2])
    assert ended[1][0] == -9
    assert ended[0][0] == 1  # ended by itself, well before it would have been ended
    assert "another process" in ended[0][1]
    assert "are read from the cache" in ended[0][1]
    succeeded(launch(2, RUN, folder=str(folder), options=[], go_on=True))
    assert_same_run(two, folder)


def test_an_evaluation_is_shared_out_and_gives_the_scores_of_one(tmp_path: Path, tiny_path: Path) -> None:
    run_options = ["data=sample", *on_cpu(tiny_path), "split=val"]
    run_options += ["benchmark=[idiolink,semeval2022,own_retrieval]"]
    run_options += [f"benchmark.own_retrieval.path={write_collection(tmp_path / 'search')}"]

    def options(name: str) -> list[str]:
        return [*run_options, f"output={tmp_path / f'{name}.json'}"]

    process_jobs.evaluation(options("one"))
    succeeded(launch(2, EVALUATION, options=options("two")))
    one, two = (json.loads((tmp_path / f"{n}.json").read_text())["scores"] for n in ("one", "two"))
    assert len(one) > 20
    assert two == pytest.approx(one, abs=1e-6)


@pytest.mark.parametrize(
    ("rank", "own", "others"),
    # The main one as when its disk is full; here the folder is somebody else's.
    [
        (1, "this process has run into something", "another process"),
        (0, "which no run has written", "main process"),
    ],
)
def test_an_error_of_one_process_ends_all(
    tmp_path: Path, options: list[str], rank: int, own: str, others: str
) -> None:
    if rank == 0:
        (tmp_path / "step_3").mkdir()
    ended = launch(2, RUN, folder=str(tmp_path), options=options, fail=rank == 1)
    assert [status for status, _ in ended] == [1, 1]
    assert own in ended[rank][1]
    assert others in ended[1 - rank][1]


def test_forward_batches_are_divided_by_their_size() -> None:
    batches = [
        ForwardBatch([[0] * length] * number, [], [], [])
        for length, number in ((9, 1), (4, 2), (3, 2), (2, 2))
    ]
    assert partition_by_size(batches, 2).numbers == [[0, 3], [1, 2]]
    assert partition_by_size(batches, 5).numbers == [[0], [1], [2], [3], []]


def test_forward_batches_are_cut_for_idle_processes_where_they_are_long(tiny: Encoder) -> None:
    tiny.tokens_per_forward = 100_000
    words = "the ship broke the ice and nobody in the harbour saw it happen "
    requests = [EmbeddingRequest(f"{i} {words * 3}") for i in range(100)]
    assert len(tiny.forward_batches(requests)) == 1
    assert len(tiny.forward_batches(requests, min_batches=4)) in (4, 5)
    assert len(tiny.forward_batches(requests[:5], min_batches=4)) == 1  # too short to be worth it
