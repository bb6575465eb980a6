"""Helpers of the tests of `Streams`: topologies, records, and waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from penstock import Serdes, State, Streams, StreamsBuilder, Topology
from penstock.engine.inline import start_inline
from penstock.log import Log, RecordColumns

PATIENCE_S = 240.0
TEXT = Serdes.string()
CreateStreams = Callable[..., Streams]


def until(done: Callable[[], object]) -> None:
    """Wait until `done` returns true. Fail only if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.005)


def upper() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(str.upper, name="upper").to("out")
    return builder.build()


def word_count() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=TEXT, value=TEXT)
    words = lines.flat_map_values(lambda line: line.split())
    words.group_by(lambda word: word, key=TEXT, value=TEXT).count(store="counts").to_stream().to(
        "out", key=TEXT, value=Serdes.long()
    )
    return builder.build()


def send(log: Log, *values: str, partition: int = 0) -> None:
    raw = [value.encode() for value in values]
    log.append("in", partition, RecordColumns([None] * len(raw), raw))


def received(log: Log) -> list[Any]:
    return [value for batch in log.read("out", 0, 0) for value in batch.columns().values]


def record_states(streams: Streams) -> list[tuple[State, State]]:
    states: list[tuple[State, State]] = []
    streams.set_state_listener(lambda new, old: states.append((new, old)))
    return states


class BlockedCompute:
    """Computes in this process, after `proceed` is set."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.proceed = threading.Event()
        self._inner: Any = None

    def start(self, *application: Any) -> BlockedCompute:
        self._inner = start_inline(*application)
        return self

    def compute(self, plan: Any) -> list[bytes]:
        self.entered.set()
        assert self.proceed.wait(PATIENCE_S)
        found: list[bytes] = self._inner.compute(plan)
        return found

    def cancel(self) -> None:
        self._inner.cancel()

    def close(self) -> None:
        self._inner.close()


def failing(value: str) -> str:
    if value == "bad":
        raise ValueError("bad value")
    return value.upper()


def failing_topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(failing, name="work").to("out")
    return builder.build()
