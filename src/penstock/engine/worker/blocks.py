"""Records on their way from a task to a task of a later stage of the same batch.

A block holds the records that one task wrote for one topic of another task, and says whose they
are: the receiver names in its outcome what it consumed, so the driver can tell whether it was what
was sent. The shuffle never looks inside; a lane between the two passes the block on as it is.

    kind (1 byte) | length of the header (4 bytes) | header, JSON | payload

Outcomes (`outcome.py`) have the same form and travel the same way; the first byte tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.worker.columns import WITH_HEADERS, layout_of, schema_of
from penstock.log.types import as_header_pairs
from penstock.record import Headers, PartitionColumns, TaskId
from penstock.task.queue import RecordRange

ROWS: Final = 0x52
OUTCOME: Final = 0x4F

T = TypeVar("T")


def framed(kind: int, header: Any, payload: Iterable[bytes | pa.Buffer] = ()) -> bytes:
    """The bytes of a block or an outcome."""
    encoded = msgspec.json.encode(header)
    return b"".join((bytes((kind,)), len(encoded).to_bytes(4, "big"), encoded, *payload))


def unframed(data: bytes, header: type[T]) -> tuple[T, pa.Buffer]:
    """The header, of that type, and the payload."""
    end = 5 + int.from_bytes(data[1:5], "big")
    return msgspec.json.decode(data[5:end], type=header), pa.py_buffer(data).slice(end)


class BlockHeader(NamedTuple):
    """Who wrote the records, in which attempt, and for whom."""

    sender: TaskId
    attempt: int
    target: TaskId
    topic: str
    rows: int
    layout: int


class Consumed(NamedTuple):
    """What a task was given of a block: part of its outcome."""

    sender: TaskId
    attempt: int
    topic: str
    rows: int


def encode_block(
    sender: TaskId, attempt: int, target: TaskId, topic: str, records: pa.RecordBatch
) -> bytes:
    """A block; the records must have the column of running maxima."""
    header = BlockHeader(sender, attempt, target, topic, records.num_rows, layout_of(records))
    return framed(ROWS, header, (records.serialize(),))


class Block(NamedTuple):
    """A block whose records were not looked at yet."""

    header: BlockHeader
    payload: pa.Buffer

    @classmethod
    def read(cls, data: bytes) -> Block:
        """Read the header only."""
        return cls(*unframed(data, BlockHeader))

    @property
    def consumed(self) -> Consumed:
        """What the task that takes the records has to say of them."""
        header = self.header
        return Consumed(header.sender, header.attempt, header.topic, header.rows)

    def records(self) -> pa.RecordBatch:
        """The records."""
        return pa.ipc.read_record_batch(self.payload, schema_of(self.header.layout))


def direct_ranges(
    task_id: TaskId, blocks: Iterable[Block], first_offsets: Mapping[str, int]
) -> dict[tuple[str, int], RecordRange]:
    """The queues of a task that are filled by other tasks.

    All records of a topic are one queue, in the order (sender's running maximum of timestamps,
    sender, sequence): each sender's order is kept, and every run of the batch gives the same one.
    Their offsets go on from `first_offsets`. The queues are in the order in which the first sender
    first wrote to them: that is how a task takes records of equal times.
    """
    by_topic: dict[str, list[Block]] = {}
    for block in sorted(blocks, key=lambda each: each.header.sender):
        by_topic.setdefault(block.header.topic, []).append(block)
    return {
        (topic, task_id.partition): _range(
            topic, task_id.partition, by_topic[topic], first_offsets.get(topic, 0)
        )
        for topic in by_topic
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
    if len(batches) > 1:
        # Blocks are in the order of their senders and sorting is stable, so this is all there is.
        order = pc.sort_indices(maxima)
        times, keys, values = (column.take(order) for column in (times, keys, values))
        if headers is not None:
            headers = [headers[n] for n in order.to_pylist()]
    records = PartitionColumns(
        topic=topic, partition=partition, offsets=range(first, first + len(times)),
        timestamps=times.to_pylist(), keys=keys.to_pylist(), values=values.to_pylist(),
        headers=headers,
    )
    return RecordRange(records, whole=True)


def _headers(batch: pa.RecordBatch) -> list[Headers]:
    if not layout_of(batch) & WITH_HEADERS:
        return [as_header_pairs(None)] * int(batch.num_rows)
    return [as_header_pairs(pairs) for pairs in batch.column("headers").to_pylist()]
