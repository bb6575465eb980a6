"""Kafka Streams 4.3.0 for Java and penstock, on one broker, over the same topics, are compared.

Every topology exists twice: in tests/kafka/java and in oracle_topologies.py; the last one is the
application of examples/orders. They run beside each other, under different application ids, into
different output topics. For each output topic the records of every key must be the same, in the
same order: partition, key, value and timestamp, byte by byte. Then the stores: both have changelog
topics of the same names, and these hold the same rows.

penstock runs in this process, two of the topologies on Spark as well.

Nothing is cached, so every change of every record is there to be compared. oracle_input.py says how
the input was made such that there is one answer. Kafka Streams looks for what a closed window or an
outer join has to send at most once a second of the wall clock; these two waits are set to 0, or its
answer would depend on how fast it runs. There is no punctuation by stream time: on a broker Kafka
Streams looks for those that are due after as many records as it happened to take at once.
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
from kafka.oracle_input import PARTITIONS, TOPICS, feed, phases
from kafka.oracle_topologies import TOPOLOGIES
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
PATIENCE_S = 120.0
JAVA_SETTINGS = (
    "statestore.cache.max.bytes=0", "commit.interval.ms=50",
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__=0",
    "__emit.interval.ms.kstreams.windowed.aggregation__=0",
)

#: The changelogs of buffers, and the topic whose records they hold, both without application id.
BUFFERS = {"closed-store-changelog": "closing-repartition"}

#: (value, timestamp) of each record of a key, in order, by partition and key.
Sequences = dict[tuple[int, bytes], list[tuple[bytes | None, int]]]


#: The rows that a store holds, by partition and key.
Rows = dict[tuple[int, bytes], tuple[bytes, int]]


class Read(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes
    value: bytes | None
    time: int


#: All records of each topic, in the order of each partition.
Topics = dict[str, list[Read]]


# ---- running both ----------------------------------------------------------------------------


class Java:
    """The process in which Kafka Streams runs all topologies."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_until_caught_up(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("wait\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == "caught up\n", f"Kafka Streams has ended: {answer}"


