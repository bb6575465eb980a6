"""The implementations that must fulfill the contract of a log."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock.log import Log, open_log


class LogUnderTest:
    """One log, and any number of handles to it; each handle stands for a process."""

    def __init__(self, address: str, directory: Path, stack: ExitStack) -> None:
        self._address = address
        self._directory = directory
        self._stack = stack

    def open(self) -> Log:
        return self._stack.enter_context(open_log(self._address))

    def elsewhere(self) -> Log:
        """Return a handle to another log."""
        return self._stack.enter_context(open_log(self._directory / f"{uuid.uuid4().hex}.db"))


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogUnderTest]:
    with ExitStack() as stack:
        address = str(tmp_path / "log.db")
        if request.param == "kafka":
            address = clear(request.getfixturevalue("penstock_broker").address)
        yield LogUnderTest(address, tmp_path, stack)


@pytest.fixture
def log(logs: LogUnderTest) -> Log:
    return logs.open()
