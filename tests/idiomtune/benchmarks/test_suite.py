"""The evaluation hook: several benchmarks share one embedding of each text."""

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from idiomtune import Encoder
from idiomtune.benchmarks import Benchmark, Embed, Result, Score, requests_of
from idiomtune.benchmarks.suite import Scorecard, Suite
from idiomtune.errors import UserError
from idiomtune.io.processes import Processes
from idiomtune.requests import EmbeddingRequest
from tests.programs import refused

Log = pytest.LogCaptureFixture


class Probe(Benchmark):
    """A benchmark whose score is the sum of its embeddings."""

    def __init__(self, name: str, texts: list[str]) -> None:
        self.name = name
        self._requests = [EmbeddingRequest(text) for text in texts]
        self.got: Tensor | None = None
        self.similarities: torch.dtype | None = None

    @property
    def requests(self) -> list[EmbeddingRequest]:
        return self._requests

    def score(self, embed: Embed) -> Result:
        self.got = embed(self.requests)
        self.similarities = (self.got @ self.got.T).dtype
        return Result([Score(self.name, "", "", "sum", value=self.got.sum().item())], [{"id": self.name}])


def test_each_benchmark_gets_its_own_rows_and_no_text_is_embedded_twice(tiny: Encoder) -> None:
    a, b = Probe("a", ["one", "two"]), Probe("b", ["two", "three", "one"])
    scorecard = Suite([a, b]).run(tiny)
    assert scorecard.num_texts == 3
    assert scorecard.scores.keys() == {"a/sum", "b/sum"}
    assert Suite([a, b]).run(tiny, only=["b"]).scores.keys() == {"b/sum"}
    assert scorecard.per_query == {"a": [{"id": "a"}], "b": [{"id": "b"}]}
    assert a.got is not None
    assert b.got is not None
    torch.testing.assert_close(a.got, tiny.encode(["one", "two"]))
    torch.testing.assert_close(b.got, tiny.encode(["two", "three", "one"]))


def test_the_same_embeddings_are_scored_cut(tiny: Encoder) -> None:
    """Scores alone, and none of a benchmark whose module is of the full width."""
    whole = Probe("whole", ["one"])
    whole.takes_whole_embeddings = True
    scorecard = Suite([Probe("a", ["one", "two"]), whole], dimensions=[8, 4]).run(tiny)
    sums = {n: tiny.encode(["one", "two"])[:, :n].sum().item() for n in (tiny.dimension, 8, 4)}
    expected = dict(zip(("a/sum", "a/sum/dim=8", "a/sum/dim=4"), sums.values(), strict=True))
    assert {k: v for k, v in scorecard.scores.items() if k != "whole/sum"} == pytest.approx(expected)
    assert scorecard.per_query == {"a": [{"id": "a"}], "whole": [{"id": "whole"}]}
    with pytest.raises(UserError, match=f"{tiny.dimension} dimensions"):
        Suite([Probe("a", ["one"])], dimensions=[tiny.dimension]).run(tiny)


def test_a_lower_precision_is_the_models_alone(tiny: Encoder) -> None:
    """In bfloat16 cosines of 0.9 are 0.004 apart, and many texts would share a rank."""
    probe = Probe("a", ["one", "two"])
    with torch.autocast("cpu", torch.bfloat16):
        Suite([probe]).run(tiny)
    assert probe.got is not None
    assert not torch.equal(probe.got, tiny.encode(["one", "two"]))
    assert probe.similarities == torch.float32


def test_scoring_is_in_evaluation_mode_and_leaves_training_mode(tiny: Encoder) -> None:
    probe = Probe("a", ["one"])
    tiny.train()
    first = Suite([probe]).run(tiny).scores
    assert Suite([probe]).run(tiny).scores == first
    assert tiny.training
    assert probe.got is not None
    assert not probe.got.requires_grad


class Own(Probe):
    """Somebody's own benchmark, which gives whatever it is told to."""

    def __init__(self, name: str, scores: dict[Any, Any], *records: Any) -> None:
        super().__init__(name, ["one"])
        self.scores, self.records = scores, list(records)

    def score(self, embed: Embed) -> Result:  # noqa: ARG002
        parts = ((*key.split("/"), "")[:2] for key in self.scores)
        scores = [Score(name, "", "", metric) for name, metric in parts]
        values = self.scores.values()
        return Result([replace(s, value=v) for s, v in zip(scores, values, strict=True)], self.records)


@pytest.mark.parametrize("value", [-math.inf, np.float32("nan")])
def test_a_score_that_is_not_finite_is_said_and_left_out(tiny: Encoder, caplog: Log, value: float) -> None:
    scorecard = Suite([Own("mine", {"mine/broken": value, "mine/right": 0.5})]).run(tiny)
    assert scorecard.scores == {"mine/right": 0.5}
    assert scorecard.undefined.keys() == {"mine/broken"}
    assert any("mine/broken" in note for note in scorecard.notes)
    assert any("mine/broken" in warning for warning in caplog.messages)


