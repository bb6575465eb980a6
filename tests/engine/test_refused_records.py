"""Records that a topic refuses go to the production handler before the commit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.instances import PATIENCE_S, TEXT
from kafka.cluster import clear
from penstock import Streams, StreamsBuilder, StreamsConfig, StreamsException
from penstock.broker.cluster import ClusterStatus
from penstock.clock import wall_clock_ms
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


class SkipAndRecord:
    """A handler that skips records and remembers them."""

    records: ClassVar[list[tuple[ProducedRecord, str]]] = []

    def handle_error(
        self, context: ErrorHandlerContext, record: ProducedRecord, error: Exception
    ) -> Response:
        self.records.append((record, str(error)))
        return Response(Result.RESUME)

    def handle_serialization_error(self, *_: Any) -> Response:
        raise AssertionError("all records can be serialized")


def run(
    log: Log, directory: Path, *, dynamic_topic: bool = False, compute: Any = None, **settings: Any
) -> Streams:
    builder = StreamsBuilder()
    target: Any = (lambda key, value, context: "out") if dynamic_topic else "out"
    builder.stream("in", key=TEXT, value=TEXT).to(target, key=TEXT, value=TEXT)
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=directory / "state", **settings
    )
    with Streams(builder.build(), config, master="inline", compute=compute) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    return streams


def values(log: Log) -> list[Any]:
    return [value for batch in log.read("out", 0, 0) for value in batch.columns().values]


#: The settings of a topic, a (key, timestamp offset from now) that it refuses, and the message.
REFUSED = [
    pytest.param({"cleanup.policy": "compact"}, (None, 0), "without a key", id="no key"),
    pytest.param({}, (b"k", 2 * HOUR_MS), r"message\.timestamp\.after\.max\.ms", id="too late"),
    pytest.param(
        {"message.timestamp.before.max.ms": str(HOUR_MS)}, (b"k", -2 * HOUR_MS),
        r"message\.timestamp\.before\.max\.ms", id="too early",
    ),
]


@pytest.mark.parametrize(("settings", "row", "message"), REFUSED)
@pytest.mark.parametrize("dynamic_topic", [False, True], ids=["fixed topic", "dynamic topic"])
def test_handler_can_skip_refused_records(
    log: Log, tmp_path: Path, settings: Any, row: Any, message: str, dynamic_topic: bool
) -> None:
    log.create_topic("out", 1, settings)
    now = wall_clock_ms()
    log.append("in", 0, RecordColumns(
        [b"a", row[0], b"b"], [b"1", b"2", b"3"], [now, now + row[1], now]
    ))
    SkipAndRecord.records.clear()
    run(log, tmp_path, dynamic_topic=dynamic_topic, production_exception_handler=SkipAndRecord)
    assert values(log) == [b"1", b"3"]
    [(record, error)] = SkipAndRecord.records
    assert (record.topic, record.key, record.value) == ("out", row[0], b"2")
    assert re.search(message, error)


@pytest.mark.parametrize(("settings", "row", "message"), REFUSED)
def test_refused_record_without_a_handler_ends_the_application(
    log: Log, tmp_path: Path, settings: Any, row: Any, message: str
) -> None:
    log.create_topic("out", 1, settings)
    log.append("in", 0, RecordColumns([row[0]], [b"2"], [wall_clock_ms() + row[1]]))
    with pytest.raises(StreamsException, match=message) as caught:
        run(log, tmp_path)
    assert not isinstance(caught.value, InvalidRecord)
    assert values(log) == []


class AlteredTopic:
    """Computes in this process, then changes the topic before the commit."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.batches = 0

    def start(self, *application: Any) -> AlteredTopic:
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


@pytest.mark.parametrize("skips", [True, False])
def test_handler_is_called_for_a_topic_that_changed_during_the_batch(
    log: Log, tmp_path: Path, skips: bool
) -> None:
    log.create_topic("out", 1)
    log.append("in", 0, RecordColumns([b"a", None], [b"1", b"2"]))
    changing = AlteredTopic(log)
    if skips:
        run(log, tmp_path, production_exception_handler="continue", compute=changing.start)
        assert values(log) == [b"1"]
    else:
        with pytest.raises(StreamsException, match="without a key") as caught:
            run(log, tmp_path, compute=changing.start)
        # The log refused the first attempt. In the second one the task failed.
        assert not isinstance(caught.value, InvalidRecord)
        assert values(log) == []
    assert changing.batches == 2


def test_timestamps_are_not_checked_with_log_append_time(
    log: Log, tmp_path: Path
) -> None:
    log.create_topic("out", 1, {"message.timestamp.type": "LogAppendTime"})
    log.append("in", 0, RecordColumns([b"a"], [b"1"], [wall_clock_ms() + 2 * HOUR_MS]))
    run(log, tmp_path)
    assert values(log) == [b"1"]
