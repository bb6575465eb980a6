from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contracts.log_records import NOW
from penstock.log import Log, open_log


class Clock:
    """A wall clock that the test controls."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def open_handle(path: Path, clock: Clock) -> Iterator[Callable[..., Log]]:
    """Open handles to the log of the test."""
    with ExitStack() as stack:

        def open_it(**options: Any) -> Log:
            return stack.enter_context(open_log(path, **{"clock": clock, **options}))

        yield open_it


@pytest.fixture
def log(open_handle: Callable[..., Log]) -> Log:
    return open_handle()
