"""Progress: a bar on a terminal, a line every minute elsewhere, nothing from other processes."""

import io
import logging
import sys

import pytest

from idiomtune.io.terminal import StderrHandler, progress_bar


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    caplog.set_level(logging.INFO)
    return clock


def test_without_a_terminal_a_line_every_minute(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Of a resumed run: what an earlier start did tells nothing of this one's speed."""
    with progress_bar("training", 1000, done=700) as advance:
        for _ in range(100):
            clock.now += 3
            advance(1, note="loss 0.25, 96 texts/s")
        for _ in range(200):
            advance(1)
    first, *_, last = lines = caplog.messages
    assert len(lines) == 5
    assert first == "training: 720 of 1000 (72%), loss 0.25, 96 texts/s; 01:00 elapsed, about 14:00 left"
    assert last.startswith("training: 800 of 1000 (80%)")
    assert "05:00 elapsed, about 10:00 left" in last


def test_short_work_and_other_processes_are_silent(
    clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, rank in ((1, "0"), (1000, "1")):
        monkeypatch.setenv("RANK", rank)
        with progress_bar("scoring", 50) as advance:
            for _ in range(50):
                clock.now += seconds
                advance(1)
    assert not caplog.records


def test_on_a_terminal_a_bar_with_its_note_below_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    record = logging.LogRecord("train", logging.INFO, __file__, 1, "a message", None, None)
    with progress_bar("training", 10, done=4) as advance:
        advance(2, note="loss 0.25")
        with progress_bar("scoring", 8) as score:
            score(3)
            StderrHandler().emit(record)
    before, after = terminal.getvalue().split("a message\n")
    assert before.endswith(("\r", "\x1b[A"))  # bars are cleared
    assert all(part in after for part in ("training", "6/10", "loss 0.25", "scoring", "3/8"))


def test_two_bars_leave_no_control_sequences_in_a_log(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with progress_bar("training", 10) as advance, progress_bar("scoring", 4) as score:
        for _ in range(3):
            clock.now += 70
            advance(1)
            score(1)
    assert [line.split()[:2] for line in caplog.messages] == [
        [f"{name}:", f"{number}"] for number in (1, 2, 3) for name in ("training", "scoring")
    ]
    assert all(line.isprintable() for line in caplog.messages)
