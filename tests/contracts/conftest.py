"""The logs that have to keep the contract."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock.log import Log, open_log


class LogUnderTest:
    """One log, and as many handles to it as a test wants; each stands for a process."""

    def __init__(self, where: str | Path, elsewhere: Path, stack: ExitStack) -> None:
        self._where = where
        self._elsewhere = elsewhere
        self._stack = stack

    @property
    def is_kafka(self) -> bool:
        return isinstance(self._where, str)

    def open(self) -> Log:
        return self._stack.enter_context(open_log(self._where))

    def elsewhere(self) -> Log:
        """A handle to another log."""
        return self._stack.enter_context(open_log(self._elsewhere / f"{uuid.uuid4().hex}.db"))


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogUnderTest]:
    with ExitStack() as stack:
        where: str | Path = tmp_path / "log.db"
        if request.param == "kafka":
            where = request.getfixturevalue("penstock_broker").address
            clear(str(where))
        yield LogUnderTest(where, tmp_path, stack)


@pytest.fixture
def log(logs: LogUnderTest) -> Log:
    return logs.open()
