"""Text from data: its lines, and how it is shown."""

import logging
import logging.config

import pytest

from idiomtune.io.files import has_lone_surrogate, one_line, printable, text_lines
from idiomtune.io.terminal import log_to_stderr


def test_printable() -> None:
    for text, expected in (
        ("", None),
        ("two\n\tlines", None),
        ("caf\u00e9, \u6f22\u5b57, \u0645\u0631\u062d\u0628\u0627, \U0001f41d", None),
        ("\U0001f469\u200d\U0001f4bb and \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", None),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\u202eb\u2066c\u200fd", "a\\u202eb\\u2066c\\u200fd"),
        ("a\u2028b\u2029c\ufeff", "a\\u2028b\\u2029c\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ):
        shown = printable(text)
        assert shown == (text if expected is None else expected)
        assert printable(shown) == shown
        shown.encode()


def test_lines_end_at_a_line_feed_alone() -> None:
    inside = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"
    assert (
        text_lines(f"{inside}\n\n{inside}\n") == text_lines(f"{inside}\n\n{inside}") == [inside, "", inside]
    )
    assert (text_lines(""), text_lines("\n")) == ([], [""])
    assert one_line("a\nb\tc\x1b") == "a\\nb\\tc\\x1b"
    assert has_lone_surrogate("a\ud800")
    assert not has_lone_surrogate("a\U0001f41d")


@pytest.mark.parametrize("rank", ["0", "1"])
def test_log_lines_are_harmless(
    rank: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(logging.root, "handlers", [])
    log_to_stderr()
    logging.getLogger("idioms_of_a_test").error("the idiom %s", "\x1b[2J\u202ea\nb")
    message = capsys.readouterr().err
    assert message.endswith("the idiom \\x1b[2J\\u202ea\nb\n")
    assert ("process 1: " in message) == (rank == "1")
