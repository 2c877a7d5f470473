"""What a program without a configuration does when it cannot go on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from train.errors import UserError
from train.programs.ending import run_plain


def test_each_end_has_its_message_and_status(capsys: pytest.CaptureFixture[str]) -> None:
    def program(arguments: Sequence[str]) -> int:
        if arguments == ["wrong"]:
            raise UserError("wrong=: is wrong")
        if arguments == ["stop"]:
            raise KeyboardInterrupt
        return 3

    assert run_plain(program, ["fine"], "how it is used") == 3
    assert run_plain(program, ["wrong"], "") == 2
    assert capsys.readouterr().err == "error: wrong=: is wrong\n"
    assert run_plain(program, ["stop"], "") == 130
    assert "Traceback" not in capsys.readouterr().err
    assert run_plain(program, ["wrong", "--help"], "how it is used") == 0
    assert capsys.readouterr().out == "how it is used\n"
