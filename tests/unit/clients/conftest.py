"""A log in a file, and clients on it that are closed after the test."""

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
    """Makes clients on one log, and closes them."""

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

    def fill(self, topic: str, *values: str, **more: Any) -> None:
        with Producer({"log": self.path}) as producer:
            for value in values:
                producer.produce(topic, value, **more)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Another process writes, for as long as the block."""
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()


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

    def wait(condition: Callable[[], object], within: float = 10.0) -> None:
        end = time.monotonic() + within
        while not condition():
            assert time.monotonic() < end, "It did not happen in time."
            time.sleep(0.002)

    return wait


@pytest.fixture
def read() -> Callable[..., list[Message]]:
    """Polls a consumer until it has given so many records."""

    def take(consumer: Consumer, count: int, within: float = 10.0) -> list[Message]:
        end = time.monotonic() + within
        messages: list[Message] = []
        while len(messages) < count:
            assert time.monotonic() < end, f"Only {len(messages)} records came: {messages}"
            message = consumer.poll(0.1)
            if message is not None:
                messages.append(message)
        return messages

    return take
