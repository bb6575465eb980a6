"""Compares penstock with Kafka Streams 4.3.0 for Java, on one broker and the same input.

Every topology exists twice: in tests/kafka/java and in comparison_topologies.py. The last one is
the application of examples/orders. Both run side by side, with different application ids and output
topics. For each output topic, the records of every key must be equal and in the same order:
partition, key, value and timestamp, byte by byte. The changelog topics must have the same names and
hold the same rows.

Everything runs in both execution modes of penstock, in this process; two of the topologies run on
Spark as well.

Caches are off, so every change of every record is compared. comparison_input.py explains why there
is only one correct result. Kafka Streams emits results of closed windows and outer joins at most
once per second of the wall clock. These two intervals are set to 0, because its results would
otherwise depend on its speed. No topology uses stream-time punctuation: on a broker, Kafka Streams
checks for due punctuations after as many records as it happened to poll at once.
"""

from __future__ import annotations

import json
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orders.topology
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from kafka import java_programs
from kafka.cluster import clear
from kafka.comparison_input import PARTITIONS, TOPICS, feed, phases
from kafka.comparison_topologies import TOPOLOGIES
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.broker.cluster import ClusterStatus
from penstock.log import open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ORDERS = "orders"
NAMES = (*TOPOLOGIES, ORDERS)
ORDERS_OUTPUTS = tuple(
    f"{kind}-{what}" for kind in ("general", "restaurant") for what in ("orders", "orders-revenue")
)
ON_SPARK = ("count_words", "suppressed_by_region")
TIMEOUT_S = 120.0
JAVA_SETTINGS = (
    "statestore.cache.max.bytes=0", "commit.interval.ms=50",
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__=0",
    "__emit.interval.ms.kstreams.windowed.aggregation__=0",
)

#: Changelogs of buffers, and the topic of their records, both without the application id.
BUFFERS = {"closed-store-changelog": "closing-repartition"}

#: (partition, key) -> (value, timestamp) of each record, in order.
Sequences = dict[tuple[int, bytes], list[tuple[bytes | None, int]]]


#: (partition, key) -> the row of a store.
Rows = dict[tuple[int, bytes], tuple[bytes, int]]


class Read(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes
    value: bytes | None
    time: int


#: The records of each topic, in the order of each partition.
Topics = dict[str, list[Read]]


# ---- run both --------------------------------------------------------------------------------


class Java:
    """The process that runs all topologies with Kafka Streams."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_until_caught_up(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("wait\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line == "caught up\n", f"Kafka Streams has stopped: {line}"


@contextmanager
def java(class_path: str, broker: ClusterStatus, directory: Path) -> Iterator[Java]:
    # The process has shorter deadlines of its own. This one is for a process that hangs.
    command = java_programs.command(
        class_path, "RunCompared", broker.bootstrap_servers, "java", *JAVA_SETTINGS,
        f"state.dir={directory / 'java-state'}",
        flags=("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    )
    with open(directory / "java.log", "w", encoding="utf-8") as errors, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        watch = threading.Timer(3 * TIMEOUT_S, process.kill)
        watch.start()
        try:
            yield Java(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(TIMEOUT_S) == 0
        except AssertionError as error:
            logged = (directory / "java.log").read_text(encoding="utf-8")[-4000:]
            raise AssertionError(f"{error}\n{logged}") from error
        finally:
            watch.cancel()
            process.kill()


def topology(name: str, output: str) -> Topology:
    if name == ORDERS:
        return orders.topology.build()
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder, output)
    return builder.build()


def streams(
    name: str, broker: ClusterStatus, directory: Path, execution: str,
    prefix: str = "penstock", master: str = "inline",
) -> Streams:
    config = StreamsConfig(
        application_id=f"{prefix}-{name}", log=broker.address,
        state_dir=str(directory / "penstock-state"), statestore_cache_max_bytes=0,
        commit_interval_ms=0, execution=execution,
    )
    if name != ORDERS:
        # The serdes of the orders application are inferred, which default serdes would prevent.
        config = config.with_(
            default_key_serde=Serdes.string(), default_value_serde=Serdes.string()
        )
    return Streams(topology(name, f"{prefix}-{name}"), config, master=master)


def outputs(name: str) -> dict[str, str]:
    """Return each output topic of penstock with that of Kafka Streams."""
    if name == ORDERS:
        return {topic: f"java-orders-{topic}" for topic in ORDERS_OUTPUTS}
    return {f"penstock-{name}": f"java-{name}"}


@pytest.fixture(
    scope="module", params=[pytest.param("batch", marks=pytest.mark.exhaustive), "continuous"]
)
def execution(request: pytest.FixtureRequest) -> str:
    mode: str = request.param
    return mode


@pytest.fixture(scope="module")
def topics(
    penstock_broker: ClusterStatus, java_class_path: str, execution: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Topics:
    """Return all records after both have processed all phases of the input."""
    directory = tmp_path_factory.mktemp("comparison")
    with open_log(clear(penstock_broker.address)) as log:
        created = [topic for name in NAMES for pair in outputs(name).items() for topic in pair]
        for topic in (*TOPICS, *created):
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        first, *rest = phases()
        feed(log, first)
        with java(java_class_path, penstock_broker, directory) as running, ExitStack() as stack:
            applications = [
                stack.enter_context(streams(name, penstock_broker, directory, execution))
                for name in NAMES
            ]
            for rows in ([], *rest):
                if rows:
                    feed(log, rows)
                for application in applications:
                    application.run_until_caught_up(timeout=TIMEOUT_S)
                running.wait_until_caught_up()
            for application in applications:
                # Close all at once. The end of the block waits for each.
                application.close(0)
        wanted = [
            topic.name for topic in log.topics()
            if topic.name in created or topic.name.endswith("-changelog")
        ]
        return read(penstock_broker, wanted)


def read(broker: ClusterStatus, wanted: list[str]) -> Topics:
    """Read whole topics with one consumer of all their partitions."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": "reader",
        "enable.auto.commit": False, "isolation.level": "read_committed",
        "enable.partition.eof": True, "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 5,
    })
    found: Topics = {topic: [] for topic in wanted}
    try:
        known = consumer.list_topics().topics
        left = {(topic, number) for topic in wanted for number in known[topic].partitions}
        consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in left])
        deadline = time.monotonic() + TIMEOUT_S
        while left:
            assert time.monotonic() < deadline, f"not read to the end: {left}"
            for message in consumer.consume(10_000, 0.2):
                topic, partition = message.topic(), message.partition()
                if message.error() is None:
                    found[topic].append(
                        Read(partition, message.key(), message.value(), message.timestamp()[1])
                    )
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    left.discard((topic, partition))
    finally:
        consumer.close()
    return found


