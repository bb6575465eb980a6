"""The committed list of settings is that of the jar; the replication factor reaches Kafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka import java_programs
from kafka.cluster import clear
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, StreamsException
from penstock.broker.cluster import ClusterStatus
from penstock.log import open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = Path(__file__).parents[1] / "unit" / "findings" / "kafka_streams_settings.txt"
TEXT = Serdes.string()


def test_list_of_settings_is_that_of_the_jar(java_class_path: str) -> None:
    ran = subprocess.run(
        java_programs.command(java_class_path, "Settings"),
        capture_output=True, text=True, timeout=120, check=True,
    )
    assert ran.stdout.split() == SETTINGS.read_text().split()


@pytest.mark.parametrize("factor", [1, 3])
def test_internal_topics_are_created_with_the_replication_factor(
    penstock_broker: ClusterStatus, tmp_path: Path, factor: int
) -> None:
    address = clear(penstock_broker.address)
    with open_log(address) as log:
        log.create_topic("in")
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).group_by_key(key=TEXT, value=TEXT).count(store="n")
    config = StreamsConfig(
        application_id="app", log=address, state_dir=str(tmp_path), replication_factor=factor,
        extra={"retry.backoff.ms": "100", "request.timeout.ms": "30000"},
    )
    streams = Streams(builder.build(), config, master="inline")
    if factor == 1:
        with streams:
            streams.run_until_caught_up(60)
        return
    # The cluster has one broker.
    with pytest.raises(StreamsException, match="INVALID_REPLICATION_FACTOR"), streams:
        streams.run_until_caught_up(60)
