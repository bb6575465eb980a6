"""Which instance serves which store and key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.instances import PATIENCE_S, CreateStreams, until
from penstock import Serdes
from penstock.engine.reset import find_internal_topics
from penstock.errors import UnknownStateStoreException
from penstock.log import Log, open_log
from penstock.log.types import TopicPartition
from penstock.partitioning import partition_of
from penstock.queries import HostInfo, KeyQueryMetadata, LagInfo
from penstock.record import RecordColumns
from unit.queries.kinds_of_stores import TOPICS, all_kinds

ONE, TWO = HostInfo("one.example", 8001), HostInfo("two.example", 8002)
STORES = {"counts", "plain", "windows", "sessions", "prices"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path / "log.db")
    for topic in TOPICS:
        log.create_topic(topic, 3)
    yield log
    log.close()


def test_instances_see_each_other_and_their_roles(
    create_streams: CreateStreams, tmp_path: Path, log: Log
) -> None:
    one = create_streams(all_kinds(), application_server="one.example:8001")
    one.run_until_caught_up(PATIENCE_S)
    until(lambda: [each.host_info for each in one.metadata_for_all_instances()] == [ONE])
    two = create_streams(
        all_kinds(), application_server="two.example:8002", state_dir=tmp_path / "two"
    )
    two.start()
    until(lambda: two.waits_for)
    until(lambda: len(one.metadata_for_all_instances()) == 2)
    until(lambda: "counts" in two.metadata_for_all_instances()[0].state_store_names)
    active, standby = two.metadata_for_all_instances()
    assert (active.host, active.port) == ("one.example", 8001)
    assert (active.is_active, standby.is_active) == (True, False)
    assert active.state_store_names == STORES | {"names"}
    assert TopicPartition("words", 2) in active.topic_partitions
    assert active.standby_state_store_names == frozenset()
    assert standby.host_info == TWO
    assert standby.state_store_names == {"names"}
    assert standby.standby_state_store_names == STORES
    assert standby.standby_topic_partitions == active.topic_partitions
    assert len(one.metadata_for_store("counts")) == len(one.metadata_for_store("names")) == 2
    found = two.query_metadata_for_key("counts", "tea")
    assert found == KeyQueryMetadata(ONE, frozenset({TWO}), partition_of(b"tea", 3))
    assert two.query_metadata_for_key("counts", "tea", Serdes.string()) == found
    assert two.query_metadata_for_key("counts", "tea", str.encode) == found
    partitioned: list[object] = []

    def partitioner(*arguments: object) -> int:
        partitioned.append(arguments)
        return 1

    assert two.query_metadata_for_key("counts", "tea", partitioner=partitioner).partition == 1
    assert partitioned == [("app-counts-repartition", "tea", None, 3)]
    with pytest.raises(ValueError, match="a number from 0 to 2, not 7"):
        two.query_metadata_for_key("counts", "tea", partitioner=lambda *_: 7)
    assert "app-instances" in find_internal_topics([each.name for each in log.topics()], "app")
    one.close()
    until(lambda: [each.host_info for each in two.metadata_for_all_instances()] == [TWO])
    two.run_until_caught_up(PATIENCE_S)
    until(lambda: two.query_metadata_for_key("counts", "tea").active_host == TWO)


def test_unknown_store_has_no_metadata(create_streams: CreateStreams) -> None:
    streams = create_streams(all_kinds())
    streams.run_until_caught_up(PATIENCE_S)
    assert streams.metadata_for_all_instances() == []
    assert streams.query_metadata_for_key("counts", "tea").active_host == HostInfo.unavailable()
    for query in (
        lambda: streams.metadata_for_store("nothing"),
        lambda: streams.query_metadata_for_key("nothing", "tea"),
    ):
        with pytest.raises(UnknownStateStoreException, match="Stores: 'counts', 'names', 'plain'"):
            query()


def test_lags_compare_the_replicas_with_their_changelogs(create_streams: CreateStreams) -> None:
    streams = create_streams(all_kinds())
    streams.run_until_caught_up(PATIENCE_S)
    lags = streams.all_local_store_partition_lags()
    assert lags.keys() == STORES
    assert lags["counts"].keys() == {0, 1, 2}
    assert {lag.offset_lag for each in lags.values() for lag in each.values()} == {0}
    assert LagInfo(3, 10).offset_lag == 7


def test_endpoint_is_parsed_and_checked() -> None:
    assert HostInfo.build_from_endpoint("[::1]:80") == HostInfo("::1", 80)
    with pytest.raises(ValueError, match="must be host:port"):
        HostInfo.build_from_endpoint("nowhere")


def test_record_of_another_program_hides_no_instance(
    create_streams: CreateStreams, log: Log
) -> None:
    one = create_streams(all_kinds(), application_server="one.example:8001")
    one.run_until_caught_up(PATIENCE_S)
    until(lambda: [each.host_info for each in one.metadata_for_all_instances()] == [ONE])
    log.append("app-instances", 0, RecordColumns([None, None], [b"\xff", b'{"id": 1}']))
    assert [each.host_info for each in one.metadata_for_all_instances()] == [ONE]
