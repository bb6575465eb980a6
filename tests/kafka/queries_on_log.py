"""Runs the application of the compared queries on an embedded log."""

from __future__ import annotations

from pathlib import Path

from kafka.compared_queries import BASE_MS, INPUT, PARTITIONS, kinds_of_stores
from kafka.query_results import check_results, recorded
from penstock import Streams, StreamsConfig
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of

TIMEOUT_S = 120.0


def check_on_embedded_log(folder: Path, execution: str, master: str) -> None:
    """Check that all queries return what Kafka Streams returned."""
    address = str(folder / "log.db")
    with open_log(address) as log:
        for topic in sorted({topic for topic, *_ in INPUT}):
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        for topic, key, value, time in INPUT:
            stored = None if value is None else value.encode()
            records = RecordColumns([key.encode()], [stored], [BASE_MS + time])
            log.append(topic, partition_of(key.encode(), PARTITIONS), records)
    config = StreamsConfig(
        application_id="queries", log=address, state_dir=str(folder / "state"),
        commit_interval_ms=0, execution=execution,
    )
    with Streams(kinds_of_stores(), config, master=master) as streams:
        streams.run_until_caught_up(timeout=TIMEOUT_S)
        check_results(streams, recorded())
