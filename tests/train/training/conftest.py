"""What these tests share: a process that forks what is launched or killed; runs without a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest

from tests.attempts import Attempts
from tests.launches import Launches

Show = Callable[..., Any]


@pytest.fixture(scope="session")
def launches() -> Iterator[Launches]:
    with closing(Launches()) as started:
        yield started


@pytest.fixture(scope="session")
def attempts(launches: Launches) -> Attempts:
    return Attempts(launches)


@pytest.fixture(scope="module", autouse=True)
def _no_page() -> Iterator[Show]:
    """A finished run's page and its last screen take a third of the time of a run."""
    from train.reports import screens

    show = screens.show_finished_run
    with patch.object(screens, "show_finished_run"):
        yield show


@pytest.fixture
def shown(_no_page: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """With these, for tests that look at them."""
    monkeypatch.setattr("train.reports.screens.show_finished_run", _no_page)
