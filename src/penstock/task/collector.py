"""Collects the output records of a task, serialized and partitioned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import NotSentException, StreamsException
from penstock.handlers import ProducedRecord, SerializationExceptionOrigin
from penstock.native import core
from penstock.partitioning import partition_of
from penstock.processors.base import Forward
from penstock.record import CurrentRecord, Headers, RecordContext
from penstock.serdes.builtin import Serde
from penstock.serdes.windowed import WindowedSerde
from penstock.task.error_handling import ExceptionHandlers
from penstock.task.record_limits import RecordLimits, no_limits
from penstock.topology.nodes import Partitioner, SinkNode

_NOT_WRITTEN = object()


class Collector:
    """The outputs of a task in the order in which they were written.

    `partitions_of` returns the number of partitions of a topic. Records for unknown topics are
    rejected.
    """

    def __init__(
        self, current: CurrentRecord, partitions_of: Callable[[str], int | None],
        limits_of: Callable[[str], RecordLimits | None] = no_limits,
    ) -> None:
        #: Plain tuples with the fields of `Output`; named tuples cost more.
        self.outputs: list[tuple[Any, ...]] = []
        self.null_keys_sent = 0
        self._current = current
        self._partitions_of = partitions_of
        self._limits_of = limits_of

    def send_raw(self, record: ProducedRecord) -> None:
        """Add a serialized record (dead letter queue)."""
        partition = record.partition
        if partition is None:
            partition = self._default_partition(record.topic, record.key)
        self.outputs.append(
            (record.topic, partition, record.key, record.value, record.timestamp, record.headers)
        )

    def attach_sink(
        self, node: SinkNode, topic: str | None, serdes: tuple[Serde[Any], Serde[Any]],
        handlers: ExceptionHandlers, drop: Callable[[str], None],
    ) -> Forward:
        """The function of a sink. `topic` is None if it is selected per record."""
        key_serde, value_serde = serdes
        if topic is not None:
            key_serde, value_serde = (
                key_serde.for_topic(topic, True), value_serde.for_topic(topic, False)
            )
        encode = _encoder(node.name, key_serde, value_serde, handlers)
        partitions = self._partitioning(node, key_serde, drop)
        if topic is not None and node.partitioner is None:
            return self._plain_sink(
                node.name, topic, (key_serde, value_serde), handlers,
                _check_partition_first(partitions, encode),
            )
        choose: Any = node.topic if topic is None else None
        current = self._current
        append = self._checked_append(node.name, handlers)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            target = topic
            if target is None:
                target = choose(
                    key, value,
                    RecordContext(
                        current.topic, current.partition, current.offset, timestamp, headers,
                        current.raw_key, current.raw_value,
                    ),
                )
                if not isinstance(target, str):
                    raise ValueError(
                        f"{node.name}: the topic name extractor returned {target!r}, not a str."
                    )
            for partition in partitions(target, key, value):
                encoded = encode(target, key, value, timestamp, headers)
                if encoded is None:
                    return
                raw_key, raw_value = encoded
                current.sent = True
                append(target, partition, raw_key, raw_value, timestamp, headers)

        return process

    def _plain_sink(
        self, name: str, topic: str, serdes: tuple[Serde[Any], Serde[Any]],
        handlers: ExceptionHandlers,
        encode: Callable[..., tuple[bytes | None, bytes | None] | None],
    ) -> Forward:
        """The common case: a fixed topic, partitioned by the serialized key."""
        write_key, write_value = serdes[0].writer, serdes[1].writer
        current, append = self._current, self.outputs.append
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
                topic, (write_key, write_value), encode, append_checked, current, self.outputs,
                partitions or 0, *bounds,
            )
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
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
        append, limits_of = self.outputs.append, self._limits_of

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
                f"Could not get partition information for topic {topic}. "
                "This can happen if the topic does not exist."
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


def _has_fast_path(serde: Serde[Any]) -> bool:
    """Whether a failure of `writer` means nothing, because `serialize` is another function."""
    inner = serde.inner
    return serde.fast_serialize is not None and (inner is None or _has_fast_path(inner))


def _encoder(
    name: str, key_serde: Serde[Any], value_serde: Serde[Any], handlers: ExceptionHandlers
) -> Callable[..., tuple[bytes | None, bytes | None] | None]:
    """Serializes key and value; None if that fails and the handler skips the record."""
    halves = tuple(
        (origin, serde, _has_fast_path(serde)) for origin, serde in (
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
        for origin, serde, has_fast_path in halves[len(written):]:
            half = key if origin is SerializationExceptionOrigin.KEY else value
            try:
                if failure is not None and not has_fast_path:
                    # The user's serializer raised it, and is called only once per record.
                    raise failure
                failure = None
                encoded.append(None if half is None else serde.serialize(half))
            except TypeError as error:
                raise StreamsException(
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
