"""The two ends of a test: topics to feed and topics to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.record import NO_HEADERS, Headers, as_headers
from penstock.serdes.builtin import Serde
from penstock.windows import instant_ms, to_ms

if TYPE_CHECKING:
    from penstock.task.result import Output
    from penstock.testing.driver import TopologyTestDriver

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TestRecord(Generic[K, V]):
    """A record with its time and headers.

    `partition` is where a record that was read lies, and where one that is fed goes (None: where
    its key belongs); records that differ in nothing else are equal.
    """

    __test__ = False

    key: K
    value: V
    timestamp: datetime | int | None = None
    headers: Headers = NO_HEADERS
    partition: int | None = field(default=None, compare=False, kw_only=True)


class TestInputTopic(Generic[K, V]):
    """Feeds a topic. Records without a time get the topic's own, which advances by itself."""

    __test__ = False

    def __init__(
        self, driver: TopologyTestDriver, topic: str, key: Serde[K] | None,
        value: Serde[V] | None, start: int, auto_advance_ms: int,
    ) -> None:
        self._driver = driver
        self._topic = topic
        self._key = key.for_topic(topic, True) if key is not None else None
        self._value = value.for_topic(topic, False) if value is not None else None
        self._time = start
        self._auto_advance_ms = auto_advance_ms

    def __repr__(self) -> str:
        return f"<TestInputTopic '{self._topic}'>"

    def advance_time(self, advance: timedelta | int) -> None:
        """Move the time of the records to come."""
        advance_ms = to_ms(advance)
        if advance_ms < 0:
            raise ValueError(f"Time must not go backwards: {advance}.")
        self._time += advance_ms

    def pipe_input(
        self,
        key_or_value: Any,
        *value: Any,
        timestamp: datetime | int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = NO_HEADERS,
        partition: int | None = None,
    ) -> None:
        """Feed `(value)`, `(key, value)` or a `TestRecord`; by default where its key belongs."""
        if isinstance(key_or_value, TestRecord):
            record = key_or_value
        elif value:
            (only,) = value
            record = TestRecord(key_or_value, only, headers=as_headers(headers))
        else:
            record = TestRecord(None, key_or_value, headers=as_headers(headers))
        given = record.timestamp if timestamp is None else timestamp
        if given is None:
            given = self._time
            self._time += self._auto_advance_ms
        self._driver.pipe(
            self._topic, _bytes(self._key, record.key, self._topic, "key"),
            _bytes(self._value, record.value, self._topic, "value"), instant_ms(given),
            record.headers, partition=record.partition if partition is None else partition,
        )

    def pipe_value_list(
        self, values: Iterable[V], *, start: datetime | int | None = None,
        advance: timedelta | int = 0,
    ) -> None:
        """Feed values without keys."""
        self.pipe_record_list(
            [TestRecord(None, value) for value in values], start=start, advance=advance
        )

    def pipe_key_value_list(
        self, pairs: Iterable[tuple[K, V]], *, start: datetime | int | None = None,
        advance: timedelta | int = 0,
    ) -> None:
        """Feed (key, value) pairs."""
        self.pipe_record_list(
            [TestRecord(key, value) for key, value in pairs], start=start, advance=advance
        )

    def pipe_record_list(
        self, records: Iterable[TestRecord[Any, Any]], *, start: datetime | int | None = None,
        advance: timedelta | int = 0,
    ) -> None:
        """Feed records; with `start`, at that time and `advance` apart."""
        time = None if start is None else instant_ms(start)
        for record in records:
            self.pipe_input(record, timestamp=time)
            if time is not None:
                time += to_ms(advance)


class TestOutputTopic(Generic[K, V]):
    """Reads a topic, oldest record first; what was read is gone."""

    __test__ = False

    def __init__(
        self, driver: TopologyTestDriver, topic: str, key: Serde[K] | None,
        value: Serde[V] | None,
    ) -> None:
        self._driver = driver
        self._topic = topic
        self._key = key.for_topic(topic, True) if key is not None else None
        self._value = value.for_topic(topic, False) if value is not None else None

    def __repr__(self) -> str:
        return f"<TestOutputTopic '{self._topic}', {self.queue_size} to be read>"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to be read."""
        return not self._driver.queue_of(self._topic)

    @property
    def queue_size(self) -> int:
        """How many records are left to be read."""
        return len(self._driver.queue_of(self._topic))

    def read_record(self) -> TestRecord[K, V]:
        """The next record."""
        queue = self._driver.queue_of(self._topic)
        if not queue:
            written = ", ".join(sorted(self._driver.produced_topic_names())) or "none"
            raise LookupError(f"Empty topic: {self._topic}. Topics written so far: {written}.")
        return self._record(queue.popleft())

    def read_value(self) -> V:
        """The value of the next record."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """Key and value of the next record."""
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """All records that are left."""
        return [self._record(output) for output in self._driver.read_raw(self._topic)]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """All keys and values that are left."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """The newest value of every key among the records that are left."""
        records = self.read_records_to_list()
        if any(record.key is None for record in records):
            raise ValueError("A record without a key cannot be put into a dictionary.")
        return {record.key: record.value for record in records}

    def read_values_to_list(self) -> list[V]:
        """All values that are left."""
        return [record.value for record in self.read_records_to_list()]

    def _record(self, output: Output) -> TestRecord[K, V]:
        return TestRecord(
            _value(self._key, output.key, self._topic, "key"),
            _value(self._value, output.value, self._topic, "value"),
            output.timestamp, output.headers, partition=output.partition,
        )


def _bytes(serde: Serde[Any] | None, value: Any, topic: str, what: str) -> bytes | None:
    if value is None:
        return None
    if serde is None:
        raise ValueError(f"Topic {topic}: give {what}=, the serde of its {what}s.")
    return serde.serialize(value)


def _value(serde: Serde[Any] | None, data: bytes | None, topic: str, what: str) -> Any:
    if data is None:
        return None
    if serde is None:
        raise ValueError(f"Topic {topic}: give {what}=, the serde of its {what}s.")
    return serde.deserialize(data)
