"""One encoder in several threads: each gets what it would get in turn, and the encoder stays as it was."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import evaluating
from idiomtune.encoder.loading import silence_libraries
from tests.idiomtune.encoder.test_usage_gate import with_gate

NAME = "break the ice"
TEXTS = [f"On day {day} {words}" for day in range(3) for words in ("she broke the ice.", "we broke the ice")]


def test_threads_get_what_they_would_get_in_turn(tiny: Encoder, tmp_path: Path) -> None:
    encoder = with_gate(tiny)
    config: Any = encoder.transformer.config
    before = config.to_dict()
    bare = encoder.reading(None)
    calls: list[Callable[[int], Any]] = [
        lambda n: encoder.usage(TEXTS[n % 3 :], NAME),
        lambda n: encoder.encode(TEXTS[n % 3 :]).tolist(),
        lambda n: encoder.encode(TEXTS[n % 3 :], [NAME] * len(TEXTS[n % 3 :])).tolist(),
        lambda n: encoder.search(f"Day {n % 3}", TEXTS),
        lambda n: bare.encode(TEXTS[n % 3 :]).tolist(),
    ]
    tasks = [(call, n) for n in range(9) for call in calls]
    in_turn = [call(n) for call, n in tasks[: 3 * len(calls)]]
    encoder._tokenizer.forget()
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda task: task[0](task[1]), tasks))
    assert done == in_turn * 3
    assert config.to_dict() == before
    encoder.save(tmp_path / "saved")
    assert '"output_hidden_states": true' not in (tmp_path / "saved" / "config.json").read_text()


@pytest.mark.parametrize("copied", [deepcopy, lambda encoder: pickle.loads(pickle.dumps(encoder))])
def test_an_encoder_in_use_is_copied(copied: Callable[[Encoder], Encoder], tiny: Encoder) -> None:
    encoder = with_gate(tiny, form="in_place")
    expected = encoder.usage(TEXTS[:2], NAME), encoder.encode(TEXTS[:2])
    twin = copied(encoder)
    assert torch.equal(twin.encode(TEXTS[:2]), expected[1])
    assert twin.usage(TEXTS[:2], NAME) == encoder.usage(TEXTS[:2], NAME) == expected[0]
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert torch.equal(encoder.encode(TEXTS[:2]), expected[1])


def test_the_last_thread_to_leave_brings_modes_back(tiny: Encoder) -> None:
    tiny.train()
    first, second = evaluating(tiny), evaluating(tiny)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not tiny.training
    second.__exit__(None, None, None)
    assert tiny.training


def test_models_load_in_threads(tiny_path: Path) -> None:
    logger = logging.getLogger("sentence_transformers")
    level = logger.level
    with silence_libraries(), silence_libraries():
        pass
    with ThreadPoolExecutor(4) as pool:
        encoders = list(pool.map(lambda _: Encoder(tiny_path, device="cpu"), range(4)))
    assert logger.level == level
    expected = encoders[0].encode(TEXTS)
    assert all(torch.equal(encoder.encode(TEXTS), expected) for encoder in encoders)
