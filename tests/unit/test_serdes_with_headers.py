"""Serdes that read and write headers, at every place that calls a serde."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Materialized,
    Serde,
    Serdes,
    SerializationException,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    WindowedSerdes,
)
from penstock.clients import AdminClient, Consumer, NewTopic, Producer
from penstock.processors.api import Processor
from penstock.record import Headers, Record
from penstock.serdes.change import change_serde
from penstock.serdes.headers import HeadersSerde, MutableHeaders, RecordHeaders
from penstock.testing import TestRecord, TopologyTestDriver
from penstock.windows import Window, Windowed

STRING = Serdes.string()
CONFIG = StreamsConfig(application_id="app", default_key_serde=STRING)


class Rotated(HeadersSerde[str]):
    """Letters rotated by a distance, which is the last header "rotation" of the record."""

    name = "rotated"

    def __init__(self, distance: int = 1) -> None:
        super().__init__()
        self.distance = distance

    def serialize_with_headers(self, value: str, headers: MutableHeaders) -> bytes:
        if not value:
            raise SerializationException("There are no letters.")
        headers[:] = [pair for pair in headers if pair[0] != "rotation"]
        headers.append(("rotation", bytes((self.distance,))))
        return bytes(letter + self.distance for letter in value.encode())

    def deserialize_with_headers(self, data: bytes, headers: Headers) -> str:
        distance = headers.last("rotation")
        if distance is None:
            raise SerializationException("There is no rotation.")
        return bytes(letter - distance[0] for letter in data).decode()

    def for_store(self, topic: str, is_key: bool) -> Serde[str]:
        return STRING


class InStores(Rotated):
    """Uses headers in stores, too."""

    def for_store(self, topic: str, is_key: bool) -> Serde[str]:
        return self


def rotation(distance: int) -> Headers:
    return Headers([("rotation", bytes((distance,)))])


def pipe(driver: TopologyTestDriver, *pairs: tuple[Any, Any], distance: int = 1) -> None:
    topic = driver.create_input_topic("in", key=STRING, value=Rotated(distance))
    for key, value in pairs:
        topic.pipe_input(key, value, headers=[("id", key.encode())])


@pytest.mark.parametrize("serde", [
    Serdes.list(Rotated(2)), change_serde(Rotated(2)), WindowedSerdes.session_windowed(Rotated(2)),
    WindowedSerdes.time_windowed(Rotated(2), 5),
])
def test_wrapping_serdes_pass_headers_on(serde: Serde[Any]) -> None:
    value = {
        "list": ["a", None, "b"], "change": ("a", "b", True),
        "time windows": Windowed("a", Window(1, 6)), "session windows": Windowed("a", Window(1, 6)),
    }[serde.name.removesuffix(" of rotated")]
    record = RecordHeaders(Headers([("x", None)]))
    bound = serde.with_headers_of(record)
    data = bound.serialize(value)
    assert bound.writer(value) == data
    assert record.headers == (("x", None), ("rotation", b"\x02"))
    assert bound.deserialize(data) == value
    record.headers = rotation(1)
    assert bound.deserialize(data) != value


def test_serdes_without_headers_are_not_wrapped() -> None:
    for serde in (STRING, Serdes.list(STRING), WindowedSerdes.session_windowed(STRING)):
        assert serde.with_headers_of(RecordHeaders()) is serde


def test_source_and_sink_share_the_headers_of_a_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=Rotated()).map_values(str.upper).to("out", value=Rotated(3))
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        pipe(driver, ("k", "abc"), ("l", "xyz"), distance=7)
        (first, second) = driver.read_raw("out")
        assert first.value == b"DEF"
        assert first.headers == (("id", b"k"), ("rotation", b"\x03"))
        assert second.headers == (("id", b"l"), ("rotation", b"\x03"))


def test_batches_of_records_have_their_own_headers() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=Rotated()).to("out", value=STRING)
    config = CONFIG.with_(deserialization_exception_handler="continue")
    with TopologyTestDriver(builder.build(), config, auto_commit=False, batch_size=100) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for n in range(1, 6):
            headers = rotation(n) if n != 3 else ()
            topic.pipe_input(None, chr(ord("a") + n), headers=headers, timestamp=n)
        driver.commit()
        values = driver.create_output_topic("out", key=STRING, value=STRING).read_values_to_list()
        assert values == ["a", "a", "a", "a"]


def test_failing_serializer_of_a_sink_is_called_once_and_goes_to_the_handler() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=STRING).to("out", value=Rotated())
    config = CONFIG.with_(production_exception_handler="continue")
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        topic.pipe_input("k", "")
        topic.pipe_input("k", "a")
        assert [output.value for output in driver.read_raw("out")] == [b"b"]


def test_extracted_topics_and_partitioners_get_the_added_headers() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=Rotated())
    stream.to(lambda key, value, context: f"to-{key}", value=Rotated(2))
    stream.to("both", value=Rotated(4), partitioner=lambda topic, key, value, count: [0, 1])
    with TopologyTestDriver(builder.build(), CONFIG, partitions={"in": 1, "both": 2}) as driver:
        pipe(driver, ("k", "a"))
        (extracted,) = driver.read_raw("to-k")
        assert extracted.headers.last("rotation") == b"\x02"
        both = driver.read_raw("both")
        assert [output.partition for output in both] == [0, 1]
        assert {output.headers for output in both} == {
            Headers([("id", b"k"), ("rotation", b"\x04")])
        }


def test_windowed_keys_are_partitioned_by_the_inner_key() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of(10)
    counts = builder.stream("in", value=STRING).group_by_key().windowed_by(windows).count()
    key = WindowedSerdes.time_windowed(Rotated(1), 10)
    counts.to_stream().to("out", key=key, value=Serdes.long())
    with TopologyTestDriver(builder.build(), CONFIG, partitions={"in": 1, "out": 16}) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for time in (1, 11, 21):
            topic.pipe_input("key", "v", timestamp=time)
        outputs = driver.read_raw("out")
        assert len({output.partition for output in outputs}) == 1
        assert {output.headers for output in outputs} == {rotation(1)}
        assert {output.key[:3] for output in outputs if output.key} == {b"lfz"}


def test_headers_travel_through_repartition_topics() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=Rotated()).select_key(lambda key, value: value)
    stream.repartition(name="r", value=Rotated(5)).to("out", value=STRING)
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        pipe(driver, ("k", "abc"))
        (output,) = driver.read_raw("out")
        assert (output.key, output.value) == (b"abc", b"abc")
        assert output.headers == (("id", b"k"), ("rotation", b"\x05"))


def test_store_can_use_another_form_than_topics() -> None:
    builder = StreamsBuilder()
    builder.table("in", value=Rotated(), store=Materialized("store", key=STRING, value=Rotated()))
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        pipe(driver, ("k", "abc"))
        assert [record.value for record in driver.read_raw("app-store-changelog")] == [b"abc"]
        store = driver.get_timestamped_key_value_store("store")
        assert store.get("k").value == "abc"


def test_store_without_headers_passes_those_of_the_current_record() -> None:
    builder = StreamsBuilder()
    store = Materialized("store", key=STRING, value=InStores(9))
    builder.stream("in", value=Rotated()).to_table(store=store)
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        pipe(driver, ("k", "abc"), distance=4)
        (change,) = driver.read_raw("app-store-changelog")
        assert change.value == bytes(letter + 9 for letter in b"abc")
        # A row of this store has no place for headers.
        assert change.headers.last("rotation") != b"\x09"


class WriteAndRead(Processor[str, str]):
    """Puts each value into a store with headers, and forwards all values of the store."""

    def process(self, record: Record[str, str]) -> None:
        from penstock.stores.api.results import ValueTimestampHeaders

        store = self.context.get_state_store("store")
        store.put(record.key, ValueTimestampHeaders(record.value, 0, Headers([("own", b"")])))
        for _, row in store.all():
            assert row.headers == (("own", b""), ("rotation", b"\x09"))
        found = ",".join(row.value for _, row in store.all())
        self.context.forward(record.with_value(found).with_headers(()))


def test_store_with_headers_keeps_the_headers_that_a_serde_adds() -> None:
    store = Stores.timestamped_key_value_store_with_headers_builder(
        Stores.in_memory_key_value_store("store"), STRING, InStores(9)
    )
    builder = StreamsBuilder()
    builder.add_state_store(store)
    builder.stream("in", value=Rotated()).process(WriteAndRead, "store").to("out", value=STRING)
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        pipe(driver, ("k", "abc"), ("l", "d"))
        output = driver.create_output_topic("out", key=STRING, value=STRING)
        assert output.read_values_to_list() == ["abc", "abc,d"]


@pytest.mark.parametrize("windowed", [False, True])
def test_aggregation_in_the_headers_format_reads_back_what_it_wrote(windowed: bool) -> None:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", value=Rotated()).group_by_key()
    if windowed:
        grouped = grouped.windowed_by(TimeWindows.of(10))
    counted = grouped.reduce(
        lambda one, two: one + two, store=Materialized("store", key=STRING, value=InStores(9))
    )
    counted.to_stream(lambda key, value: str(value)).to("out", value=STRING)
    config = CONFIG.with_(dsl_store_format="HEADERS")
    with TopologyTestDriver(builder.build(), config) as driver:
        pipe(driver, ("k", "a"), ("k", "b"))
        output = driver.create_output_topic("out", key=STRING, value=STRING)
        assert output.read_values_to_list() == ["a", "ab"]


def test_suppress_reads_values_with_the_headers_of_their_record() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", value=Rotated(), store=Materialized(value=InStores(1)))
    table.suppress(Suppressed.until_time_limit(10)).to_stream().to("out", value=STRING)
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=Rotated(1))
        topic.pipe_input("k", "abc", timestamp=0)
        other = driver.create_input_topic("in", key=STRING, value=Rotated(2))
        other.pipe_input("l", "x", timestamp=100)
        output = driver.create_output_topic("out", key=STRING, value=STRING)
        assert output.read_key_values_to_list() == [("k", "abc")]


def test_foreign_key_join_of_serdes_with_headers() -> None:
    builder = StreamsBuilder()
    left = builder.table("in", key=STRING, value=Rotated(1))
    right = builder.table("right", key=Rotated(2), value=Rotated(2))
    joined = left.join(
        right, lambda value: value, lambda one, two: f"{one}+{two}",
        store=Materialized("joined", value=Rotated(3)),
    )
    joined.to_stream().to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        lefts = driver.create_input_topic("in", key=STRING, value=Rotated(1))
        rights = driver.create_input_topic("right", key=Rotated(2), value=Rotated(2))
        rights.pipe_input("x", "one")
        lefts.pipe_input("k", "x")
        rights.pipe_input("x", "two")
        output = driver.create_output_topic("out", key=STRING, value=STRING)
        assert output.read_key_values_to_list() == [("k", "x+one"), ("k", "x+two")]


def test_global_tables_read_headers() -> None:
    builder = StreamsBuilder()
    table = builder.global_table(
        "in", value=Rotated(), store=Materialized("store", value=Rotated())
    )
    builder.stream("other", value=STRING).join(
        table, lambda key, value: key, lambda one, two: one + two
    ).to("out", value=STRING)
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        pipe(driver, ("k", "abc"), distance=6)
        driver.create_input_topic("other", key=STRING, value=STRING).pipe_input("k", "x")
        output = driver.create_output_topic("out", key=STRING, value=STRING)
        assert output.read_values_to_list() == ["xabc"]


def test_topics_of_the_test_driver_read_and_write_headers() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=Serdes.bytes()).to("out", value=Serdes.bytes())
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        pipe(driver, ("k", "abc"), distance=6)
        output = driver.create_output_topic("out", key=STRING, value=Rotated())
        assert output.read_record() == TestRecord(
            "k", "abc", 0, Headers([("id", b"k"), ("rotation", b"\x06")])
        )


def test_producer_and_consumer_pass_headers(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    with AdminClient(log=log) as admin:
        admin.create_topics([NewTopic("t", 1)])["t"].result()
    with Producer({"log": log, "key.serializer": "string", "value.serializer": Rotated(8)}) as out:
        out.produce("t", "abc", "k", headers={"id": b"1"})
        out.produce("t", "def", "l")
    settings = {"log": log, "group.id": "g", "auto.offset.reset": "earliest",
                "key.deserializer": "string", "value.deserializer": Rotated()}
    with Consumer(settings) as consumer:
        consumer.subscribe(["t"])
        messages = consumer.consume(2, timeout=10)
    assert [(each.key(), each.value(), each.headers()) for each in messages] == [
        ("k", "abc", [("id", b"1"), ("rotation", b"\x08")]), ("l", "def", [("rotation", b"\x08")]),
    ]


def test_headers_serdes_are_pickled_as_ordinary_objects() -> None:
    copy = pickle.loads(pickle.dumps(Rotated(5)))
    assert copy.serialize("a") == b"f"
