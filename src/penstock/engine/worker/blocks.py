"""Records that travel from a task to a task of a later stage in the same batch.

A block holds the records that one task wrote for one topic of another task, and names its sender.
The receiver lists the blocks that it consumed in its outcome, so that the driver can compare them
with the blocks that were sent. The shuffle does not look inside a block, and a lane between the two
tasks forwards it unchanged.

    kind (1 byte) | length of the header (4 bytes) | header, MessagePack | payload

Outcomes (`outcome.py`) have the same format and travel the same way. The kind distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.worker.origins import OriginColumns, ShuffleOrigins
from penstock.engine.worker.record_groups import WITH_HEADERS, layout_of, schema_of
from penstock.log.types import as_header_pairs
from penstock.record import Headers, PartitionColumns, TaskId
from penstock.task.queue import RecordRange

RECORDS: Final = 0x52
OUTCOME: Final = 0x4F

T = TypeVar("T")


def encode_frame(kind: int, header: Any, payload: Iterable[bytes | pa.Buffer] = ()) -> bytes:
    """Encode a block or an outcome."""
    encoded = msgspec.msgpack.encode(header)
    return b"".join((bytes((kind,)), len(encoded).to_bytes(4, "big"), encoded, *payload))


def decode_frame(data: bytes, header: type[T]) -> tuple[T, pa.Buffer]:
    """Return the header, decoded as the given type, and the payload."""
    end = 5 + int.from_bytes(data[1:5], "big")
    return msgspec.msgpack.decode(data[5:end], type=header), pa.py_buffer(data).slice(end)


class BlockHeader(NamedTuple):
    """The sender of a block, its attempt, and the receiver."""

    sender: TaskId
    attempt: int
    target: TaskId
    topic: str
    records: int
    layout: int
    #: The partitions of the log from which the records result.
    sources: tuple[tuple[str, int], ...] = ()


class SentBlock(NamedTuple):
    """The outcome's entry for a block that the task has sent."""

    target: TaskId
    topic: str
    records: int


class ConsumedBlock(NamedTuple):
    """The outcome's entry for a block that the task has received."""

    sender: TaskId
    attempt: int
    topic: str
    records: int


def encode_block(
    sender: TaskId, attempt: int, target: TaskId, topic: str, records: pa.RecordBatch,
    sources: tuple[tuple[str, int], ...] = (),
) -> bytes:
    """Encode a block. The records must have the running maximum and the origins as columns."""
    header = BlockHeader(
        sender, attempt, target, topic, records.num_rows, layout_of(records), sources
    )
    return encode_frame(RECORDS, header, (records.serialize(),))


class Block(NamedTuple):
    """A block whose records are not decoded yet."""

    header: BlockHeader
    payload: pa.Buffer

    @classmethod
    def read(cls, data: bytes) -> Block:
        """Decode the header only."""
        return cls(*decode_frame(data, BlockHeader))

    @property
    def consumed(self) -> ConsumedBlock:
        """The entry for the outcome of the receiver."""
        header = self.header
        return ConsumedBlock(header.sender, header.attempt, header.topic, header.records)

    def records(self) -> pa.RecordBatch:
        """Decode the records."""
        return pa.ipc.read_record_batch(self.payload, schema_of(self.header.layout))


def shuffled_ranges(
    task_id: TaskId, blocks: Iterable[Block], first_offsets: Mapping[str, int]
) -> dict[tuple[str, int], RecordRange]:
    """Build the input queues of a task that other tasks fill.

    All records of a topic form one queue, ordered by (running maximum of the sender's timestamps,
    sender, sequence). The order of each sender is kept, and every run of the batch produces the
    same order. Offsets continue from `first_offsets`. The queues are in the order in which the
    first sender wrote to them: a task takes records of equal timestamps in this order.
    """
    by_topic: dict[str, list[Block]] = {}
    for block in sorted(blocks, key=lambda each: each.header.sender):
        by_topic.setdefault(block.header.topic, []).append(block)
    return {
        (topic, task_id.partition): _range(
            topic, task_id.partition, of_topic, first_offsets.get(topic, 0)
        )
        for topic, of_topic in by_topic.items()
    }


def _range(topic: str, partition: int, blocks: list[Block], first: int) -> RecordRange:
    batches = [block.records() for block in blocks]
    headers: list[Headers] | None = None
    if any(block.header.layout & WITH_HEADERS for block in blocks):
        headers = list(chain.from_iterable(map(_headers, batches)))
    times, keys, values, maxima = (
        pa.chunked_array([batch.column(name) for batch in batches])
        for name in ("timestamp", "key", "value", "running_maximum")
    )
    order = None
    if len(batches) > 1:
        # The blocks are in the order of their senders and the sort is stable, so the running
        # maximum is the only sort key.
        order = pc.sort_indices(maxima)
        times, keys, values = (column.take(order) for column in (times, keys, values))
        if headers is not None:
            headers = [headers[n] for n in order.to_pylist()]
    records = PartitionColumns(
        topic=topic, partition=partition, offsets=range(first, first + len(times)),
        timestamps=times.to_pylist(), keys=keys.to_pylist(), values=values.to_pylist(),
        headers=headers,
        origins=ShuffleOrigins([
            OriginColumns(block.header.sources, batch.column("source"), batch.column("offset"))
            for block, batch in zip(blocks, batches, strict=True)
        ], order),
    )
    return RecordRange(records, whole=True)


def _headers(batch: pa.RecordBatch) -> list[Headers]:
    if not layout_of(batch) & WITH_HEADERS:
        return [as_header_pairs(None)] * int(batch.num_rows)
    return [as_header_pairs(pairs) for pairs in batch.column("headers").to_pylist()]
