"""The topics that serdes receive, compared with Kafka Streams 4.3.0.

The tables below were printed by Kafka's `TopologyTestDriver` with serdes that record their topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    JoinWindows,
    Materialized,
    Serde,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    WindowedSerdes,
)
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()
Build = Callable[["Recorder"], StreamsBuilder]


class RecordingSerde(Serde[str]):
    """Strings; notes the topic of every call."""

    def __init__(self, name: str, seen: set[str], topic: str = "(none)") -> None:
        self.name = name
        self.seen = seen
        self.topic = topic

    def for_topic(self, topic: str, is_key: bool) -> RecordingSerde:
        assert is_key == (self.name in {"key", "pk", "fk"})
        return RecordingSerde(self.name, self.seen, topic)

    def serialize(self, value: str) -> bytes:
        self.seen.add(f"{self.name} write {self.topic}")
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        self.seen.add(f"{self.name} read {self.topic}")
        return data.decode()


class Recorder:
    """Creates recording serdes that share one set of calls."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, name: str) -> RecordingSerde:
        return RecordingSerde(name, self.seen)

    def store(self, name: str) -> Materialized[Any, Any]:
        return Materialized(name, key=self("key"), value=self("value"))


def concat(one: str, two: str) -> str:
    return f"{one}{two}"


def source_and_sink(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=recorder("key"), value=recorder("value"))
    stream.to("out", key=recorder("key"), value=recorder("value"))
    return builder


def extracted_topic(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=recorder("key"), value=recorder("value"))
    stream.to(lambda key, value, context: "out", key=recorder("key"), value=recorder("value"))
    return builder


