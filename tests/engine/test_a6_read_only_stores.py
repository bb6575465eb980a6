"""Read-only stores are restored by their processor: the rows are the same after a restart."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.harness import Application, config_of
from penstock import (
    ProcessingFailedException,
    Processor,
    PunctuationType,
    Record,
    Serde,
    Serdes,
    StoreBuilder,
    Stores,
    Topology,
    TopologyException,
)
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()
TOPICS = {"rows": 1, "in": 1, "out": 1, "changed": 1}
PERSISTENT = Stores.persistent_key_value_store("kept")


class Feed(Processor[str, str]):
    """Stores the value with a prefix, the record's timestamp and the number of earlier values."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "bad":
            raise ValueError(record.value)
        store = self.context.get_state_store("kept")
        before = store.get(record.key) or ""
        store.put(record.key, f"{before}W:{record.value}@{record.timestamp};")
        self.context.forward(record, "changes")


class LookUp(Processor[str, str]):
    """Forwards the row of the key."""

    def process(self, record: Record[str, str]) -> None:
        row = self.context.get_state_store("kept").get(record.key)
        self.context.forward(record.with_value(str(row)))


def store(supplier: Any = PERSISTENT) -> StoreBuilder:
    return Stores.key_value_store_builder(supplier, TEXT, TEXT)


def add_feed(
    feed: Callable[[], Any] = Feed, builder: StoreBuilder | None = None, **options: Any
) -> Topology:
    return Topology().add_read_only_state_store(
        builder or store(), "rows-source", "rows", "feed", feed, **options
    )


def complete(topology: Topology, look_up: Callable[[], Any] = LookUp) -> Topology:
    topology.add_sink("changes", "changed", "feed")
    topology.add_source("in-source", "in").add_processor("look-up", look_up, "in-source")
    topology.connect_processor_and_state_stores("look-up", "kept")
    return topology.add_sink("results", "out", "look-up")


def results(app: Application) -> list[str]:
    return [value for _, value, _ in app.texts("out")]


def test_row_is_the_same_in_the_next_batch_and_after_a_restore(tmp_path: Path) -> None:
    with Application(complete(add_feed()), tmp_path, TOPICS) as app:
        app.send("rows", ("k", "1", 10))
        app.send("in", ("k", "", 20))
        app.run()
        app.send("in", ("k", "", 30))
        app.run()
        app.crash()
        shutil.rmtree(tmp_path / "state")
        app.send("in", ("k", "", 40))
        app.run()
        assert results(app) == ["W:1@10;"] * 3
        # A row that depends on the previous one, in a store that is partly restored.
        app.send("rows", ("k", "2", 50), ("k", "3", 60))
        app.send("in", ("k", "", 70))
        app.run()
        shutil.rmtree(tmp_path / "state")
        app.crash()
        app.send("in", ("k", "", 80))
        app.run()
        assert results(app)[3:] == ["W:1@10;W:2@50;W:3@60;"] * 2
        # Records that were forwarded are not forwarded again.
        assert [value for _, value, _ in app.texts("changed")] == ["1", "2", "3"]


def test_skipped_records_and_extracted_timestamps_are_the_same_after_a_restore(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def partition_time_plus_one(record: Any, partition_time: int) -> int:
        return -1 if record.value == "skip" else partition_time + 1

    topology = add_feed(timestamp_extractor=partition_time_plus_one)
    config = config_of(processing_exception_handler="continue")
    with Application(complete(topology), tmp_path, TOPICS, config=config) as app:
        app.send("rows", ("k", "1", 10), ("k", "bad", 20), ("k", "skip", 30), ("k", "2", 40))
        app.send("in", ("k", "", 50))
        app.run()
        app.send("rows", ("k", "3", 60))
        app.run()
        caplog.clear()
        shutil.rmtree(tmp_path / "state")
        app.crash()
        app.send("in", ("k", "", 70))
        app.run()
        assert results(app)[-1] == "W:1@0;W:2@2;W:3@3;"
        assert [each for each in caplog.records if each.levelname in {"WARNING", "ERROR"}] == []


class Topics(Serde[str]):
    """Appends the topic of the serde to each value that is stored."""

    def __init__(self, topic: str = "") -> None:
        super().__init__(lambda value: f"{value}[{topic}]".encode(), bytes.decode, "topics")

    def for_topic(self, topic: str, is_key: bool) -> Serde[str]:
        return Topics(topic)


def test_serdes_of_the_store_have_the_same_topic_when_it_is_restored(tmp_path: Path) -> None:
    builder = Stores.key_value_store_builder(PERSISTENT, TEXT, Topics())
    with Application(complete(add_feed(builder=builder)), tmp_path, TOPICS) as app:
        app.send("rows", ("k", "1", 10))
        app.send("in", ("k", "", 20))
        app.run()
        app.send("in", ("k", "", 30))
        app.run()
        assert results(app) == ["W:1@10;[rows]"] * 2


def test_test_driver_restores_the_store_by_its_processor() -> None:
    with TopologyTestDriver(complete(add_feed()), config_of()) as driver:
        driver.create_input_topic("rows", TEXT, TEXT).pipe_input("k", "1", timestamp=10)
        driver.crash()
        assert driver.get_key_value_store("kept").get("k") == "W:1@10;"


class Writer(Processor[str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)


class WritingPunctuator(Feed):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(
            timedelta(milliseconds=1), PunctuationType.STREAM_TIME,
            lambda now: context.get_state_store("kept").put("k", "punctuated"),
        )


class StreamTime(Feed):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("kept").put(
            record.key, str(self.context.current_stream_time_ms)
        )


@pytest.mark.parametrize(("topology", "message"), [
    (lambda: complete(add_feed(), Writer), "Only processor feed may write: put is not allowed"),
    (lambda: complete(add_feed(WritingPunctuator)), "Only the records of its topic change"),
    (lambda: complete(add_feed(StreamTime)), "feed fills a read-only store.*the stream time"),
])
def test_writes_that_a_restore_cannot_repeat_are_refused(
    topology: Callable[[], Topology], message: str, tmp_path: Path
) -> None:
    with Application(topology(), tmp_path, TOPICS) as app:
        app.send("rows", ("k", "1", 10), ("k", "2", 20))
        app.send("in", ("k", "mine", 30))
        with pytest.raises(ProcessingFailedException, match=message):
            app.run()


def test_other_stores_of_the_processor_are_refused() -> None:
    topology = add_feed()
    other = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("other"), TEXT, TEXT
    )
    with pytest.raises(TopologyException, match=r"feed fills the read-only store kept.*other"):
        topology.add_state_store(other, "feed")


@pytest.mark.parametrize(("builder", "kind"), [
    (store(Stores.lru_map("kept", 5)), "an LRU map"),
    (StoreBuilder.custom("kept", lambda: None), "a custom store"),
])
def test_stores_that_a_restore_cannot_reproduce_are_refused(
    builder: StoreBuilder, kind: str
) -> None:
    with pytest.raises(TopologyException, match=f"kept cannot be read-only.*{kind}"):
        add_feed(builder=builder)
