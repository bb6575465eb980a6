"""The logs that have to keep the contract."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.log import Log, open_log


class LogUnderTest:
    """One log, and as many handles to it as a test wants; each stands for a process."""

    def __init__(self, where: Path, stack: ExitStack) -> None:
        self._where = where
        self._stack = stack

    def open(self) -> Log:
        return self._stack.enter_context(open_log(self._where))

    def elsewhere(self) -> Log:
        """A handle to another log."""
        return self._stack.enter_context(
            open_log(self._where.with_name(f"{uuid.uuid4().hex}.db"))
        )


@pytest.fixture(params=["embedded"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogUnderTest]:
    with ExitStack() as stack:
        yield LogUnderTest(tmp_path / "log.db", stack)


@pytest.fixture
def log(logs: LogUnderTest) -> Log:
    return logs.open()
