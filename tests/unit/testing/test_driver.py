"""The driver in the mode of Kafka's: input, output, stores, time, printing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    KStream,
    Materialized,
    Printed,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TaskId,
    TimeWindows,
    Topology,
    ValueAndTimestamp,
)
from penstock.errors import InvalidStateStorePartitionException
from penstock.testing import TestRecord, TopologyTestDriver

CONFIG = StreamsConfig(
    application_id="app", default_key_serde=Serdes.string(), default_value_serde=Serdes.string()
)
HEADERS = CONFIG.with_(dsl_store_format="HEADERS")


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to(
        "out", value=Serdes.long()
    )
    return builder.build()


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def all_kinds() -> Topology:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in")
    stream.to_table(store="table")
    stream.to_table(store=Materialized(
        supplier=Stores.persistent_versioned_key_value_store("versions", timedelta(hours=1)),
    ))
    grouped = stream.group_by_key()
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=10))).count(store="windows")
    grouped.windowed_by(SessionWindows.of(timedelta(seconds=10))).count(store="sessions")
    builder.add_state_store(Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("plain"), Serdes.string(), Serdes.string()
    ))
    stream.process(_IgnoreRecords, "plain")
    return builder.build()


class _IgnoreRecords:
    def process(self, record: Any) -> None:
        pass


# ---- input and output ----------------------------------------------------------------------


def test_one_task_commits_after_every_record() -> None:
    with TopologyTestDriver(counting(), CONFIG) as driver:
        assert driver.tasks == (TaskId(0, 0),)
        topic = driver.create_input_topic("in")
        out = driver.create_output_topic("out", value=Serdes.long())
        topic.pipe_input("a", "x")
        assert out.read_key_value() == ("a", 1)


def test_all_input_methods() -> None:
    with TopologyTestDriver(copying(), CONFIG) as driver:
        topic = driver.create_input_topic("in", start=100, auto_advance=timedelta(milliseconds=10))
        out = driver.create_output_topic("out")
        topic.pipe_input("v")
        topic.pipe_input("k", "v")
        topic.pipe_input("k", "v", timestamp=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
        topic.pipe_input(TestRecord("k", None, 7, headers=()))  # type: ignore[arg-type]
        topic.pipe_value_list(["a", "b"])
        topic.pipe_key_value_list([("c", "d")], start=500, advance=5)
        topic.pipe_record_list([TestRecord("e", "f"), TestRecord("g", "h")], start=600, advance=5)
        topic.advance_time(1000)
        topic.pipe_input("k", "later")
        assert [(r.key, r.value, r.timestamp) for r in out.read_records_to_list()] == [
            (None, "v", 100), ("k", "v", 110), ("k", "v", 1000), ("k", None, 7), (None, "a", 120),
            (None, "b", 130), ("c", "d", 500), ("e", "f", 600), ("g", "h", 605),
            ("k", "later", 1140),
        ]


def test_all_output_methods() -> None:
    with TopologyTestDriver(copying(), CONFIG) as driver:
        topic = driver.create_input_topic("in")
        out = driver.create_output_topic("out")
        topic.pipe_key_value_list([("a", "1"), ("b", "2"), ("c", "3")])
        assert out.queue_size == 3
        assert out.read_value() == "1"
        assert out.read_key_value() == ("b", "2")
        record = out.read_record()
        assert record == TestRecord("c", "3", 0)
        assert record.partition == 0
        assert out.is_empty
        with pytest.raises(LookupError, match="Empty topic: out"):
            out.read_value()
        topic.pipe_key_value_list([("a", "1"), ("a", "2")])
        assert out.read_key_values_to_map() == {"a": "2"}
        topic.pipe_value_list(["x"])
        assert out.read_values_to_list() == ["x"]


def test_created_output_topic_is_not_a_produced_topic() -> None:
    with TopologyTestDriver(copying(), CONFIG) as driver:
        assert driver.create_output_topic("out").is_empty
        assert driver.produced_topic_names() == set()


def test_unknown_topic_or_partition_raises() -> None:
    with TopologyTestDriver(copying(), CONFIG) as driver:
        with pytest.raises(ValueError, match=r"Unknown topic: im\. Topics of the topology: in"):
            driver.create_input_topic("im").pipe_input("a", "b")
        with pytest.raises(ValueError, match=r"Topic in has no partition 1\. It has 1"):
            driver.create_input_topic("in").pipe_input("a", "b", partition=1)


def test_time_cannot_go_backwards() -> None:
    with TopologyTestDriver(copying(), CONFIG) as driver:
        with pytest.raises(ValueError, match="backwards"):
            driver.advance_wall_clock_time(-1)
        with pytest.raises(ValueError, match="backwards"):
            driver.create_input_topic("in").advance_time(-1)


# ---- stores --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("plain", ["get_key_value_store"]),
        ("table", ["get_key_value_store", "get_timestamped_key_value_store"]),
        ("versions", ["get_versioned_key_value_store"]),
        ("windows", ["get_window_store", "get_timestamped_window_store"]),
        ("sessions", ["get_session_store"]),
    ],
)
def test_only_methods_of_the_kind_return_a_store(name: str, methods: list[str]) -> None:
    every = [name for name in dir(TopologyTestDriver) if name.startswith("get_")]
    with TopologyTestDriver(all_kinds(), CONFIG) as driver:
        returned = []
        for method in every:
            if method in {"get_state_store", "get_all_state_stores"}:
                continue
            if method in methods:
                getattr(driver, method)(name)
                returned.append(method)
                continue
            with pytest.raises(ValueError, match=rf"Use {methods[-1]}\('{name}'\), not {method}"):
                getattr(driver, method)(name)
        assert sorted(returned) == sorted(methods)


def test_values_are_plain_timestamped_or_with_headers() -> None:
    with TopologyTestDriver(all_kinds(), HEADERS) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", timestamp=5)
        assert driver.get_key_value_store("table")["a"] == "x"
        assert driver.get_timestamped_key_value_store("table")["a"] == ValueAndTimestamp("x", 5)
        full = driver.get_timestamped_key_value_store_with_headers("table")["a"]
        assert (full.value, full.timestamp, full.headers) == ("x", 5, ())
        assert list(driver.get_window_store("windows").fetch("a", 0, 10)) == [(0, 1)]
        assert driver.get_window_store("windows").fetch("a", 0) == 1
        assert driver.get_timestamped_window_store("windows").fetch("a", 0).timestamp == 5
        stamped = driver.get_timestamped_window_store_with_headers("windows").fetch("a", 0)
        assert stamped.headers == ()
        assert [value for _, value in driver.get_session_store("sessions").fetch("a")] == [1]
        ((_, session),) = driver.get_session_store_with_headers("sessions").fetch("a")
        assert session.aggregation == 1
        assert driver.get_versioned_key_value_store("versions").get("a").value == "x"


def test_plain_values_can_be_written_and_scanned() -> None:
    with TopologyTestDriver(counting(), CONFIG) as driver:
        store = driver.get_key_value_store("counts")
        store.put("a", 41)
        store.put_all([("b", 1), ("c", 2)])
        assert store.put_if_absent("b", 9) == 1
        assert store.delete("c") == 2
        driver.create_input_topic("in").pipe_input("a", "x", timestamp=3)
        assert list(store.all()) == [("a", 42), ("b", 1)]
        assert list(store) == ["a", "b"]
        assert "c" not in store
        assert driver.get_timestamped_key_value_store("counts")["a"].timestamp == 3


def test_error_for_an_unknown_store_lists_the_existing_ones() -> None:
    with TopologyTestDriver(counting(), CONFIG) as driver:
        with pytest.raises(KeyError, match=r"Store 'count' does not exist. Stores: 'counts'."):
            driver.get_key_value_store("count")
        with pytest.raises(InvalidStateStorePartitionException, match="Partitions: 0"):
            driver.get_key_value_store("counts", partition=3)
        assert list(driver.get_all_state_stores()) == ["counts"]


# ---- printing ------------------------------------------------------------------------------


def printing(printed: Printed[Any, Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").print(printed)
    return builder.build()


def test_printed_lines_are_shown_after_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    with TopologyTestDriver(printing(Printed(label="L")), CONFIG, auto_commit=False) as driver:
        driver.create_input_topic("in").pipe_input("k", "v")
        assert capsys.readouterr().out == ""
        driver.commit()
        assert capsys.readouterr().out == "[L]: k, v\n"
        driver.commit()
        assert capsys.readouterr().out == ""
        assert driver.printed_lines == [(None, "[L]: k, v")]


def test_lines_of_reprocessed_records_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with TopologyTestDriver(printing(Printed(label="L")), CONFIG, auto_commit=False) as driver:
        driver.create_input_topic("in").pipe_input("k", "v")
        driver.crash()
        driver.commit()
    assert capsys.readouterr().out == "[L]: k, v\n"


def test_lines_for_a_file_are_written_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("of an earlier run\n", encoding="utf-8")
    with TopologyTestDriver(printing(Printed(file=str(path), label="L")), CONFIG) as driver:
        driver.create_input_topic("in").pipe_key_value_list([("a", "1"), ("b", "2")])
    assert path.read_text(encoding="utf-8") == "[L]: a, 1\n[L]: b, 2\n"


def test_show_printed_false_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with TopologyTestDriver(printing(Printed()), CONFIG, show_printed=False) as driver:
        driver.create_input_topic("in").pipe_input("k", "v")
        assert len(driver.printed_lines) == 1
    assert capsys.readouterr().out == ""


def test_repr_of_driver_topics_and_stores() -> None:
    with TopologyTestDriver(counting(), CONFIG) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("k", "v")
        store = driver.get_state_store("counts")
        assert repr(driver) == "<TopologyTestDriver 'app', 1 task>"
        assert repr(topic) == "<TestInputTopic 'in'>"
        assert repr(driver.create_output_topic("out")) == "<TestOutputTopic 'out', 1 unread>"
        assert repr(store) == "<TimestampedKeyValueStore 'counts', open>"
        assert repr(driver.get_key_value_store("counts")) == f"<values of {store!r}>"
    assert repr(driver) == "<TopologyTestDriver 'app', closed>"
    assert repr(store) == "<TimestampedKeyValueStore 'counts', not open>"
    with TopologyTestDriver(counting(), CONFIG, partitions=2) as driver:
        assert repr(driver) == "<TopologyTestDriver 'app', 2 tasks>"
        assert repr(driver.get_state_store("counts")) == "<PartitionedStore 'counts', 2 partitions>"


def test_configuration_may_be_properties_and_nothing_else() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    topology = builder.build()
    properties = {"application.id": "app", "default.key.serde": Serdes.string(),
                  "default.value.serde": Serdes.string()}
    with TopologyTestDriver(topology, properties) as driver:
        driver.create_input_topic("in", Serdes.string(), Serdes.string()).pipe_input("k", "v")
        output = driver.create_output_topic("out", Serdes.string(), Serdes.string())
        assert output.read_key_value() == ("k", "v")
    with pytest.raises(TypeError, match=r"takes a StreamsConfig or properties, not 'app'"):
        TopologyTestDriver(topology, "app")  # type: ignore[arg-type]
