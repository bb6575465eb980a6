"""Compares the results of `Streams.query` with those of Kafka Streams 4.3.0 for Java.

Both run the topology of compared_queries.py on one broker, with the same input and the same
requests. The results of each partition must be equal: values, their order, timestamps, validity,
failure reasons and exceptions. The persistent stores with headers of Kafka Streams refuse all
queries; those of penstock must have the results of the stores in memory, see docs/compatibility.md
(I4).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kafka import java_programs
from kafka.cluster import clear
from kafka.compared_queries import BASE_MS, INPUT, PARTITIONS, kinds_of_stores, requests
from kafka.query_results import RECORDED, Lines, check_results, record, recorded
from penstock import Streams, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def broker(penstock_broker: ClusterStatus) -> ClusterStatus:
    """A broker with the input."""
    with open_log(clear(penstock_broker.address)) as log:
        for topic in sorted({topic for topic, *_ in INPUT}):
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        for topic, key, value, time in INPUT:
            stored = None if value is None else value.encode()
            records = RecordColumns([key.encode()], [stored], [BASE_MS + time])
            log.append(topic, partition_of(key.encode(), PARTITIONS), records)
    return penstock_broker


@pytest.fixture(scope="module")
def expected(
    broker: ClusterStatus, java_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Lines:
    """The results of Kafka Streams."""
    ran = subprocess.run(
        java_programs.command(
            java_class_path, "RunQueries", broker.bootstrap_servers, "java",
            f"state.dir={tmp_path_factory.mktemp('java')}",
            flags=("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        ),
        input="".join(f"{json.dumps(each)}\n" for each in requests()),
        capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return with_results_of_memory([json.loads(line) for line in ran.stdout.splitlines()])


def with_results_of_memory(lines: Lines) -> Lines:
    """The results, with those of the store in memory for the one that refuses all queries."""
    refused = [each for each in lines if each["name"].startswith("persistent-headers: ")]
    assert {each.get("failure") for each in refused} == {"UNKNOWN_QUERY_TYPE"}
    in_memory = {
        (f"persistent-{each['name']}", each["partition"]): each
        for each in lines if each["name"].startswith("headers: ")
    }
    return [
        {**in_memory[each["name"], each["partition"]], "name": each["name"]}
        if each in refused else each for each in lines
    ]


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_queries_have_the_results_of_kafka_streams(
    execution: str, broker: ClusterStatus, expected: Lines, tmp_path: Path
) -> None:
    config = StreamsConfig(
        application_id=f"penstock-{execution}", log=broker.address, state_dir=str(tmp_path),
        commit_interval_ms=0, execution=execution,
    )
    with Streams(kinds_of_stores(), config, master="inline") as streams:
        streams.run_until_caught_up(timeout=TIMEOUT_S)
        check_results(streams, expected)


def test_recorded_results_are_those_of_kafka_streams(expected: Lines) -> None:
    """With PENSTOCK_RECORD_QUERIES=1 the results are recorded again."""
    if os.environ.get("PENSTOCK_RECORD_QUERIES"):
        RECORDED.write_text(record(expected))
    assert record(recorded()) == record(expected)
