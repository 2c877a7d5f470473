"""Best checkpoint and patience, by hand."""

from __future__ import annotations

import pytest

from tests.tiny_runs import composed
from train.checkpoint import TrainerState
from train.errors import UserError
from train.selection import monitored, out_of_patience, update_best
from train.settings import TrainerSettings, TrainSettings, check

KEYS = ["idiolink/val/sentence/ndcg@10", "idiolink/val/span/ndcg@10"]


def trainer(*overrides: str) -> TrainerSettings:
    settings: TrainSettings = check(TrainSettings, composed("config", *overrides))
    return settings.trainer


def test_best_is_any_improvement_patience_wants_min_delta() -> None:
    """0.5, then two gains of 0.04 that are each under min_delta, but together above it."""
    options = trainer("trainer.patience=2", "trainer.min_delta=0.05")
    state = TrainerState()
    seen = []
    for step, score in enumerate([0.50, 0.54, 0.58, 0.57, 0.60], 1):
        state.step = step
        improved = update_best(state, {KEYS[0]: score}, options)
        seen.append(
            (improved, state.best_step, state.num_without_improvement, out_of_patience(state, options))
        )
    assert seen == [
        (True, 1, 0, False),
        (True, 2, 1, False),
        (True, 3, 0, False),  # 0.58 > 0.50 + 0.05
        (False, 3, 1, False),
        (True, 5, 2, True),  # 0.60 < 0.58 + 0.05
    ]


def test_a_tie_keeps_the_earlier_checkpoint() -> None:
    state = TrainerState(step=1)
    assert update_best(state, {KEYS[0]: 0.5}, trainer())
    state.step = 2
    assert not update_best(state, {KEYS[0]: 0.5}, trainer())
    assert state.best_step == 1


def test_without_patience_it_never_runs_out() -> None:
    assert not out_of_patience(TrainerState(num_without_improvement=99), trainer("trainer.patience=null"))


def test_several_keys_are_averaged_and_missing_ones_named() -> None:
    options = trainer(f"trainer.monitor=[{','.join(KEYS)}]")
    assert monitored({KEYS[0]: 0.2, KEYS[1]: 0.6}, options) == pytest.approx(0.4)
    with pytest.raises(UserError, match="idiolink/val/span/ndcg@10"):
        monitored({KEYS[0]: 0.2}, options)
