"""The records of the log that caused the records of the shuffle, for error messages.

A task notes the source record of each output. Its blocks carry them in two columns: the number of
a source in the header of the block, and the offset. The receiver looks them up only for an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.record import UNKNOWN_POSITION, RecordMetadata
from penstock.task.origins import OutputOrigins

#: A partition that a task reads.
Source = tuple[str, int]


class OriginColumns(NamedTuple):
    """The source record of each output: the number of its partition, and its offset."""

    sources: tuple[Source, ...]
    #: Null if no record of the log caused the output.
    numbers: pa.Array
    offsets: pa.Array


def origin_columns(origins: OutputOrigins) -> OriginColumns:
    """Convert the notes of a task to columns."""
    sources: dict[Source, int] = {}
    numbers: list[int | None] = []
    offsets: list[int | None] = []
    for rows, indexes in origins.stretches():
        if isinstance(rows.origins, ShuffleOrigins):
            known = rows.origins.take(indexes)
            renumbered = [sources.setdefault(each, len(sources)) for each in known.sources]
            numbers += [
                None if number is None else renumbered[number]
                for number in known.numbers.to_pylist()
            ]
            offsets += known.offsets.to_pylist()
        elif rows.topic is None:
            numbers += [None] * len(indexes)
            offsets += [None] * len(indexes)
        else:
            number = sources.setdefault((rows.topic, rows.partition), len(sources))
            numbers += [number] * len(indexes)
            offsets += map(rows.offsets.__getitem__, indexes)
    if len(sources) == 1 and None not in offsets:
        column = pa.repeat(pa.scalar(0, pa.int32()), len(offsets))
    else:
        column = pa.array(numbers, pa.int32())
    return OriginColumns(tuple(sources), column, pa.array(offsets, pa.int64()))


@dataclass(frozen=True, slots=True)
class ShuffleOrigins:
    """The origins of the records of several blocks, in the order of their queue.

    `order[n]` is the place of record n among the records of all blocks; None if it is n.
    """

    blocks: Sequence[OriginColumns]
    order: pa.Array | None

    def position(self, index: int) -> RecordMetadata:
        """Return the position of the record that caused record `index`."""
        at = index if self.order is None else self.order[index].as_py()
        for sources, numbers, offsets in self.blocks:
            if at < len(numbers):
                number = numbers[at].as_py()
                if number is None:
                    return UNKNOWN_POSITION
                topic, partition = sources[number]
                return RecordMetadata(topic, partition, offsets[at].as_py())
            at -= len(numbers)
        raise IndexError(f"The shuffle has no record {index}.")

    def take(self, indexes: Sequence[int]) -> OriginColumns:
        """Return the origins of these records."""
        taken = pa.array(indexes, pa.int64())
        if self.order is not None:
            taken = self.order.take(taken)
        sources: list[Source] = []
        numbers: list[pa.Array] = []
        for block in self.blocks:
            numbers.append(pc.add(block.numbers, pa.scalar(len(sources), pa.int32())))
            sources += block.sources
        offsets = pa.chunked_array([block.offsets for block in self.blocks])
        return OriginColumns(
            tuple(sources), pa.chunked_array(numbers).take(taken), offsets.take(taken)
        )
