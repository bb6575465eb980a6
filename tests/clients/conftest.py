"""Fixtures that run client programs as processes and kill them after the test."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.cluster import clear
from penstock.log import Log, open_log

PROGRAMS = Path(__file__).with_name("programs.py")


class Program:
    """A running program and the events that it has printed."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS), name, *map(str, arguments)],
            stdout=subprocess.PIPE, text=True,
        )
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._reader.start()

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A killed process may leave an incomplete line.
            if line.endswith("\n"):
                self.events.append(json.loads(line))

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["kind"] == kind]

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        code = self.process.wait(30)
        self._reader.join(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def run(name: str, *arguments: object) -> Program:
        running.append(Program(name, *arguments))
        return running[-1]

    yield run
    for program in running:
        program.kill()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    address: str | Path = tmp_path / "log.db"
    if request.param == "kafka":
        address = clear(request.getfixturevalue("penstock_broker").address)
    with open_log(address) as log:
        yield log


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits for a condition, with a deadline."""

    def wait(condition: Callable[[], object], within: float = 30.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, "The condition was not met in time."
            time.sleep(0.005)

    return wait
