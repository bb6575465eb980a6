"""Functions of the DSL reach timestamp, headers and position of their record."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    Headers,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Topology,
    current_record,
)
from penstock.clients import AdminClient, Consumer, NewTopic, Producer
from penstock.testing import TopologyTestDriver

TEXT, LONG = Serdes.string(), Serdes.long()
HEADERS = Headers([("source", b"web")])


def describe(value: object) -> str:
    record = current_record()
    source = (record.headers.last("source") or b"").decode()
    return f"{value} {record.topic}-{record.partition}@{record.offset} {record.timestamp} {source}"


def from_the_web(value: str) -> bool:
    return current_record().headers.last("source") == b"web"


def stateless() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT).filter(from_the_web)
    stream.map(lambda key, value: (key, describe(value))).map_values(lambda value: value).to(
        "out", key=TEXT, value=TEXT
    )
    return builder.build()


def test_functions_of_the_dsl_reach_their_record() -> None:
    with TopologyTestDriver(stateless()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "dropped", timestamp=1)
        topic.pipe_input("k", "v", timestamp=5, headers=HEADERS)
        out = driver.create_output_topic("out", TEXT, TEXT)
        assert out.read_values_to_list() == ["v in-0@1 5 web"]


def test_functions_see_the_timestamp_of_a_forwarded_record() -> None:
    class Later(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record.with_timestamp(99).with_headers(HEADERS))

    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT).process(Later)
    stream.map_values(describe).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v", timestamp=5)
        assert driver.create_output_topic("out", TEXT, TEXT).read_value() == "v in-0@0 99 web"


def test_functions_behind_a_cache_see_the_record_that_was_cached() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in", key=TEXT, value=TEXT).group_by_key().count(
        store=Materialized("counts", key=TEXT, value=LONG)
    )
    table.map_values(describe).to_stream().to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build(), commit_interval=None) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "v", timestamp=5, headers=HEADERS)
        topic.pipe_input("other", "v", timestamp=8)
        driver.commit()
        values = driver.create_output_topic("out", TEXT, TEXT).read_values_to_list()
    assert values == ["1 in-0@0 5 web", "1 in-0@1 8 "]


def test_punctuators_have_no_record_but_a_time() -> None:
    seen: list[Any] = []

    class Report(Processor[str, str]):
        def init(self, context: ProcessorContext) -> None:
            seen.append(current_record().topic)
            context.schedule(10, PunctuationType.STREAM_TIME, self.report)

        def report(self, now: int) -> None:
            seen.append((current_record().topic, current_record().timestamp))

        def process(self, record: Record[str, str]) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Report)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v", timestamp=5)
    assert seen == [None, (None, 5)]


def test_application_reaches_the_record_too(tmp_path: Any) -> None:
    log = str(tmp_path / "log.db")
    with AdminClient({"log": log}) as admin:
        for future in admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)]).values():
            future.result()
    with Producer({"log": log}) as producer:
        for value in (b"a", b"b"):
            producer.produce("in", key=b"k", value=value, timestamp=5, headers=list(HEADERS))
    config = StreamsConfig(application_id="app", log=log, state_dir=str(tmp_path / "state"))
    with Streams(stateless(), config, master="inline") as streams:
        streams.run_until_caught_up(20)
    consumer = Consumer({"log": log, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["out"])
    found = [each.value().decode() for each in consumer.consume(2, 10)]
    consumer.close()
    assert found == ["a in-0@0 5 web", "b in-0@1 5 web"]


def test_call_outside_of_a_topology_is_refused() -> None:
    with pytest.raises(StreamsException, match="outside of a running topology"):
        current_record()
