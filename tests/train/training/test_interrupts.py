"""Requests to stop: what is heard, and what ends at once."""

from __future__ import annotations

import os
import signal

import pytest

from train.training.ending import stop_requests


def test_a_scheduler_and_the_launcher_may_both_ask() -> None:
    """SIGTERM to every process, and once more by the launcher that got it too: the step is still finished."""
    with stop_requests() as asked:
        assert not asked()
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert asked()


def test_a_second_interrupt_of_the_keyboard_stops_at_once() -> None:
    with stop_requests() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_afterwards_signals_do_what_they_did() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_requests():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
