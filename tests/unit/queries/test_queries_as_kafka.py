"""`query` returns what Kafka Streams 4.3.0 returned, in tests/kafka/recorded_queries.json.

tests/kafka/test_java_queries.py compares the recorded results with Kafka Streams.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka.compared_queries import BASE_MS, INPUT, PARTITIONS, kinds_of_stores
from kafka.query_results import check_results, recorded
from penstock import Streams, StreamsConfig
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of
from penstock.testing import TopologyTestDriver

TIMEOUT_S = 120.0


def test_queries_of_the_test_driver() -> None:
    with TopologyTestDriver(kinds_of_stores(), partitions=PARTITIONS) as driver:
        topics = {topic for topic, *_ in INPUT}
        inputs = {topic: driver.create_input_topic(topic, str, str) for topic in topics}
        for topic, key, value, time in INPUT:
            inputs[topic].pipe_input(key, value, timestamp=BASE_MS + time)
        check_results(driver, recorded())


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_queries_on_the_embedded_log(execution: str, tmp_path: Path) -> None:
    address = str(tmp_path / "log.db")
    with open_log(address) as log:
        for topic in sorted({topic for topic, *_ in INPUT}):
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        for topic, key, value, time in INPUT:
            stored = None if value is None else value.encode()
            records = RecordColumns([key.encode()], [stored], [BASE_MS + time])
            log.append(topic, partition_of(key.encode(), PARTITIONS), records)
    config = StreamsConfig(
        application_id="queries", log=address, state_dir=str(tmp_path / "state"),
        commit_interval_ms=0, execution=execution,
    )
    with Streams(kinds_of_stores(), config, master="inline") as streams:
        streams.run_until_caught_up(timeout=TIMEOUT_S)
        check_results(streams, recorded())
