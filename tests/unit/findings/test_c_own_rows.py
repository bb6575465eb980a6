"""The stores of the DSL keep their rows in a place of the user (R14)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    BytesStore,
    Materialized,
    Serdes,
    SessionWindows,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from penstock.clients import AdminClient, Consumer, NewTopic, Producer
from penstock.stores.bytes.store import InMemoryBytesStore
from penstock.testing import TopologyTestDriver

TEXT, LONG = Serdes.string(), Serdes.long()
OPENED: list[str] = []


class OwnRows(InMemoryBytesStore):
    """Rows that count how often they are written."""

    written = 0

    def write(self, changes: Any) -> None:
        changes = list(changes)
        OwnRows.written += len(changes)
        super().write(changes)


def own_rows(name: str) -> BytesStore:
    OPENED.append(name)
    return OwnRows()


def count_topology(
    supplier: Any, windowed: Callable[[Any], Any] = lambda grouped: grouped
) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("words", key=TEXT, value=TEXT).group_by_key()
    windowed(grouped).count(
        store=Materialized(supplier=supplier, key=TEXT, value=LONG)
    )
    return builder.build()


@pytest.fixture(autouse=True)
def nothing_opened() -> None:
    OPENED.clear()
    OwnRows.written = 0


def test_table_keeps_its_rows_in_the_users_store() -> None:
    supplier = Stores.persistent_timestamped_key_value_store("counts").with_rows(own_rows)
    with TopologyTestDriver(count_topology(supplier)) as driver:
        words = driver.create_input_topic("words", TEXT, TEXT)
        for _ in range(3):
            words.pipe_input("k", "v")
        assert driver.get_key_value_store("counts").get("k") == 3
    assert OPENED == ["counts"]
    assert OwnRows.written == 3


def test_users_rows_are_restored_from_the_changelog_after_a_crash() -> None:
    supplier = Stores.in_memory_key_value_store("counts").with_rows(own_rows)
    with TopologyTestDriver(count_topology(supplier)) as driver:
        words = driver.create_input_topic("words", TEXT, TEXT)
        words.pipe_input("k", "v")
        driver.crash()
        words.pipe_input("k", "v")
        assert driver.get_key_value_store("counts").get("k") == 2
    assert OPENED == ["counts", "counts"]


def test_window_and_session_stores_take_the_users_rows() -> None:
    minute = timedelta(minutes=1)
    windows = Stores.persistent_timestamped_window_store("w", minute * 2, minute)
    topology = count_topology(
        windows.with_rows(own_rows), lambda grouped: grouped.windowed_by(TimeWindows.of(minute))
    )
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("words", TEXT, TEXT).pipe_input("k", "v", timestamp=5)
        assert driver.get_window_store("w").fetch("k", 0) == 1
    sessions = Stores.persistent_session_store("s", minute * 2).with_rows(own_rows)
    topology = count_topology(
        sessions, lambda grouped: grouped.windowed_by(SessionWindows.of(minute))
    )
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("words", TEXT, TEXT).pipe_input("k", "v", timestamp=5)
        assert driver.get_session_store("s").fetch_session("k", 5, 5) == 1
    assert OPENED == ["w", "s"]


def test_application_continues_from_the_users_rows(tmp_path: Any) -> None:
    log = str(tmp_path / "log.db")
    with AdminClient({"log": log}) as admin:
        for future in admin.create_topics([NewTopic("words", 1), NewTopic("counts", 1)]).values():
            future.result()
    builder = StreamsBuilder()
    supplier = Stores.persistent_timestamped_key_value_store("store").with_rows(own_rows)
    table = builder.stream("words", key=TEXT, value=TEXT).group_by_key().count(
        store=Materialized(supplier=supplier, key=TEXT, value=LONG)
    )
    table.to_stream().to("counts", key=TEXT, value=LONG)
    topology = builder.build()
    config = StreamsConfig(application_id="app", log=log, state_dir=str(tmp_path / "state"))
    for _ in range(2):
        with Streams(topology, config, master="inline") as streams:
            for _ in range(2):
                with Producer({"log": log}) as producer:
                    producer.produce("words", key=b"k", value=b"v")
                streams.run_until_caught_up(20)
    consumer = Consumer({"log": log, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["counts"])
    found = [LONG.deserialize(each.value()) for each in consumer.consume(4, 10)]
    consumer.close()
    assert found == [1, 2, 3, 4]


def test_object_that_is_no_supplier_is_refused_with_advice() -> None:
    class Supplier:
        name = "counts"

    with pytest.raises(TypeError, match="with_rows"):
        count_topology(Supplier())


def test_suppliers_of_the_application_must_return_suppliers() -> None:
    class Suppliers:
        def key_value_store(self, params: Any) -> Any:
            return object()

    builder = StreamsBuilder()
    builder.stream("words", key=TEXT, value=TEXT).group_by_key().count(
        store=Materialized("counts", store_type=Suppliers(), key=TEXT, value=LONG)
    )
    with (
        pytest.raises(TypeError, match=r"Suppliers\.key_value_store"),
        TopologyTestDriver(builder.build()),
    ):
        pass
