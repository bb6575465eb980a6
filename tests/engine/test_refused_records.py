"""Records that a topic does not take: the production handler is asked, before the commit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.living import PATIENCE_S, TEXT
from kafka.cluster import clear
from penstock import Streams, StreamsBuilder, StreamsConfig, StreamsException
from penstock.broker.cluster import ClusterStatus
from penstock.engine.inline import start_inline
from penstock.handlers import ErrorHandlerContext, ProducedRecord, Response, Result
from penstock.log import Log, RecordColumns, open_log
from penstock.log.errors import InvalidRecord

HOUR_MS = 3_600_000
ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}


@pytest.fixture(params=["embedded", pytest.param(
    "kafka", marks=[pytest.mark.kafka, pytest.mark.slow]
)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    if request.param == "kafka":
        broker: ClusterStatus = request.getfixturevalue("penstock_broker")
        address = clear(broker.address)
    else:
        address = str(tmp_path / "log.db")
    with open_log(address) as log:
        log.create_topic("in", 1, ANY_TIME)
        yield log


class Asked:
    """A handler that leaves records out, and remembers them."""

    records: ClassVar[list[tuple[ProducedRecord, str]]] = []

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, error: Exception
    ) -> Response:
        self.records.append((record, str(error)))
        return Response(Result.RESUME)

    def handle_serialization_error(self, *_: Any) -> Response:
        raise AssertionError("everything can be written")


def run(
    log: Log, directory: Path, *, by_choice: bool = False, compute: Any = None, **settings: Any
) -> Streams:
    builder = StreamsBuilder()
    target: Any = (lambda key, value, context: "out") if by_choice else "out"
    builder.stream("in", key=TEXT, value=TEXT).to(target, key=TEXT, value=TEXT)
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=directory / "state", **settings
    )
    with Streams(builder.build(), config, master="inline", compute=compute) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    return streams


def values(log: Log) -> list[Any]:
    return [value for batch in log.read("out", 0, 0) for value in batch.columns().values]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


#: What a topic is like, and a (key, timestamp) that it does not take; the time is from now.
REFUSED = [
    pytest.param({"cleanup.policy": "compact"}, (None, 0), "without a key", id="no key"),
    pytest.param({}, (b"k", 2 * HOUR_MS), r"message\.timestamp\.after\.max\.ms", id="too late"),
    pytest.param(
        {"message.timestamp.before.max.ms": str(HOUR_MS)}, (b"k", -2 * HOUR_MS),
        r"message\.timestamp\.before\.max\.ms", id="too early",
    ),
]


@pytest.mark.parametrize(("settings", "row", "why"), REFUSED)
@pytest.mark.parametrize("by_choice", [False, True], ids=["one topic", "a topic for each record"])
def test_the_handler_may_leave_out_what_a_topic_does_not_take(
    log: Log, tmp_path: Path, settings: Any, row: Any, why: str, by_choice: bool
) -> None:
    log.create_topic("out", 1, settings)
    now = now_ms()
    log.append("in", 0, RecordColumns(
        [b"a", row[0], b"b"], [b"1", b"2", b"3"], [now, now + row[1], now]
    ))
    Asked.records.clear()
    run(log, tmp_path, by_choice=by_choice, production_exception_handler=Asked)
    assert values(log) == [b"1", b"3"]
    [(record, told)] = Asked.records
    assert (record.topic, record.key, record.value) == ("out", row[0], b"2")
    assert re.search(why, told)


@pytest.mark.parametrize(("settings", "row", "why"), REFUSED)
def test_without_a_handler_it_ends_the_application(
    log: Log, tmp_path: Path, settings: Any, row: Any, why: str
) -> None:
    log.create_topic("out", 1, settings)
    log.append("in", 0, RecordColumns([row[0]], [b"2"], [now_ms() + row[1]]))
    with pytest.raises(StreamsException, match=why) as caught:
        run(log, tmp_path)
    assert not isinstance(caught.value, InvalidRecord)
    assert values(log) == []


class Changing:
    """Computes in this process; then the topic changes, before the commit."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.batches = 0

    def start(self, *application: Any) -> Changing:
        self._inner = start_inline(*application)
        return self

    def compute(self, plan: Any) -> list[bytes]:
        found = self._inner.compute(plan)
        self._log.alter_topic("out", {"cleanup.policy": "compact"})
        self.batches += 1
        return found

    def cancel(self) -> None:
        self._inner.cancel()

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_handler_is_asked_about_a_topic_that_has_changed_meanwhile(
    log: Log, tmp_path: Path, goes_on: bool
) -> None:
    log.create_topic("out", 1)
    log.append("in", 0, RecordColumns([b"a", None], [b"1", b"2"]))
    changing = Changing(log)
    if goes_on:
        run(log, tmp_path, production_exception_handler="continue", compute=changing.start)
        assert values(log) == [b"1"]
    else:
        with pytest.raises(StreamsException, match="without a key") as caught:
            run(log, tmp_path, compute=changing.start)
        # The task has said so: the first batch was refused by the log, the second never got there.
        assert not isinstance(caught.value, InvalidRecord)
        assert values(log) == []
    assert changing.batches == 2


def test_the_times_of_a_topic_with_a_clock_of_its_own_are_not_looked_at(
    log: Log, tmp_path: Path
) -> None:
    log.create_topic("out", 1, {"message.timestamp.type": "LogAppendTime"})
    log.append("in", 0, RecordColumns([b"a"], [b"1"], [now_ms() + 2 * HOUR_MS]))
    run(log, tmp_path)
    assert values(log) == [b"1"]