def table(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.table(
        "in", key=recorder("key"), value=recorder("value"), store=recorder.store("store")
    )
    return builder


def global_table(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    rows = builder.global_table(
        "in", key=recorder("key"), value=recorder("value"), store=recorder.store("store")
    )
    builder.stream("other", key=STRING, value=STRING).join(
        rows, lambda key, value: key, concat
    ).to("out", key=STRING, value=STRING)
    return builder


def grouped_stream(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by(
        lambda key, value: value, name="g", key=recorder("key"), value=recorder("value")
    ).reduce(concat, store=recorder.store("store"))
    return builder


def grouped_table(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.table("in", key=STRING, value=STRING).group_by(
        lambda key, value: (value, key), name="g", key=recorder("key"), value=recorder("value")
    ).reduce(
        concat, lambda one, two: one, store=Materialized("store", key=STRING, value=STRING)
    )
    return builder


def windowed_key(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    windows = TimeWindows.of(10_000)
    builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(windows).reduce(
        concat, store=Materialized("store", key=STRING, value=STRING)
    ).to_stream().to(
        "out", key=WindowedSerdes.time_windowed(recorder("key"), 10_000), value=recorder("value")
    )
    return builder


def window_store(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    windows = TimeWindows.of(10_000)
    builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(windows).reduce(
        concat, store=recorder.store("store")
    )
    return builder


def session_store(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    windows = SessionWindows.of(10_000)
    builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(windows).reduce(
        concat, store=recorder.store("store")
    )
    return builder


def suppressed_table(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    rows = builder.table("in", key=recorder("key"), value=recorder("value"))
    rows.map_values(lambda value: value, store=recorder.store("mapped")).suppress(
        Suppressed.until_time_limit(1000).with_name("sup")
    ).to_stream().to("out", key=STRING, value=STRING)
    return builder


def outer_join(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    other = builder.stream("other", key=STRING, value=STRING)
    stream.outer_join(
        other, concat, JoinWindows.of(2000), name="j", store_name="js",
        key=recorder("key"), value=recorder("value"), other_value=recorder("other-value"),
    )
    return builder


def join_with_grace(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    supplier = Stores.persistent_versioned_key_value_store("store", 100_000)
    rows = builder.table(
        "other", key=STRING, value=STRING,
        store=Materialized(supplier=supplier, key=STRING, value=STRING),
    )
    builder.stream("in", key=STRING, value=STRING).join(
        rows, concat, name="j", key=recorder("key"), value=recorder("value"), grace=1000
    ).to("out", key=STRING, value=STRING)
    return builder


def repartitioned(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).select_key(lambda key, value: value).repartition(
        name="r", key=recorder("key"), value=recorder("value")
    ).to("out", key=STRING, value=STRING)
    return builder


def foreign_key_join(recorder: Recorder) -> StreamsBuilder:
    builder = StreamsBuilder()
    left = builder.table("in", key=recorder("pk"), value=recorder("lv"))
    right = builder.table("other", key=recorder("fk"), value=recorder("rv"))
    left.join(
        right, lambda value: value, concat, name="j",
        store=Materialized("result", key=STRING, value=STRING),
    )
    return builder


def both_directions(*parts: str) -> set[str]:
    return {
        f"{name} {direction} {topic}" for part in parts for name, topic in [part.split(" ")]
        for direction in ("read", "write")
    }


JS = "app-js-outer"
LEFT, RIGHT = "app-in-STATE-STORE-0000000000", "app-other-STATE-STORE-0000000003"
REGISTRATION = "app-j-subscription-registration-topic"
RESPONSE = "app-j-subscription-response-topic"

#: The calls of Kafka Streams.
CASES: list[tuple[Build, set[str]]] = [
    (source_and_sink, {"key read in", "value read in", "key write out", "value write out"}),
    (extracted_topic, {"key read in", "value read in", "key write out", "value write out"}),
    (table, {
        "key read in", "value read in",
        *both_directions("key app-store-changelog", "value app-store-changelog"),
    }),
    (global_table, both_directions("key in", "value in")),
    (grouped_stream, both_directions(
        "key app-g-repartition", "value app-g-repartition", "key app-store-changelog",
        "value app-store-changelog",
    )),
    (grouped_table, both_directions("key app-g-repartition", "value app-g-repartition")),
    (windowed_key, {"key write out", "value write out"}),
    (window_store, both_directions("key app-store-changelog", "value app-store-changelog")),
    (session_store, both_directions("key app-store-changelog", "value app-store-changelog")),
    (suppressed_table, {
        "key read in", "value read in", *both_directions(
            "key app-mapped-changelog", "value app-mapped-changelog",
            "key app-sup-store-changelog", "value app-sup-store-changelog",
        ),
    }),
    (outer_join, {
        "key read app-js-outer-shared-join-store-changelog",
        *(f"key write {JS}-{side}-join-store-changelog" for side in ("this", "other", "shared")),
        *both_directions(
            f"value {JS}-this-join-store-changelog",
            f"other-value {JS}-other-join-store-changelog",
            f"value {JS}-shared-join-store-changelog",
            f"other-value {JS}-shared-join-store-changelog",
        ),
    }),
    (join_with_grace, both_directions("key j", "value j")),
    (repartitioned, both_directions("key app-r-repartition", "value app-r-repartition")),
    (foreign_key_join, {
        "pk read in", "lv read in", "fk read other", "rv read other",
        f"lv write {REGISTRATION}-vh",
        *both_directions(
            f"fk {REGISTRATION}", f"fk {REGISTRATION}-fk", f"pk {REGISTRATION}-pk",
            f"pk {RESPONSE}", f"rv {RESPONSE}",
            f"pk {LEFT}-changelog", f"lv {LEFT}-changelog",
            f"fk {RIGHT}-changelog", f"rv {RIGHT}-changelog",
        ),
    }),
]
IDS = [build.__name__ for build, _ in CASES]

#: (topic, key, value, timestamp). The values of "in" are keys of "other".
RECORDS = [
    ("other", "x", "1", 1000), ("in", "a", "x", 2000), ("in", "a", "y", 3000),
    ("other", "y", "2", 4000), ("in", "a", None, 5000), ("in", "b", "x", 20_000),
    ("other", "c", "1", 40_000), ("in", "d", "x", 60_000), ("other", "d", "1", 60_000),
    ("other", "e", "1", 80_000), ("in", "e", "x", 80_000), ("in", "f", "x", 99_000),
]


def calls_of(build: Build, config: StreamsConfig) -> set[str]:
    recorder = Recorder()
    topology = build(recorder).build(config)
    description = str(topology.describe())
    with TopologyTestDriver(topology, config) as driver:
        for topic, key, value, timestamp in RECORDS:
            if f"topics: [{topic}]" in description:
                driver.create_input_topic(topic, key=STRING, value=STRING).pipe_input(
                    key, value, timestamp=timestamp
                )
    return recorder.seen


@pytest.mark.parametrize(("build", "expected"), CASES, ids=IDS)
def test_serdes_receive_the_topics_of_kafka(build: Build, expected: set[str]) -> None:
    seen = calls_of(build, StreamsConfig(application_id="app"))
    assert seen <= expected
    # The cache keeps strings, and a foreign-key join takes the primary key from the row key.
    not_called = {"value read app-store-changelog", f"fk read {REGISTRATION}-fk",
                  f"rv read {RIGHT}-changelog"}
    assert expected - seen <= not_called


def test_store_of_a_table_without_a_changelog_receives_the_source_topic() -> None:
    seen = calls_of(table, StreamsConfig(application_id="app", topology_optimization="all"))
    assert seen == both_directions("key in", "value in")
