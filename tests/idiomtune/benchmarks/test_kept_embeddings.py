"""Embeddings that an earlier run kept: the same scores without a pass, and never those of anything else."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from idiomtune import Encoder
from idiomtune.benchmarks import embeddings as kept_embeddings
from idiomtune.benchmarks.embeddings import stored_file
from idiomtune.benchmarks.suite import Scorecard, Suite
from idiomtune.encoder.reading import Prompts
from idiomtune.glossaries.meanings import GlossaryReader, UsageClassifier
from idiomtune.requests import EmbeddingRequest
from tests.idiomtune.benchmarks.test_suite import Probe

SENSES = {"take someone in": ["cheat"], "take somebody in": ["shelter"]}
MEANINGS = [
    GlossaryReader(SENSES),
    GlossaryReader(dict(reversed(SENSES.items()))),  # of two that fit, the first is read
    GlossaryReader(SENSES, gate=UsageClassifier([0.5], 0.0, (1,), (0.5,))),
    GlossaryReader(SENSES, gate=UsageClassifier([0.5], 1.0, (1,), (0.5,))),
    GlossaryReader(SENSES, form="replace"),
    GlossaryReader(SENSES | {"take somebody in": ["adopt"]}),
    GlossaryReader(SENSES, forms={next(iter(SENSES)): ["as nobody inflects it"]}),
]
LONG = "one two three four five six seven eight nine ten eleven twelve"


class Kept:
    """A suite with a span that is cut off, as each run builds it anew."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.probe = Probe("a", ["one", "two"])
        self.probe.requests.append(
            EmbeddingRequest(LONG, span=(LONG.index("four"), len(LONG)), pooling="span")
        )

    def run(self) -> Scorecard:
        return Suite([self.probe]).run(
            Encoder.from_pretrained(self.model, device="cpu", max_length=8), keep=True
        )


def test_the_next_run_computes_none(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless they are damaged, which is said in one line."""
    kept = Kept(tiny_path)
    first, computed = kept.run(), kept.probe.got
    (path,) = Path(os.environ["IDIOM_CACHE"], "embeddings").iterdir()
    assert computed is not None
    assert "maximum length" in first.notes[0]

    whole = path.read_bytes()
    caplog.set_level("INFO")
    with monkeypatch.context() as patched:
        patched.setattr(kept_embeddings, "embed_now", None)
        again = kept.run()
    assert kept.probe.got is not None
    assert torch.equal(kept.probe.got, computed)
    assert (again.scores, again.per_query, again.notes) == (first.scores, first.per_query, first.notes)
    assert all(part in caplog.text for part in ("eval.cache=false", f": {path}"))

    for damaged in (whole[:-4], whole[:-1] + bytes([whole[-1] ^ 1])):
        caplog.clear()
        path.write_bytes(damaged)
        assert kept.run().scores == first.scores
        assert sum(str(path) in line for line in caplog.messages) == 1
        assert path.read_bytes() == whole


def test_where_nothing_can_be_kept_they_are_computed(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = Kept(tiny_path).run()
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "file"))
    assert Kept(tiny_path).run().scores == first.scores
    assert sum(str(tmp_path / "file") in line for line in caplog.messages) == 1


def test_whatever_decides_them_decides_their_file(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [EmbeddingRequest("one"), EmbeddingRequest("two", role="query")]
    names = [stored_file(tiny, requests, 1)]
    assert stored_file(tiny, list(requests), 1) == names[0]
    names += [stored_file(tiny, requests[::-1], 1), stored_file(tiny, requests, 2)]
    with torch.autocast("cpu", torch.bfloat16):
        names.append(stored_file(tiny, requests, 1))
    changes: list[tuple[Any, str, Any]] = [
        (torch, "get_num_threads", lambda: 77),
        (kept_embeddings, "_code_digest", lambda: "other code"),
        (kept_embeddings, "package_versions", dict),
        (kept_embeddings, "_processor", lambda: "another"),
        (tiny.model.tokenizer, "truncation_side", "left"),
        *((tiny, "meanings", meanings) for meanings in MEANINGS),
        (tiny, "prompts", Prompts(document="passage: ")),
        (tiny, "raw_spans", True),
        (tiny, "tokens_per_forward", 64),
        (tiny.model, "max_seq_length", 7),
    ]
    for place, name, value in changes:
        with monkeypatch.context() as patched:
            patched.setattr(place, name, value)
            names.append(stored_file(tiny, requests, 1))
    tiny.register_buffer("scale", torch.ones(()))
    names.append(stored_file(tiny, requests, 1))
    with torch.no_grad():
        next(tiny.parameters()).add_(1)
    names.append(stored_file(tiny, requests, 1))
    assert None not in names
    assert len(set(names)) == len(names)

    class OfTheCheckpoint(nn.Module):
        """Code that no sum knows."""

    tiny.add_module("own", OfTheCheckpoint())
    assert stored_file(tiny, requests, 1) is None
