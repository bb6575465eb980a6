"""An embedded log, and clients on it that are closed after the test."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.clients import AdminClient, Consumer, Message, Producer
from penstock.log import Log, open_log


class Clients:
    """Creates clients on one log and closes them."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self._stack = stack

    def producer(self, **config: Any) -> Producer:
        return self._stack.enter_context(Producer({"log": self.path}, **config))

    def consumer(self, **config: Any) -> Consumer:
        settings = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 20, **config}
        return self._stack.enter_context(Consumer({"log": self.path}, **settings))

    def admin(self) -> AdminClient:
        return self._stack.enter_context(AdminClient({"log": self.path}))

    def fill(self, topic: str, *values: str, **fields: Any) -> None:
        with Producer({"log": self.path}) as producer:
            for value in values:
                producer.produce(topic, value, **fields)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Hold the write lock of the log file during the block."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with open_log(path) as log:
        yield log


@pytest.fixture
def clients(path: Path, log: Log) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(path, stack)


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits for a condition, with a deadline."""

    def wait(condition: Callable[[], object], within: float = 120.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, "The condition was not met in time."
            time.sleep(0.002)

    return wait


@pytest.fixture
def read() -> Callable[..., list[Message]]:
    """Polls a consumer until it has returned `count` records."""

    def take(consumer: Consumer, count: int, within: float = 120.0) -> list[Message]:
        deadline = time.monotonic() + within
        messages: list[Message] = []
        while len(messages) < count:
            assert time.monotonic() < deadline, f"The consumer returned only {messages}"
            message = consumer.poll(0.1)
            if message is not None:
                messages.append(message)
        return messages

    return take