@contextmanager
def java(class_path: str, broker: ClusterStatus, directory: Path) -> Iterator[Java]:
    # Its own deadlines are shorter; this one is for a process that does not answer at all.
    command = java_programs.command(
        class_path, "RunCompared", broker.bootstrap_servers, "java", *JAVA_SETTINGS,
        f"state.dir={directory / 'java-state'}",
        flags=("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    )
    with open(directory / "java.log", "w", encoding="utf-8") as errors, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        watch = threading.Timer(3 * PATIENCE_S, process.kill)
        watch.start()
        try:
            yield Java(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 0
        except AssertionError as error:
            said = (directory / "java.log").read_text(encoding="utf-8")[-4000:]
            raise AssertionError(f"{error}\n{said}") from error
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
    name: str, broker: ClusterStatus, directory: Path, prefix: str = "penstock",
    master: str = "inline",
) -> Streams:
    config = StreamsConfig(
        application_id=f"{prefix}-{name}", log=broker.address,
        state_dir=str(directory / "penstock-state"), statestore_cache_max_bytes=0,
        commit_interval_ms=0, default_key_serde=Serdes.string(),
        default_value_serde=Serdes.string(),
    )
    return Streams(topology(name, f"{prefix}-{name}"), config, master=master)


def outputs(name: str) -> dict[str, str]:
    """The output topics of penstock, and beside each that of Kafka Streams."""
    if name == ORDERS:
        return {topic: f"java-orders-{topic}" for topic in ORDERS_OUTPUTS}
    return {f"penstock-{name}": f"java-{name}"}


@pytest.fixture(scope="module")
def topics(
    penstock_broker: ClusterStatus, java_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Topics:
    """All that is in the log after both have processed all phases of the input."""
    directory = tmp_path_factory.mktemp("oracle")
    with open_log(clear(penstock_broker.address)) as log:
        made = [topic for name in NAMES for pair in outputs(name).items() for topic in pair]
        for topic in (*TOPICS, *made):
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        first, *rest = phases()
        feed(log, first)
        with java(java_class_path, penstock_broker, directory) as running, ExitStack() as stack:
            applications = [
                stack.enter_context(streams(name, penstock_broker, directory)) for name in NAMES
            ]
            for rows in ([], *rest):
                if rows:
                    feed(log, rows)
                for application in applications:
                    application.run_until_caught_up(timeout=PATIENCE_S)
                running.wait_until_caught_up()
            for application in applications:
                # All of them at once; the end of the block waits for each.
                application.close(0)
        wanted = [
            topic.name for topic in log.topics()
            if topic.name in made or topic.name.endswith("-changelog")
        ]
        return read(penstock_broker, wanted)


def read(broker: ClusterStatus, wanted: list[str]) -> Topics:
    """Read whole topics with one consumer, which asks for all their partitions at once."""
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
        deadline = time.monotonic() + PATIENCE_S
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


# ---- comparing -------------------------------------------------------------------------------


def sequences(topics: Topics, topic: str) -> Sequences:
    found: Sequences = {}
    for record in topics[topic]:
        found.setdefault(record[:2], []).append((record.value, record.time))
    return found


def stores(topics: Topics, application: str) -> dict[str, Rows]:
    """The rows of an application's stores, by what is left of their changelogs' names."""
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


def buffered(rows: Rows, source: str) -> Rows:
    """The rows of a buffer, without what is each application's own.

    A row holds the context of its record, and so the name of the topic that it came from, which
    begins with the application's id. Kafka Streams gives these rows the time of the clock.
    """
    name = struct.pack(">i", len(source)) + source.encode()
    assert all(name in value for value, _ in rows.values())
    return {key: (value.replace(name, b""), 0) for key, (value, _) in rows.items()}


def decoded(value: bytes | None) -> Any:
    """JSON as what it says: nobody promises the order of fields."""
    return None if value is None or not value.startswith(b"{") else json.loads(value)


def alike(mine: tuple[bytes | None, int], right: tuple[bytes | None, int]) -> bool:
    if mine == right:
        return True
    told = decoded(mine[0])
    return mine[1] == right[1] and told is not None and told == decoded(right[0])


def assert_same(found: Sequences, wanted: Sequences, topic: str) -> None:
    assert wanted, f"Kafka Streams has written nothing that {topic} could be compared with"
    assert found.keys() == wanted.keys()
    for key, records in wanted.items():
        pairs = list(zip(found[key], records, strict=False))
        at = next((n for n, pair in enumerate(pairs) if not alike(*pair)), len(pairs))
        assert at == len(records) == len(found[key]), (
            f"{topic}, key {key}: record {at} of {len(found[key])} and the next are "
            f"{found[key][at : at + 2]} instead of {records[at : at + 2]} of {len(records)}"
        )


@pytest.mark.parametrize("name", NAMES)
def test_every_key_gets_the_same_records_in_the_same_order(topics: Topics, name: str) -> None:
    for mine, right in outputs(name).items():
        assert_same(sequences(topics, mine), sequences(topics, right), mine)


@pytest.mark.parametrize("name", NAMES)
def test_the_changelogs_hold_the_same_rows(topics: Topics, name: str) -> None:
    mine, right = (
        {
            changelog: buffered(rows, f"{application}-{BUFFERS[changelog]}")
            if changelog in BUFFERS else rows
            for changelog, rows in stores(topics, application).items()
        }
        for application in (f"penstock-{name}", f"java-{name}")
    )
    assert mine.keys() == right.keys()
    for changelog, rows in right.items():
        found = mine[changelog]
        different = [
            key for key in rows.keys() | found.keys()
            if key not in rows or key not in found or not alike(found[key], rows[key])
        ]
        assert not different, f"{changelog}, of {len(rows)} rows: " + "; ".join(
            f"{key}: {found.get(key)} instead of {rows.get(key)}" for key in different[:3]
        )


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_on_spark_it_is_the_same(
    topics: Topics, penstock_broker: ClusterStatus, tmp_path: Path, name: str
) -> None:
    """Of one topic, so that all phases at once are as good as one after the other."""
    output = f"spark-{name}"
    with open_log(penstock_broker.address) as log:
        log.create_topic(output, PARTITIONS, {"retention.ms": "-1"})
    with streams(name, penstock_broker, tmp_path, "spark", "local[2]") as application:
        application.run_until_caught_up(timeout=PATIENCE_S)
    found = read(penstock_broker, [output])
    assert_same(sequences(found, output), sequences(topics, f"java-{name}"), output)