# ---- compare ---------------------------------------------------------------------------------


def sequences(topics: Topics, topic: str) -> Sequences:
    found: Sequences = {}
    for record in topics[topic]:
        found.setdefault(record[:2], []).append((record.value, record.time))
    return found


def stores(topics: Topics, application: str) -> dict[str, Rows]:
    """Return the rows of an application's stores. The names have no application id."""
    found: dict[str, Rows] = {}
    for topic, records in topics.items():
        if not (topic.startswith(f"{application}-") and topic.endswith("-changelog")):
            continue
        rows = found.setdefault(topic.removeprefix(f"{application}-"), {})
        for record in records:
            if record.value is None:
                rows.pop(record[:2], None)
            else:
                rows[record[:2]] = (record.value, record.time)
    return found


def without_source(rows: Rows, source: str) -> Rows:
    """Return the rows of a buffer without the parts that depend on the application.

    A row begins with the context of its record: time, offset, and the name of the source topic,
    which begins with the application id. Offsets depend on the number of transactions before, which
    have one offset each. Kafka Streams writes these rows with the time of the wall clock.
    """
    name = struct.pack(">i", len(source)) + source.encode()
    assert all(value[16:].startswith(name) for value, _ in rows.values())
    return {key: (value[:8] + value[16 + len(name):], 0) for key, (value, _) in rows.items()}


def decode_json(value: bytes | None) -> Any:
    """Decode a JSON object. The order of its fields is not defined."""
    return None if value is None or not value.startswith(b"{") else json.loads(value)


def are_equal(actual: tuple[bytes | None, int], expected: tuple[bytes | None, int]) -> bool:
    if actual == expected:
        return True
    decoded = decode_json(actual[0])
    return (
        actual[1] == expected[1] and decoded is not None and decoded == decode_json(expected[0])
    )


def assert_same(found: Sequences, expected: Sequences, topic: str) -> None:
    assert expected, f"Kafka Streams has written no records to compare {topic} with"
    assert found.keys() == expected.keys()
    for key, records in expected.items():
        pairs = list(zip(found[key], records, strict=False))
        at = next((n for n, pair in enumerate(pairs) if not are_equal(*pair)), len(pairs))
        assert at == len(records) == len(found[key]), (
            f"{topic}, key {key}: record {at} of {len(found[key])} and the next are "
            f"{found[key][at : at + 2]} instead of {records[at : at + 2]} of {len(records)}"
        )


@pytest.mark.parametrize("name", NAMES)
def test_records_of_every_key_are_equal_and_in_order(topics: Topics, name: str) -> None:
    for actual, expected in outputs(name).items():
        assert_same(sequences(topics, actual), sequences(topics, expected), actual)


@pytest.mark.parametrize("name", NAMES)
def test_changelogs_hold_the_same_rows(topics: Topics, name: str) -> None:
    actual, expected = (
        {
            changelog: without_source(rows, f"{application}-{BUFFERS[changelog]}")
            if changelog in BUFFERS else rows
            for changelog, rows in stores(topics, application).items()
        }
        for application in (f"penstock-{name}", f"java-{name}")
    )
    assert actual.keys() == expected.keys()
    for changelog, rows in expected.items():
        found = actual[changelog]
        different = [
            key for key in rows.keys() | found.keys()
            if key not in rows or key not in found or not are_equal(found[key], rows[key])
        ]
        assert not different, f"{changelog}, of {len(rows)} rows: " + "; ".join(
            f"{key}: {found.get(key)} instead of {rows.get(key)}" for key in different[:3]
        )


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_results_on_spark_are_equal(
    topics: Topics, penstock_broker: ClusterStatus, execution: str, tmp_path: Path, name: str
) -> None:
    """These topologies read one topic, so all phases can be processed at once."""
    output = f"spark-{name}"
    with open_log(penstock_broker.address) as log:
        log.create_topic(output, PARTITIONS, {"retention.ms": "-1"})
    with streams(
        name, penstock_broker, tmp_path, execution, "spark", "local[2]"
    ) as application:
        application.run_until_caught_up(timeout=TIMEOUT_S)
    found = read(penstock_broker, [output])
    assert_same(sequences(found, output), sequences(topics, f"java-{name}"), output)
