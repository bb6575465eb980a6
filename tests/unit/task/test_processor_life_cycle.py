"""Failures of `init` and `close` of the user's processors."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Processor, StreamsBuilder
from penstock.errors import StreamsException
from penstock.testing import TopologyTestDriver


class Failing(Processor[Any, Any, Any, Any]):
    """Fails in one of its methods, and notes that it is closed."""

    def __init__(self, method: str, closed: list[str]) -> None:
        self._method = method
        self._closed = closed

    def init(self, context: Any) -> None:
        if self._method == "init":
            raise ValueError("no model")

    def process(self, record: Any) -> None: ...

    def close(self) -> None:
        self._closed.append(self._method)
        if self._method == "close":
            raise OSError("connection lost")


def driver(*methods: str, closed: list[str]) -> TopologyTestDriver:
    builder = StreamsBuilder()
    stream = builder.stream("lines", key=str, value=str)
    for method in methods:
        stream.process(lambda method=method: Failing(method, closed), name=f"fails-in-{method}")
    return TopologyTestDriver(builder.build(), check_pickling=False)


def test_failure_of_init_names_the_processor() -> None:
    with pytest.raises(
        StreamsException,
        match=r"Failed to initialize processor fails-in-init\. taskId=0_0: ValueError: no model",
    ) as raised:
        driver("init", closed=[])
    assert isinstance(raised.value.__cause__, ValueError)


def test_all_processors_are_closed_if_one_fails_to_close() -> None:
    closed: list[str] = []
    run = driver("close", "nothing", closed=closed)
    with pytest.raises(
        StreamsException,
        match=r"Failed to close processor fails-in-close\. taskId=0_0: OSError: connection lost",
    ):
        run.close()
    assert closed == ["close", "nothing"]
