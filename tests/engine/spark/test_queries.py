"""Queries in the driver, while Spark's workers write the replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.instances import PATIENCE_S
from kafka.queries_on_log import check_on_embedded_log
from penstock import KeyQuery, StateQueryRequest, Streams, StreamsConfig
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of
from unit.queries.kinds_of_stores import EVENTS, TOPICS, all_kinds

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_driver_reads_the_replicas_of_the_workers(tmp_path: Path, execution: str) -> None:
    config = StreamsConfig(
        application_id="app", log=tmp_path / "log.db", state_dir=tmp_path / "state",
        execution=execution,
    )
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("tea"))
    with open_log(tmp_path / "log.db") as log:
        for topic in TOPICS:
            log.create_topic(topic, 2, {"retention.ms": "-1"})
        with Streams(all_kinds(), config, master="local[2]") as streams:
            for count in (3, 6):
                for topic, key, value, timestamp in EVENTS:
                    records = RecordColumns([key.encode()], [value.encode()], [timestamp])
                    log.append(topic, partition_of(key.encode(), 2), records)
                streams.run_until_caught_up(PATIENCE_S)
                assert streams.store("counts")["tea"] == count
                assert list(streams.store("windows").fetch("eve", 0, 60_000)) == [
                    (30_000, count // 3)
                ]
                assert streams.store("prices")["tea"] == "4"
                assert streams.store("names")["1"] == "one"
                found = streams.query(request.require_active()).only_partition_result
                assert found is not None
                assert found.result == count


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_queries_return_what_kafka_streams_returned(tmp_path: Path, execution: str) -> None:
    check_on_embedded_log(tmp_path, execution, "local[2]")
