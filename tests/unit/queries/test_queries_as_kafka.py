"""`query` returns what Kafka Streams 4.3.0 returned, in tests/kafka/recorded_queries.json.

tests/kafka/test_java_queries.py compares the recorded results with Kafka Streams.
tests/engine/spark/test_queries.py runs the same queries on Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka.compared_queries import BASE_MS, INPUT, PARTITIONS, kinds_of_stores
from kafka.queries_on_log import check_on_embedded_log
from kafka.query_results import check_results, recorded
from penstock.testing import TopologyTestDriver


def test_queries_of_the_test_driver() -> None:
    with TopologyTestDriver(kinds_of_stores(), partitions=PARTITIONS) as driver:
        topics = {topic for topic, *_ in INPUT}
        inputs = {topic: driver.create_input_topic(topic, str, str) for topic in topics}
        for topic, key, value, time in INPUT:
            inputs[topic].pipe_input(key, value, timestamp=BASE_MS + time)
        check_results(driver, recorded())


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_queries_on_the_embedded_log(execution: str, tmp_path: Path) -> None:
    check_on_embedded_log(tmp_path, execution, "inline")
