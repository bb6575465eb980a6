"""The metadata of committed offsets, in the format of Kafka Streams.

Kafka Streams stores the partition time of a source partition with its committed offset, and the
close times up to which the aggregations of the task have emitted their windows. penstock resumes
from its task records. It also writes the metadata, so that Kafka Streams for Java can continue, and
reads it, because Java may have run since the last task record.

All these times only grow. So the larger one of task record and metadata is the current one.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.log.types import CommittedOffset, TopicPartition
from penstock.task.result import TaskState

#: A version and the partition time; the number of close times; the length of a name; a close time.
_HEADER, _COUNT, _LENGTH, _TIME = map(struct.Struct, (">bq", ">i", ">i", ">q"))
#: Version 1, of Kafka Streams 2.4 to 3.4, has no close times.
_VERSION, _WITHOUT_CLOSE_TIMES = 2, 1
_BASE64 = re.compile("[A-Za-z0-9+/]*={0,2}")
_UNKNOWN_TIME = -1


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """The times that Kafka Streams stores with the committed offset of a partition."""

    partition_time: int = _UNKNOWN_TIME
    #: Store of an aggregation that emits on close -> the close time of its last emission.
    close_times: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> str:
        """Return the text to commit."""
        parts = [_HEADER.pack(_VERSION, self.partition_time)]
        if self.close_times:
            parts.append(_COUNT.pack(len(self.close_times)))
        for store, time in self.close_times.items():
            name = store.encode()
            parts += (_LENGTH.pack(len(name)), name, _TIME.pack(time))
        return base64.b64encode(b"".join(parts)).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> OffsetMetadata:
        """Decode committed metadata. Text that others have written contains no times.

        A client may return more characters than were committed. They are ignored.
        """
        characters = _BASE64.match(text)
        assert characters is not None
        encoded = characters[0]
        data = base64.b64decode(encoded[: len(encoded) // 4 * 4])
        if len(data) < _HEADER.size:
            return cls()
        version, partition_time = _HEADER.unpack_from(data)
        if version == _WITHOUT_CLOSE_TIMES:
            return cls(partition_time)
        return cls(partition_time, _close_times(data)) if version == _VERSION else cls()


def _close_times(data: bytes) -> dict[str, int]:
    found = {}
    try:
        (count,) = _COUNT.unpack_from(data, _HEADER.size)
        at = _HEADER.size + _COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, at)
            if length < 0:
                return {}
            at += _LENGTH.size
            (time,) = _TIME.unpack_from(data, at + length)
            found[data[at : at + length].decode()] = time
            at += length + _TIME.size
    except (struct.error, UnicodeDecodeError):
        # There are none.
        return {}
    return found


def add_metadata(
    offsets: Mapping[TopicPartition, int], states: Iterable[TaskState],
    close_clocks: Mapping[str, str],
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to commit, with the times of the tasks that read the partitions.

    `close_clocks`: `ExecutionGraph.close_clocks`.
    """
    found: dict[TopicPartition, OffsetMetadata] = {}
    for state in states:
        close_times = {
            store: state.clocks[clock] for clock, store in close_clocks.items()
            if state.clocks.get(clock, _UNKNOWN_TIME) != _UNKNOWN_TIME
        }
        for (topic, partition), time in state.partition_times.items():
            at = TopicPartition(topic, partition)
            if at not in found or time >= found[at].partition_time:
                found[at] = OffsetMetadata(time, close_times)
    return {
        at: CommittedOffset(offset, found.get(at, OffsetMetadata()).encode())
        for at, offset in offsets.items()
    }


def resume_state(
    state: TaskState, committed: Mapping[TopicPartition, CommittedOffset],
    close_clocks: Mapping[str, str],
) -> TaskState:
    """Return the state of a task with the times of its committed offsets, where these are later.

    `committed`: the offsets of the partitions that the task reads.
    """
    times, clocks = dict(state.partition_times), dict(state.clocks)
    clock_of = {store: clock for clock, store in close_clocks.items()}
    for at, offset in committed.items():
        metadata = OffsetMetadata.decode(offset.metadata)
        key = (at.topic, at.partition)
        if metadata.partition_time > times.get(key, _UNKNOWN_TIME):
            times[key] = metadata.partition_time
        for store, time in metadata.close_times.items():
            clock = clock_of.get(store)
            if clock is not None and time > clocks.get(clock, _UNKNOWN_TIME):
                clocks[clock] = time
    if times == state.partition_times and clocks == state.clocks:
        return state
    stream_time = max(state.stream_time, *times.values())
    return replace(state, stream_time=stream_time, partition_times=times, clocks=clocks)
