"""Collects the output records of a task, serialized and partitioned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from penstock.errors import NotSentException, StreamsException, TopicSerdeException
from penstock.handlers import ProducedRecord, SerializationExceptionOrigin
from penstock.native import core
from penstock.partitioning import partition_of
from penstock.processors.base import CallCounter, Forward
from penstock.record import CurrentRecord, Headers, RecordContext
from penstock.serdes.builtin import Serde
from penstock.serdes.headers import RecordHeaders, bind_headers
from penstock.serdes.windowed import WindowedSerde
from penstock.task.error_handling import ExceptionHandlers
from penstock.task.origins import OutputOrigins
from penstock.task.record_limits import RecordLimits, no_limits
from penstock.topology.nodes import Partitioner, SinkNode

_NOT_WRITTEN = object()


class _BoundSink(NamedTuple):
    """The serdes of a sink for one topic, and the functions that encode and partition a record."""

    serdes: tuple[Serde[Any], Serde[Any]]
    encode: Callable[..., tuple[bytes | None, bytes | None] | None]
    partitions: Callable[[str, Any, Any], Iterable[int | None]]
    sees_headers: bool


class Collector:
    """The outputs of a task in the order in which they were written.

    `partitions_of` returns the number of partitions of a topic. Records for unknown topics are
    rejected.
    """

    def __init__(
        self, current: CurrentRecord, partitions_of: Callable[[str], int | None],
        limits_of: Callable[[str], RecordLimits | None] = no_limits, *,
        origins: OutputOrigins | None = None,
    ) -> None:
        #: Plain tuples with the fields of `Output`; named tuples cost more.
        self.outputs: list[tuple[Any, ...]] = []
        #: The source records of the outputs; None if no other task receives outputs.
        self.origins = origins
        self.null_keys_sent = 0
        self._current = current
        self._partitions_of = partitions_of
        self._limits_of = limits_of
        #: Native sinks with their topics. They hold a copy of the limits.
        self._native_sinks: list[tuple[str, Forward]] = []
        #: Topic -> the first sink that writes to it. None: the sinks that select the topic.
        self._sinks: dict[str | None, list[str]] = {}
        #: The topics of dead letters, which no sink writes.
        self._raw_topics: set[str] = set()

    def sink_of(self, topic: str) -> str | None:
        """The sink that writes to a topic, the first if there are several; None if it is unknown.

        Kafka Streams reports the metrics of a topic for the first sink, too.
        """
        found = self._sinks.get(topic)
        if found is not None:
            return found[0]
        selecting = self._sinks.get(None, [])
        return selecting[0] if len(selecting) == 1 and topic not in self._raw_topics else None

    def send_raw(self, record: ProducedRecord) -> tuple[Any, ...]:
        """Add a serialized record (dead letter queue), and return it."""
        partition = record.partition
        if partition is None:
            partition = self._default_partition(record.topic, record.key)
        output = (
            record.topic, partition, record.key, record.value, record.timestamp, record.headers
        )
        self._append(output)
        self._raw_topics.add(record.topic)
        return output

    def refresh_limits(self, valid_ms: int) -> None:
        """Look up the limits of topics again, which move with the clock.

        The caller does so again within `valid_ms`. Records that a topic may reject by then are
        checked one by one.
        """
        if core is None:
            return
        for topic, sink in self._native_sinks:
            limits = self._limits_of(topic)
            if limits is not None:
                core.limit_sink(
                    sink, limits.max_bytes, limits.earliest + valid_ms, limits.latest
                )

    def _append(self, output: tuple[Any, ...]) -> None:
        self.outputs.append(output)
        if self.origins is not None:
            self.origins.note(self._current)

    def attach_sink(
        self, node: SinkNode, topic: str | None, serdes: tuple[Serde[Any], Serde[Any]],
        handlers: ExceptionHandlers, *, drop: Callable[[str], None], counter: CallCounter,
    ) -> tuple[Forward, bool]:
        """The function of a sink. `topic` is None if it is selected per record.

        Also returns whether it counts its records: a native function itself, one in Python in
        `counter`.
        """
        record = RecordHeaders()
        # Nodes are attached from the leaves up.
        self._sinks.setdefault(topic, []).insert(0, node.name)

        def bind(topic: str) -> _BoundSink:
            key, value = serdes
            bound, sees_headers = bind_headers(
                (key.for_topic(topic, True), value.for_topic(topic, False)), record
            )
            return _BoundSink(
                bound, _encoder(node.name, *bound, handlers),
                self._partitioning(node, bound[0], drop), sees_headers,
            )

        if topic is None:
            return self._extracting_sink(node, cache(bind), record, handlers), False
        sink = bind(topic)
        if node.partitioner is None and not sink.sees_headers:
            return self._plain_sink(
                node.name, topic, sink.serdes, handlers,
                _check_partition_first(sink.partitions, sink.encode), counter,
            ), True
        send = self._sender(node.name, record, handlers)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            send(sink, topic, key, value, timestamp, headers)

        return process, False

    def _extracting_sink(
        self, node: SinkNode, bind: Callable[[str], _BoundSink], record: RecordHeaders,
        handlers: ExceptionHandlers,
    ) -> Forward:
        """A sink whose topic is selected per record."""
        choose: Any = node.topic
        current = self._current
        send = self._sender(node.name, record, handlers)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            context = RecordContext(
                current.topic, current.partition, current.offset, timestamp, headers,
                current.raw_key, current.raw_value,
            )
            topic = choose(key, value, context)
            if not isinstance(topic, str):
                raise ValueError(
                    f"{node.name}: the topic name extractor returned {topic!r}, not a str."
                )
            send(bind(topic), topic, key, value, timestamp, headers)

        return process

    def _sender(
        self, name: str, record: RecordHeaders, handlers: ExceptionHandlers
    ) -> Callable[[_BoundSink, str, Any, Any, int, Headers], None]:
        """Writes a record to each of its partitions, with the headers that its serdes add."""
        current, append = self._current, self._checked_append(name, handlers)

        def send(
            sink: _BoundSink, topic: str, key: Any, value: Any, timestamp: int, headers: Headers
        ) -> None:
            for partition in sink.partitions(topic, key, value):
                record.headers = headers
                encoded = sink.encode(topic, key, value, timestamp, headers)
                if encoded is None:
                    return
                raw_key, raw_value = encoded
                current.sent = True
                append(topic, partition, raw_key, raw_value, timestamp, record.headers)

        return send

    def _plain_sink(
        self, name: str, topic: str, serdes: tuple[Serde[Any], Serde[Any]],
        handlers: ExceptionHandlers,
        encode: Callable[..., tuple[bytes | None, bytes | None] | None], counter: CallCounter,
    ) -> Forward:
        """The common case: a fixed topic, partitioned by the serialized key."""
        write_key, write_value = serdes[0].writer, serdes[1].writer
        current, append, origins = self._current, self._append, self.origins
        # A windowed key is partitioned by its inner key.
        tail = serdes[0].suffix_size if isinstance(serdes[0], WindowedSerde) else 0
        append_checked = self._checked_append(name, handlers, tail)
        partitions, limits = self._partitions_of(topic), self._limits_of(topic)
        unchecked = partitions == 1 and limits is None
        if core is not None:
            # Native code checks sizes and timestamps; records without a key are checked in Python.
            bounds = (-1, tail) if limits is None else (
                limits.max_bytes, tail, limits.earliest, limits.latest
            )
            native: Forward = core.sink(
                topic, (write_key, write_value), encode, append_checked, current,
                (self.outputs, None, None) if origins is None
                else (self.outputs, origins.indexes, origins.marks),
                partitions or 0, *bounds,
            )
            if limits is not None:
                self._native_sinks.append((topic, native))
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            counter.calls += 1
            raw_key: Any = _NOT_WRITTEN
            try:
                raw_key = None if key is None else write_key(key)
                raw_value = None if value is None else write_value(value)
            except Exception as error:
                written = () if raw_key is _NOT_WRITTEN else (raw_key,)
                encoded = encode(topic, key, value, timestamp, headers, written, error)
                if encoded is None:
                    return
                raw_key, raw_value = encoded
            current.sent = True
            if unchecked:
                append((topic, 0, raw_key, raw_value, timestamp, headers))
            else:
                append_checked(topic, None, raw_key, raw_value, timestamp, headers)

        return process

    def _checked_append(
        self, name: str, handlers: ExceptionHandlers, tail: int = 0
    ) -> Callable[..., None]:
        """Adds a record that the log accepts; others go to the production handler.

        `tail` is the number of bytes at the end of a key that do not affect its partition.
        """
        append, limits_of = self._append, self._limits_of

        def checked(
            topic: str, partition: int | None, key: bytes | None, value: bytes | None,
            timestamp: int, headers: Headers,
        ) -> None:
            try:
                if partition is None:
                    partition = self._default_partition(topic, key, tail)
                limits = limits_of(topic)
                if limits is not None:
                    limits.check((topic, key, value, timestamp, headers))
            except NotSentException as error:
                record = ProducedRecord(topic, partition, timestamp, key, value, headers)
                handlers.not_sent(name, record, error)
                return
            append((topic, partition, key, value, timestamp, headers))

        return checked

    def _partitioning(
        self, node: SinkNode, key_serde: Serde[Any], drop: Callable[[str], None]
    ) -> Callable[[str, Any, Any], Iterable[int | None]]:
        """Selects the partitions of a record; [None] means by the key's bytes, [] drops it."""
        partitioner = node.partitioner
        if partitioner is None and isinstance(key_serde, WindowedSerde):
            inner = key_serde.inner.serialize

            def by_inner_key(topic: str, key: Any, value: Any) -> Iterable[int | None]:
                count = self._count(topic)
                if key is None or count == 1:
                    return (None,)
                return (partition_of(inner(key.key), count),)

            return by_inner_key
        if partitioner is None:
            return lambda topic, key, value: (None,)
        return self._partitions_chosen(node.name, partitioner, drop)

    def _partitions_chosen(
        self, name: str, partitioner: Partitioner, drop: Callable[[str], None]
    ) -> Callable[[str, Any, Any], Iterable[int | None]]:
        def chosen(topic: str, key: Any, value: Any) -> Iterable[int | None]:
            count = self._count(topic)
            selected = partitioner(topic, key, value, count)
            if selected is None:
                return (None,)
            partitions = (selected,) if isinstance(selected, int) else tuple(selected)
            if not partitions:
                drop("the partitioner returned no partition")
            for partition in partitions:
                if not 0 <= partition < count:
                    raise StreamsException(
                        f"{name}: the partitioner returned partition {partition} for topic "
                        f"{topic}, which has {count} partitions."
                    )
            return partitions

        return chosen

    def _count(self, topic: str) -> int:
        count = self._partitions_of(topic)
        if not count:
            raise NotSentException(
                f"Topic {topic} does not exist. Create it with 'penstock topics create {topic}'.",
                retriable=True,
            )
        return count

    def _default_partition(self, topic: str, raw_key: bytes | None, tail: int = 0) -> int:
        count = self._count(topic)
        if raw_key is None:
            self.null_keys_sent += 1
            return (self.null_keys_sent - 1) % count
        return partition_of(raw_key[:len(raw_key) - tail], count) if count > 1 else 0


