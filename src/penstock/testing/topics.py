"""Input and output topics of `TopologyTestDriver`, and their records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.record import NO_HEADERS, Headers, as_headers
from penstock.serdes.builtin import Serde
from penstock.serdes.headers import RecordHeaders
from penstock.windows import instant_ms, to_ms

if TYPE_CHECKING:
    from penstock.task.result import Output
    from penstock.testing.driver import TopologyTestDriver

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TestRecord(Generic[K, V]):
    """A record with its timestamp and headers.

    `partition` is the partition of an output record, or the one to send an input record to (None:
    the partition of its key). It is ignored when records are compared.

    Example:
        >>> TestRecord("k", "v", 7) == TestRecord("k", "v", 7, partition=1)
        True
    """

    __test__ = False

    key: K
    value: V
    timestamp: datetime | int | None = None
    headers: Headers = NO_HEADERS
    partition: int | None = field(default=None, compare=False, kw_only=True)


class TestInputTopic(Generic[K, V]):
    """Pipes records into a topic.

    A record without a timestamp gets the time of the topic, which then advances by `auto_advance`.

    Example:
        >>> from penstock import StreamsBuilder
        >>> from penstock.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("words", key=str, value=str).map_values(len).to("lengths")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     words = driver.create_input_topic("words", str, str, auto_advance=10)
        ...     words.pipe_input("k", "one")
        ...     words.pipe_key_value_list([("k", "three"), ("k", "four")])
        ...     driver.create_output_topic("lengths", str, int).read_values_to_list()
        [3, 5, 4]
    """

    __test__ = False

    def __init__(
        self, driver: TopologyTestDriver, topic: str, key: Serde[K] | None,
        value: Serde[V] | None, start: int, auto_advance_ms: int,
    ) -> None:
        _check_name(topic)
        if auto_advance_ms < 0:
            raise ValueError(f"auto_advance must not be negative: {auto_advance_ms} ms.")
        self._driver = driver
        self._topic = topic
        self._current = RecordHeaders()
        self._key = _bound(key, topic, True, self._current)
        self._value = _bound(value, topic, False, self._current)
        self._time = start
        self._auto_advance_ms = auto_advance_ms

    def __repr__(self) -> str:
        return f"<TestInputTopic '{self._topic}'>"

    def advance_time(self, advance: timedelta | int) -> None:
        """Advance the time of the topic.

        Args:
            advance: How much time passes.

        Kafka: TestInputTopic#advanceTime
        """
        advance_ms = to_ms(advance)
        if advance_ms < 0:
            raise ValueError(f"The time of a topic cannot go backwards: {advance}.")
        self._time += advance_ms

    def pipe_input(
        self,
        key_or_value: Any,
        *value: Any,
        timestamp: datetime | int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = NO_HEADERS,
        partition: int | None = None,
    ) -> None:
        """Pipe in one record: `(value)`, `(key, value)` or a `TestRecord`.

        Without `partition`, it goes to the partition of its key.

        Args:
            key_or_value: The value, or the key if a value follows, or a `TestRecord`.
            value: The value, if the first argument is the key.
            timestamp: The time of the record; None for the time of the topic.
            headers: The headers: pairs of a name and bytes or None.
            partition: The partition; None for the partition of the key.

        Kafka: TestInputTopic#pipeInput
        """
        if isinstance(key_or_value, TestRecord):
            record = key_or_value
        elif value:
            (only,) = value
            record = TestRecord(key_or_value, only, headers=as_headers(headers))
        else:
            record = TestRecord(None, key_or_value, headers=as_headers(headers))
        time = record.timestamp if timestamp is None else timestamp
        if time is None:
            time = self._time
            self._time += self._auto_advance_ms
        self._current.headers = as_headers(record.headers)
        key = _serialize(self._key, record.key, self._topic, "key")
        data = _serialize(self._value, record.value, self._topic, "value")
        self._driver.pipe(
            self._topic, key, data, instant_ms(time), self._current.headers,
            partition=record.partition if partition is None else partition,
        )

    def pipe_value_list(
        self, values: Iterable[V], *, start: datetime | int | None = None,
        advance: timedelta | int = 0,
    ) -> None:
        """Pipe in values without keys.

        Args:
            values: The values.
            start: The time of the first record; None for the time of the topic.
            advance: The difference of the timestamps of two records.

        Kafka: TestInputTopic#pipeValueList
        """
        self.pipe_record_list(
            [TestRecord(None, value) for value in values], start=start, advance=advance
        )

    def pipe_key_value_list(
        self, pairs: Iterable[tuple[K, V]], *, start: datetime | int | None = None,
        advance: timedelta | int = 0,
    ) -> None:
        """Pipe in (key, value) pairs.

        Args:
            pairs: Pairs of a key and a value.
            start: The time of the first record; None for the time of the topic.
            advance: The difference of the timestamps of two records.

        Kafka: TestInputTopic#pipeKeyValueList
        """
        self.pipe_record_list(
            [TestRecord(key, value) for key, value in pairs], start=start, advance=advance
        )

    def pipe_record_list(
        self, records: Iterable[TestRecord[Any, Any]], *, start: datetime | int | None = None,
        advance: timedelta | int = 0,
    ) -> None:
        """Pipe in records; with `start`, from that timestamp on, `advance` apart.

        Args:
            records: The records.
            start: The time of the first record; None for the time of the topic.
            advance: The difference of the timestamps of two records.

        Kafka: TestInputTopic#pipeRecordList
        """
        time = None if start is None else instant_ms(start)
        for record in records:
            self.pipe_input(record, timestamp=time)
            if time is not None:
                time += to_ms(advance)


class TestOutputTopic(Generic[K, V]):
    """Reads the output of a topic, oldest record first. Reading removes records.

    Example:
        >>> from penstock import StreamsBuilder
        >>> from penstock.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("words", key=str, value=str).map_values(len).to("lengths")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", str, str).pipe_input("k", "one", timestamp=7)
        ...     lengths = driver.create_output_topic("lengths", str, int)
        ...     record = lengths.read_record()
        ...     record.key, record.value, record.timestamp, lengths.is_empty
        ('k', 3, 7, True)
    """

    __test__ = False

    def __init__(
        self, driver: TopologyTestDriver, topic: str, key: Serde[K] | None,
        value: Serde[V] | None,
    ) -> None:
        _check_name(topic)
        self._driver = driver
        self._topic = topic
        self._current = RecordHeaders()
        self._key = _bound(key, topic, True, self._current)
        self._value = _bound(value, topic, False, self._current)

    def __repr__(self) -> str:
        return f"<TestOutputTopic '{self._topic}', {self.queue_size} unread>"

    @property
    def is_empty(self) -> bool:
        """Whether no unread records exist."""
        return not self._driver.queue_of(self._topic)

    @property
    def queue_size(self) -> int:
        """The number of unread records."""
        return len(self._driver.queue_of(self._topic))

    def read_record(self) -> TestRecord[K, V]:
        """Return the next record; raise `LookupError` if there is none.

        Kafka: TestOutputTopic#readRecord
        """
        queue = self._driver.queue_of(self._topic)
        if not queue:
            written = ", ".join(sorted(self._driver.produced_topic_names())) or "none"
            raise LookupError(f"Empty topic: {self._topic}. Topics with output: {written}.")
        return self._record(queue.popleft())

    def read_value(self) -> V:
        """Return the value of the next record.

        Kafka: TestOutputTopic#readValue
        """
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """Return key and value of the next record.

        Kafka: TestOutputTopic#readKeyValue
        """
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Return all unread records.

        Kafka: TestOutputTopic#readRecordsToList
        """
        return [self._record(output) for output in self._driver.read_raw(self._topic)]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Return the keys and values of all unread records.

        Kafka: TestOutputTopic#readKeyValuesToList
        """
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Return the latest value of each key of all unread records.

        Kafka: TestOutputTopic#readKeyValuesToMap
        """
        records = self.read_records_to_list()
        if any(record.key is None for record in records):
            raise ValueError(
                f"Topic {self._topic} has a record without a key. "
                "Use read_key_values_to_list() instead."
            )
        return {record.key: record.value for record in records}

    def read_values_to_list(self) -> list[V]:
        """Return the values of all unread records.

        Kafka: TestOutputTopic#readValuesToList
        """
        return [record.value for record in self.read_records_to_list()]

    def _record(self, output: Output) -> TestRecord[K, V]:
        self._current.headers = output.headers
        return TestRecord(
            _deserialize(self._key, output.key, self._topic, "key"),
            _deserialize(self._value, output.value, self._topic, "value"),
            output.timestamp, output.headers, partition=output.partition,
        )


def _check_name(topic: Any) -> None:
    if not isinstance(topic, str) or not topic:
        raise TypeError(f"The name of a topic must be a non-empty str, not {topic!r}.")


def _bound(
    serde: Serde[Any] | None, topic: str, is_key: bool, record: RecordHeaders
) -> Serde[Any] | None:
    return None if serde is None else serde.for_topic(topic, is_key).with_headers_of(record)


def _serialize(serde: Serde[Any] | None, value: Any, topic: str, what: str) -> bytes | None:
    if value is None:
        return None
    if serde is None:
        raise ValueError(f"Topic {topic} has no {what} serde. Create the topic with {what}=.")
    return serde.serialize(value)


def _deserialize(serde: Serde[Any] | None, data: bytes | None, topic: str, what: str) -> Any:
    if data is None:
        return None
    if serde is None:
        raise ValueError(f"Topic {topic} has no {what} serde. Create the topic with {what}=.")
    return serde.deserialize(data)