@pytest.mark.parametrize(
    ("benchmarks", "named"),
    [
        ([Own("mine", {"mine/x": torch.tensor(0.5)})], ("mine/x", ".item()")),
        ([Own("mine", {"m/x": 1.0}), Own("theirs", {"m/x": 2.0})], ("mine", "theirs", "'m/x'")),
        ([Own("mine", {"x": 1.0})], ("benchmark mine", "'x'")),
        ([Own("mine", {"mine/x": 1.0}, {"id": torch.zeros(2)})], ("benchmark mine", "Tensor")),
    ],
)
def test_what_is_no_score_is_refused_with_benchmark_and_key(
    tiny: Encoder, benchmarks: list[Own], named: tuple[str, ...]
) -> None:
    refused(lambda: Suite(benchmarks).run(tiny), *named)


def test_records_are_what_json_can_hold(tiny: Encoder) -> None:
    record = {"id": np.int64(3), "values": (np.float32(0.5), math.nan), "best": None}
    scorecard = Suite([Own("mine", {"mine/x": np.float64(0.25)}, record)]).run(tiny)
    written = json.loads(json.dumps([scorecard.scores, *scorecard.per_query["mine"]], allow_nan=False))
    assert written == [{"mine/x": 0.25}, {"id": 3, "values": [0.5, None], "best": None}]


class Asking(Benchmark):
    """A benchmark that asks twice for a text, and announces none."""

    name = "asking"

    def __init__(self) -> None:
        self.num_scored = 0

    def score(self, embed: Embed) -> Result:
        self.num_scored += 1
        first, second = (
            embed([*map(EmbeddingRequest, texts)]) for texts in (["one", "two"], ["two", "three"])
        )
        assert torch.equal(first[1], second[0])
        return Result([Score("asking", "", "", "sum", value=(first + second).sum().item())])


def test_a_benchmark_asks_when_it_needs_embeddings(tiny: Encoder) -> None:
    asking = Asking()
    assert [request.text for request in requests_of(asking)] == ["one", "two", "three"]  # a rehearsal
    with patch.object(tiny, "embed", side_effect=tiny.embed) as embed, torch.autocast("cpu", torch.bfloat16):
        lowered = Suite([Probe("a", ["one"]), asking]).run(tiny)
    assert sum(len(call.args[0].texts) for call in embed.call_args_list) == lowered.num_texts == 3
    whole = Suite([asking], dimensions=[8]).run(tiny)
    one, two, three = tiny.encode(["one", "two", "three"])
    total = one + 2 * two + three
    expected = {"asking/sum": total.sum().item(), "asking/sum/dim=8": total[:8].sum().item()}
    assert whole.scores == pytest.approx(expected, abs=1e-5)
    assert whole.scores["asking/sum"] != lowered.scores["asking/sum"]  # of the model's precision


@dataclass(frozen=True)
class Peer(Processes):
    barrier: Barrier = field(default_factory=lambda: Barrier(1))
    board: dict[int, Any] = field(default_factory=dict)

    def all(self, value: Any) -> list[Any]:
        self.board[self.rank] = value
        self.barrier.wait(500)
        found = [self.board[rank] for rank in range(self.count)]
        self.barrier.wait(500)
        return found

    def broadcast(self, compute: Callable[[], Any]) -> Any:
        return self.all(compute() if self.is_main else None)[0]

    def any(self, flag: bool) -> bool:
        return any(self.all(flag))

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> Tensor:
        found = self.all(rows)
        assert list(map(len, found)) == list(lengths)
        return torch.cat(found)


def test_processes_share_what_the_main_one_asks_for(tiny_path: Path) -> None:
    peers = [Peer(rank, 2, barrier=Barrier(2)) for rank in (0, 1)]
    peers[1] = replace(peers[1], barrier=peers[0].barrier, board=peers[0].board)
    benchmarks = [Asking(), Asking()]

    def run(rank: int) -> Scorecard:
        suite = Suite([Probe("a", ["four"]), benchmarks[rank]], peers[rank])
        return suite.run(Encoder.from_pretrained(tiny_path, device="cpu"), keep=True)

    with ThreadPoolExecutor(2) as threads:
        main, other = threads.map(run, (0, 1))
    assert main.scores == other.scores
    assert [benchmark.num_scored for benchmark in benchmarks] == [1, 0]
    alone = Suite([Probe("a", ["four"]), Asking()]).run(Encoder.from_pretrained(tiny_path, device="cpu"))
    assert main.scores == pytest.approx(alone.scores, abs=1e-5)


def test_embeddings_that_mean_nothing_cannot_be_overlooked(tiny: Encoder, caplog: Log) -> None:
    """Those that are all equal, and those that are not finite."""
    several = Suite([Probe("a", ["one", "two"])])
    assert not several.run(tiny).notes
    with torch.no_grad():
        for name, parameter in tiny.named_parameters():
            if "output.LayerNorm" in name:
                parameter.fill_(float(name.endswith("bias")))
    assert not Suite([Probe("a", ["one", "one"])]).run(tiny).notes
    (note,) = several.run(tiny).notes
    assert "EQUAL" in note
    assert note in caplog.messages
    with torch.no_grad():
        next(tiny.parameters())[:] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        several.run(tiny)
