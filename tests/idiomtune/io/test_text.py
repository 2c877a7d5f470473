"""Text from data: its lines, and how it is shown."""

import logging
import logging.config
from pathlib import Path

import pytest
import yaml

from idiomtune.io.files import has_lone_surrogate, one_line, printable, text_lines


def test_printable() -> None:
    for text, expected in (
        ("", None),
        ("two\n\tlines", None),
        ("caf\u00e9, \u6f22\u5b57, \u0645\u0631\u062d\u0628\u0627, \U0001f41d", None),
        ("\U0001f469\u200d\U0001f4bb and \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", None),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J\x85\x7f\r\x00", "\\x9b2J\\x85\\x7f\\r\\x00"),
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


@pytest.mark.parametrize("name", ["console", "follower"])
def test_log_lines_are_harmless(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).resolve().parents[3] / "conf" / "hydra" / "job_logging"
    files = [(folder / f"{part}.yaml").read_text(encoding="utf-8") for part in ("console", name)]
    config, own = (yaml.safe_load(text.replace("${oc.env:RANK,0}", "0")) for text in files)
    formatters = {"simple": config["formatters"]["simple"] | own["formatters"]["simple"]}
    handlers = {"console": config["handlers"]["console"]}
    loggers = {"idioms_of_a_test": {"handlers": ["console"], "propagate": False}}
    parts = {"formatters": formatters, "handlers": handlers, "loggers": loggers}
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **parts})
    logging.getLogger("idioms_of_a_test").error("the idiom %s", "\x1b[2J\u202ea\nb")
    assert capsys.readouterr().err.endswith("the idiom \\x1b[2J\\u202ea\nb\n")
