"""Bad records of global topics: Kafka Streams 4.3.0 and penstock on the same broker.

Both get the same records and the same properties. They must continue or stop in the same cases, and
write the same output. Two cases are deliberately different, see docs/compatibility.md (Y8).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.cluster import clear
from kafka.handler_scenarios import (
    GARBAGE,
    PARTITION,
    STORE,
    Java,
    Outcome,
    Scenario,
    append,
    create_topics,
    java,
    logged_lines,
    look_up,
    penstock_streams,
    rate,
    run_penstock,
    texts,
)
from penstock import ProcessingFailedException
from penstock.broker.cluster import ClusterStatus
from penstock.log import Log, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

GOOD = (rate("good", 5),)
BAD_BYTES = (*GOOD, (b"bad", GARBAGE), rate("after", 4))
BAD_VALUE = (*GOOD, rate("bad", 0), rate("after", 4))

#: Name -> scenario, whether it stops, and the number of dropped records if it does not.
EQUAL: dict[str, tuple[Scenario, bool, int]] = {
    "table": (Scenario("global_table", before=GOOD, later=(rate("more", 4),)), False, 0),
    "table-later-fail": (Scenario("global_table", before=GOOD, later=BAD_BYTES), True, 0),
    "table-later-continue": (
        Scenario("global_table", "deserialization", GOOD, BAD_BYTES), False, 1
    ),
    "store": (Scenario("global_store", before=GOOD, later=(rate("more", 4),)), False, 0),
    "store-later-fail": (Scenario("global_store", before=GOOD, later=BAD_BYTES), True, 0),
    "store-later-continue": (
        Scenario("global_store", "deserialization", GOOD, BAD_BYTES), False, 1
    ),
    "store-restored-fail": (Scenario("global_store", before=BAD_BYTES), True, 0),
    "store-restored-continue": (Scenario("global_store", "deserialization", BAD_BYTES), False, 1),
    # A handler for processors is not called for global stores.
    "processor-later": (Scenario("global_store", "processing", GOOD, BAD_VALUE), True, 0),
    "processor-restored": (Scenario("global_store", "processing", BAD_VALUE), True, 0),
    "processor-later-enabled": (Scenario("global_store", "enabled", GOOD, BAD_VALUE), False, 1),
    "processor-restored-enabled": (Scenario("global_store", "enabled", BAD_VALUE), False, 1),
    "processor-dead-letters": (
        Scenario("global_store", "enabled", GOOD, BAD_VALUE, dead_letters=True), False, 1
    ),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("handlers")


@pytest.fixture(scope="module")
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as opened:
        yield opened


@pytest.fixture(scope="module")
def kafka_streams(
    penstock_broker: ClusterStatus, java_class_path: str, directory: Path, log: Log
) -> Iterator[Java]:
    with java(java_class_path, penstock_broker, directory) as running:
        yield running


@pytest.mark.parametrize("name", EQUAL)
def test_both_stop_or_continue_with_the_same_results(
    name: str, kafka_streams: Java, log: Log, penstock_broker: ClusterStatus, directory: Path
) -> None:
    scenario, stops, dropped = EQUAL[name]
    expected = kafka_streams.run(log, name, scenario)
    found = run_penstock(log, penstock_broker, directory, name, scenario)
    assert (expected.has_stopped, found.has_stopped) == (stops, stops), (expected, found)
    assert found.outputs == expected.outputs
    assert (found.dead_letters, expected.dead_letters) == (0, 0)
    if stops:
        assert f"topic penstock-{name}-rates, partition {PARTITION}, offset " in found.failure
    else:
        assert (expected.dropped, found.dropped) == (dropped, dropped)
        assert found.restored == expected.restored
        assert {each[:2] for each in found.restored} == {(0, STORE), (1, STORE)}


def both(
    name: str, scenario: Scenario, running: Java, log: Log, broker: ClusterStatus, directory: Path
) -> tuple[Outcome, Outcome]:
    return (
        running.run(log, name, scenario),
        run_penstock(log, broker, directory, name, scenario),
    )


def test_dead_letter_of_unreadable_bytes_stops_kafka_streams_only(
    kafka_streams: Java, log: Log, penstock_broker: ClusterStatus, directory: Path
) -> None:
    """Its global thread has no producer, which the handling of these dead letters ignores."""
    scenario = Scenario("global_table", "deserialization", GOOD, BAD_BYTES, dead_letters=True)
    expected, found = both(
        "dead-letters", scenario, kafka_streams, log, penstock_broker, directory
    )
    assert "ClassCastException" in expected.failure
    assert not found.has_stopped
    assert (expected.dead_letters, found.dead_letters, found.dropped) == (0, 0, 1)


def test_restored_table_is_read_by_penstock_but_only_copied_by_kafka_streams(
    kafka_streams: Java, log: Log, penstock_broker: ClusterStatus, directory: Path
) -> None:
    """Kafka Streams finds the bad row when a join looks it up, in the task of the stream."""
    scenario = Scenario("global_table", before=BAD_BYTES)
    expected, found = both(
        "table-restored", scenario, kafka_streams, log, penstock_broker, directory
    )
    assert (expected.has_stopped, found.has_stopped) == (False, True)
    assert expected.outputs[:2] == ["after=4", "good=5"]
    assert "offset 1 cannot be deserialized" in found.failure
    # The row itself.
    kafka_streams.order("start", "java-table-restored", "global_table")
    look_up(log, "java-table-restored", "bad")
    response = kafka_streams.order("await", "java-table-restored")
    assert "SerializationException" in response["failure"]


def test_restart_after_a_failure_stops_penstock_again_but_not_kafka_streams(
    kafka_streams: Java, log: Log, penstock_broker: ClusterStatus, directory: Path
) -> None:
    for application in ("java-again", "penstock-again"):
        create_topics(log, application)
        append(log, f"{application}-rates", PARTITION, *GOOD)
    kafka_streams.order("start", "java-again", "global_table")
    assert not kafka_streams.order("await", "java-again", "good")["failure"]
    append(log, "java-again-rates", PARTITION, (b"bad", GARBAGE))
    assert kafka_streams.order("await", "java-again", "bad")["failure"]
    kafka_streams.order("close", "java-again")
    kafka_streams.order("start", "java-again", "global_table")
    look_up(log, "java-again", "good")
    assert not kafka_streams.order("await", "java-again", "good")["failure"]
    assert texts(log, "java-again") == ["good=5"]

    append(log, "penstock-again-rates", PARTITION, (b"bad", GARBAGE))
    look_up(log, "penstock-again", "good")
    for _ in range(2):
        streams = penstock_streams(
            penstock_broker, directory, "penstock-again", "global_table", {}
        )
        with pytest.raises(ProcessingFailedException, match="partition 1, offset 1"):
            streams.run_until_caught_up(timeout=60)
        streams.close(60)


def test_both_count_the_same_dropped_records(
    kafka_streams: Java, log: Log, penstock_broker: ClusterStatus, directory: Path
) -> None:
    """Null keys in a table, two aggregations and a join; a late record in one aggregation."""
    counts, now = [], int(time.time() * 1000)
    for application in ("java-drops", "penstock-drops"):
        create_topics(log, application, rates=1)
        append(
            log, f"{application}-rates", 0, (b"k", b"rate"), (None, b"no key"),
            times=(now - 9_000, now - 8_000),
        )
        append(
            log, f"{application}-calls", 0, (b"k", b"1"), (None, b"no key"), (b"k", b"late"),
            times=(now, now, now - 5_000),
        )
    kafka_streams.order("start", "java-drops", "dropped_records")
    counts.append(kafka_streams.order("await", "java-drops")["dropped"])
    kafka_streams.order("close", "java-drops")
    streams = penstock_streams(
        penstock_broker, directory, "penstock-drops", "dropped_records", {}
    )
    with streams:
        streams.run_until_caught_up(timeout=60)
        counts.append(sum(
            int(value) for metric, value in streams.metrics().items()
            if metric.name == "dropped-records-total"
        ))
    assert texts(log, "java-drops") == texts(log, "penstock-drops") == ["1=rate", "late=rate"]
    assert counts == [5, 5]


def test_both_log_the_same_dropped_records(
    kafka_streams: Java, log: Log, penstock_broker: ClusterStatus, directory: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One null key, one late record and one out-of-order update for each node that logs them.

    A null key before an implicit repartition is in no log and in no count.
    """
    now = int(time.time() * 1000)
    for application in ("java-lines", "penstock-lines"):
        create_topics(log, application, rates=2, calls=2)
        append(
            log, f"{application}-rates", PARTITION, (b"k", b"rate"), (None, b"no key"),
            (b"k", b"older"), times=(now - 9_000, now - 8_000, now - 9_500),
        )
        append(
            log, f"{application}-calls", PARTITION, (b"k", b"1"), (None, b"no key"),
            (b"k", b"late"), times=(now, now, now - 5_000),
        )
    kafka_streams.order("start", "java-lines", "dropped_everywhere")
    expected_count = kafka_streams.order("await", "java-lines")["dropped"]
    kafka_streams.order("close", "java-lines")
    streams = penstock_streams(
        penstock_broker, directory, "penstock-lines", "dropped_everywhere", {}
    )
    with caplog.at_level(logging.WARNING, "penstock.task.drops"), streams:
        streams.run_until_caught_up(timeout=60)
        count = sum(
            int(value) for metric, value in streams.metrics().items()
            if metric.name == "dropped-records-total"
        )
    expected = kafka_streams.dropped_lines("java-lines")
    found = logged_lines([
        record.getMessage() for record in caplog.records
        if record.name == "penstock.task.drops" and record.levelno == logging.WARNING
    ], "penstock-lines")
    assert found == expected
    assert ("null", "-rates", PARTITION, 1) in expected
    assert ("out-of-order", "-rates", PARTITION, 2) in expected
    assert ("null", "-calls", PARTITION, 1) in expected
    assert ("expired window", "-calls", PARTITION, 2) in expected
    assert count == expected_count