def _check_partition_first(
    partitions: Callable[[str, Any, Any], Iterable[int | None]],
    encode: Callable[..., tuple[bytes | None, bytes | None] | None],
) -> Callable[..., tuple[bytes | None, bytes | None] | None]:
    """`encode` in Kafka's order: a key without a partition fails before it is serialized."""

    def encoded(topic: str, key: Any, value: Any, *others: Any) -> Any:
        partitions(topic, key, value)
        return encode(topic, key, value, *others)

    return encoded


def _encoder(
    name: str, key_serde: Serde[Any], value_serde: Serde[Any], handlers: ExceptionHandlers
) -> Callable[..., tuple[bytes | None, bytes | None] | None]:
    """Serializes key and value; None if that fails and the handler skips the record."""
    halves = tuple(
        (origin, serde, serde.has_careful_writer) for origin, serde in (
            (SerializationExceptionOrigin.KEY, key_serde),
            (SerializationExceptionOrigin.VALUE, value_serde),
        )
    )

    def encode(
        topic: str, key: Any, value: Any, timestamp: int, headers: Headers,
        written: tuple[bytes | None, ...] = (), failure: Exception | None = None,
    ) -> tuple[bytes | None, bytes | None] | None:
        """`written` has the key if it is serialized already; `writer` raised `failure` next."""
        encoded = list(written)
        for origin, serde, is_careful in halves[len(written):]:
            half = key if origin is SerializationExceptionOrigin.KEY else value
            try:
                if failure is not None and not is_careful:
                    # The user's serializer raised it, and is called only once per record.
                    raise failure
                failure = None
                encoded.append(None if half is None else serde.serialize(half))
            except TypeError as error:
                raise TopicSerdeException(
                    f"{name}: the {origin.value} serde {serde!r} for topic {topic} does not fit "
                    f"a {origin.value} of type {type(half).__name__}. Pass {origin.value}= to the "
                    f"step that writes, or set default_{origin.value}_serde."
                ) from error
            except Exception as error:
                record = ProducedRecord(topic, None, timestamp, key, value, headers)
                handlers.not_serialized(name, record, error, origin)
                return None
        return encoded[0], encoded[1]

    return encode
