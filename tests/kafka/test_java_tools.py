"""Kafka's own tools and penstock use the same topics and groups."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import ClusterStatus, kafka_tool_command
from penstock.clients import Producer
from penstock.log import CommittedOffset, RecordColumns, TopicPartition, open_log
from penstock.partitioning import partition_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def run(broker: ClusterStatus, main: str, *arguments: str, stdin: str = "") -> str:
    """Run one of Kafka's tools, and return its standard output."""
    ran = subprocess.run(
        kafka_tool_command(main, "--bootstrap-server", broker.bootstrap_servers, *arguments),
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_penstock_reads_records_of_java_in_the_expected_partitions(
    penstock_broker: ClusterStatus,
) -> None:
    keys = [f"store-{n}" for n in range(40)] + ["", "ä", "longer than four bytes"]
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("orders", 5)
        run(
            penstock_broker, CONSOLE_PRODUCER, "--topic", "orders", "--reader-property",
            "parse.key=true", "--reader-property", "key.separator=|",
            stdin="".join(f"{key}|value of {key}\n" for key in keys),
        )
        found = {
            (key, partition): value
            for partition in range(5)
            for batch in log.read("orders", partition, 0)
            for key, value in zip(batch.columns().keys, batch.columns().values, strict=True)
        }
    assert found == {
        (key.encode(), partition_of(key.encode(), 5)): f"value of {key}".encode() for key in keys
    }


def test_java_consumes_committed_transactions_of_penstock(
    penstock_broker: ClusterStatus,
) -> None:
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("orders", 2)
        aborted = log.transaction()
        aborted.append("orders", 0, RecordColumns([b"a"], [b"never"]))
        aborted.abort()
        with log.transaction() as transaction:
            transaction.append("orders", 0, RecordColumns([b"a", None], [b"one", b"two"]))
            transaction.append("orders", 1, RecordColumns([b"b"], [None], [7], [[("h", b"x")]]))
    output = run(
        penstock_broker, CONSOLE_CONSUMER, "--topic", "orders", "--from-beginning",
        "--max-messages", "3", "--timeout-ms", "60000", "--isolation-level", "read_committed",
        "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
    )
    assert sorted(output.splitlines()) == [
        "NO_HEADERS\ta\tone", "NO_HEADERS\tnull\ttwo", "h:x\tb\tnull",
    ]


def test_groups_tool_shows_offsets_committed_by_penstock(penstock_broker: ClusterStatus) -> None:
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("orders", 2)
        with Producer({"bootstrap.servers": penstock_broker.bootstrap_servers}) as producer:
            for n in range(10):
                producer.produce("orders", str(n), partition=0)
        with log.transaction() as transaction:
            transaction.commit_offsets(
                "billing", {TopicPartition("orders", 0): CommittedOffset(4, "note")}
            )
        log.commit_offsets("billing", {TopicPartition("orders", 1): 0})
        assert log.committed("billing")[TopicPartition("orders", 0)] == (4, "note")
    output = run(penstock_broker, CONSUMER_GROUPS, "--describe", "--group", "billing")
    rows = [line.split()[:6] for line in output.splitlines() if line.startswith("billing")]
    assert sorted(rows) == [
        ["billing", "orders", "0", "4", "10", "6"], ["billing", "orders", "1", "0", "0", "0"],
    ]


def count_words() -> StreamsBuilder:
    builder = StreamsBuilder()
    lines = builder.stream("words", key=Serdes.string(), value=Serdes.string())
    lines.group_by_key().count(store="counts").to_stream().to("counted", value=Serdes.long())
    return builder


def produce(broker: ClusterStatus, topic: str, keys: list[str]) -> None:
    """Produce records with the console producer."""
    run(
        broker, CONSOLE_PRODUCER, "--topic", topic, "--reader-property", "parse.key=true",
        "--reader-property", "key.separator=:", stdin="".join(f"{key}:x\n" for key in keys),
    )


def consume_numbers(broker: ClusterStatus, topic: str, count: int) -> list[tuple[str, int]]:
    """Read records with the console consumer."""
    output = run(
        broker, CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages",
        str(count), "--timeout-ms", "60000", "--isolation-level", "read_committed",
        "--formatter-property", "print.key=true", "--formatter-property",
        "value.deserializer=org.apache.kafka.common.serialization.LongDeserializer",
    )
    return [(key, int(value)) for key, value in map(str.split, output.splitlines())]


def test_application_works_with_the_console_tools(
    penstock_broker: ClusterStatus, tmp_path: Path
) -> None:
    keys = ["tea", "milk", "tea", "bread", "tea", "milk"]
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("words", 3)
        log.create_topic("counted", 3)
    produce(penstock_broker, "words", keys)
    config = StreamsConfig(
        application_id="counter", log=penstock_broker.address, state_dir=str(tmp_path),
        statestore_cache_max_bytes=0,
    )

    def lag() -> Counter[str]:
        output = run(penstock_broker, CONSUMER_GROUPS, "--describe", "--group", "counter")
        rows = [line.split() for line in output.splitlines() if line.startswith("counter ")]
        # Columns: group, topic, partition, committed, end, lag. A missing offset is a dash.
        assert {row[2] for row in rows if row[1] == "words"} == {"0", "1", "2"}
        found: Counter[str] = Counter()
        for row in rows:
            found[row[1]] += int(row[5]) if row[5].isdigit() else 0
        return found

    with Streams(count_words().build(), config, master="inline") as streams:
        streams.run_until_caught_up()
        assert lag()["words"] == 0
        state = run(penstock_broker, CONSUMER_GROUPS, "--describe", "--state", "--group", "counter")
        assert state.split()[-2:] == ["Stable", "1"]
    found = consume_numbers(penstock_broker, "counted", len(keys))
    assert dict(found) == {"tea": 3, "milk": 2, "bread": 1}
    changelog = consume_numbers(penstock_broker, "counter-counts-changelog", len(keys))
    assert sorted(changelog) == sorted(found)
    produce(penstock_broker, "words", ["tea", "bread"])
    assert lag()["words"] == 2
