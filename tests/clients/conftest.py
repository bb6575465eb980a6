"""Processes whose lines a test can wait for; they are killed after it."""

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
    """A running program and what it has told so far."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.told: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS), name, *map(str, arguments)],
            stdout=subprocess.PIPE, text=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A process that is killed may leave half a line.
            if line.endswith("\n"):
                self.told.append(json.loads(line))

    def heard(self, what: str) -> list[dict[str, Any]]:
        return [line for line in list(self.told) if line["what"] == what]

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
    where: str | Path = tmp_path / "log.db"
    if request.param == "kafka":
        where = clear(request.getfixturevalue("penstock_broker").address)
    with open_log(where) as log:
        yield log


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits for a condition, with a deadline."""

    def wait(condition: Callable[[], object], within: float = 30.0) -> None:
        end = time.monotonic() + within
        while not condition():
            assert time.monotonic() < end, "It did not happen in time."
            time.sleep(0.005)

    return wait
