"""Kafka Streams 4.3.0 for Java and penstock, on one broker, over the same topics, are compared.

Every topology exists twice: in tests/kafka/java and in oracle_topologies.py; the last one is the
application of examples/orders. They run beside each other, under different application ids, into
different output topics. For each output topic the records of every key must be the same, in the
same order: partition, key, value and timestamp, byte by byte. Then the stores: both have changelog
topics of the same names, and these hold the same rows.

Nothing is cached, so every change of every record is there to be compared. oracle_input.py says how
the input was made such that there is one answer. Kafka Streams looks for what a closed window or an
outer join has to send at most once a second of the wall clock; these two waits are set to 0, or its
answer would depend on how fast it runs. There is no punctuation by stream time: on a broker Kafka
Streams looks for those that are due after as many records as it happened to take at once.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafka import java_programs
from kafka.cluster import swept
from kafka.oracle_input import PARTITIONS, TOPICS, feed, phases
from kafka.oracle_topologies import TOPOLOGIES
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.broker.cluster import Status
from penstock.log import Log, TopicPartition, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ORDERS = "orders"
ORDERS_OUTPUTS = tuple(
    f"{kind}-{what}" for kind in ("general", "restaurant") for what in ("orders", "orders-revenue")
)
PATIENCE_S = 120.0
JAVA_SETTINGS = (
    "statestore.cache.max.bytes=0", "commit.interval.ms=50",
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__=0",
    "__emit.interval.ms.kstreams.windowed.aggregation__=0",
)

#: (value, timestamp) of each record of a key, in order, by partition and key.
Sequences = dict[tuple[int, bytes], list[tuple[bytes | None, int]]]


class Read(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes
    value: bytes | None
    time: int


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
def java(class_path: str, broker: Status, directory: Path) -> Iterator[Java]:
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


def topology(name: str) -> Topology:
    if name == ORDERS:
        from orders.topology import build

        return build()
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder, f"penstock-{name}")
    return builder.build()


def streams(name: str, broker: Status, directory: Path) -> Streams:
    config = StreamsConfig(
        application_id=f"penstock-{name}", log=broker.address,
        state_dir=str(directory / "penstock-state"), statestore_cache_max_bytes=0,
        commit_interval_ms=0, default_key_serde=Serdes.string(),
        default_value_serde=Serdes.string(),
    )
    return Streams(topology(name), config, master="inline")


def outputs(name: str) -> dict[str, str]:
    """The output topics of penstock, and beside each that of Kafka Streams."""
    if name == ORDERS:
        return {topic: f"java-orders-{topic}" for topic in ORDERS_OUTPUTS}
    return {f"penstock-{name}": f"java-{name}"}


@pytest.fixture(scope="module")
def log(
    penstock_broker: Status, java_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Log]:
    """The log, after both have processed all phases of the input."""
    directory = tmp_path_factory.mktemp("oracle")
    with open_log(swept(penstock_broker.address)) as log:
        for topic in TOPICS:
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        for name in (*TOPOLOGIES, ORDERS):
            for pair in outputs(name).items():
                for topic in pair:
                    log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        first, *rest = phases()
        feed(log, first)
        with java(java_class_path, penstock_broker, directory) as running, ExitStack() as stack:
            applications = [
                stack.enter_context(streams(name, penstock_broker, directory))
                for name in (*TOPOLOGIES, ORDERS)
            ]
            for rows in ([], *rest):
                if rows:
                    feed(log, rows)
                for application in applications:
                    application.run_until_caught_up(timeout=PATIENCE_S)
                running.wait_until_caught_up()
        yield log


# ---- comparing -------------------------------------------------------------------------------


def read(log: Log, topic: str) -> Iterator[Read]:
    for partition in range(log.topic(topic).partitions):
        start = log.offsets([TopicPartition(topic, partition)])[topic, partition].start
        for batch in log.read(topic, partition, start):
            rows = batch.rows()
            for key, value, time in zip(rows.keys, rows.values, rows.timestamps, strict=True):
                assert key is not None
                yield Read(partition, key, value, time)


def sequences(log: Log, topic: str) -> Sequences:
    found: Sequences = {}
    for record in read(log, topic):
        found.setdefault(record[:2], []).append((record.value, record.time))
    return found


def stores(log: Log, application: str) -> dict[str, dict[tuple[int, bytes], tuple[bytes, int]]]:
    """The rows that the stores of an application hold, by the rest of their changelogs' names."""
    found: dict[str, dict[tuple[int, bytes], tuple[bytes, int]]] = {}
    for topic in log.topics():
        name = topic.name
        if not (name.startswith(f"{application}-") and name.endswith("-changelog")):
            continue
        rows = found.setdefault(name.removeprefix(f"{application}-"), {})
        for record in read(log, name):
            if record.value is None:
                rows.pop(record[:2], None)
            else:
                rows[record[:2]] = (record.value, record.time)
    return found


def decoded(value: bytes | None) -> Any:
    """JSON as what it says: nobody promises the order of fields."""
    return None if value is None or not value.startswith(b"{") else json.loads(value)


def alike(mine: tuple[bytes | None, int], right: tuple[bytes | None, int]) -> bool:
    if mine == right:
        return True
    told = decoded(mine[0])
    return mine[1] == right[1] and told is not None and told == decoded(right[0])


@pytest.mark.parametrize("name", [*TOPOLOGIES, ORDERS])
def test_every_key_gets_the_same_records_in_the_same_order(log: Log, name: str) -> None:
    for mine, right in outputs(name).items():
        found, wanted = sequences(log, mine), sequences(log, right)
        assert wanted, f"Kafka Streams has written nothing to {right}"
        assert found.keys() == wanted.keys()
        for key, records in wanted.items():
            pairs = list(zip(found[key], records, strict=False))
            at = next((n for n, pair in enumerate(pairs) if not alike(*pair)), len(pairs))
            assert at == len(records) == len(found[key]), (
                f"{mine}, key {key}: record {at} of {len(found[key])} and the next are "
                f"{found[key][at : at + 2]} instead of {records[at : at + 2]} of {len(records)}"
            )


@pytest.mark.parametrize("name", [*TOPOLOGIES, ORDERS])
def test_the_changelogs_hold_the_same_rows(log: Log, name: str) -> None:
    mine, right = stores(log, f"penstock-{name}"), stores(log, f"java-{name}")
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
