"""What these tests share: a process that forks what is launched or killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.attempts import Attempts
from tests.launches import Launches


@pytest.fixture(scope="session")
def launches() -> Iterator[Launches]:
    with closing(Launches()) as started:
        yield started


@pytest.fixture(scope="session")
def attempts(launches: Launches) -> Attempts:
    return Attempts(launches)
