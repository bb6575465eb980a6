"""The implementations that must fulfill the contract of a log."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock import native
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


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test on all logs, and on Kafka without native clients if the module says so."""
    if "logs" in metafunc.fixturenames:
        kafka = ["kafka"]
        if getattr(metafunc.module, "ALSO_WITH_PYTHON_CLIENTS", False):
            kafka.append("kafka_python")
        marked = [pytest.param(name, marks=pytest.mark.kafka) for name in kafka]
        metafunc.parametrize("logs", ["embedded", *marked], indirect=True)


@pytest.fixture
def logs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LogUnderTest]:
    with ExitStack() as stack:
        address = str(tmp_path / "log.db")
        if request.param != "embedded":
            address = clear(request.getfixturevalue("penstock_broker").address)
        if request.param == "kafka_python":
            monkeypatch.setattr(native, "rdkafka", lambda: None)
        yield LogUnderTest(address, tmp_path, stack)


@pytest.fixture
def log(logs: LogUnderTest) -> Log:
    return logs.open()
