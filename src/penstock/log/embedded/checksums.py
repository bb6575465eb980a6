"""Checksums of the data and of the rows, checked whenever they are read.

Every checksum is the CRC-32 of zlib. That of a row starts with the name of its table, so that a row
in the wrong table is noticed, too. It covers all other columns, the key included.

A checksum cannot show that a row is missing. Three rules do:
- The batches of a partition cover all offsets from its start to its end.
- A topic has a row for each of its partitions.
- The table `totals` holds the sum of the checksums of all topics, and of the offsets of each group.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.native import core

if TYPE_CHECKING:
    import pyarrow as pa


class Damage(Exception):
    """Stored data is not what was written. `Database` raises it as `LogDamaged`."""

    def __init__(
        self, fact: str, problem: str = "", *, topic: str | None = None,
        partition: int | None = None, offsets: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(fact, problem)
        self.problem = problem
        self.fact = f"{fact} ({problem})" if problem else fact
        self.topic = topic
        self.partition = partition
        #: The first and the last damaged offset.
        self.offsets = offsets


#: The native function is several times faster for large blobs.
_crc32 = core.crc32 if core is not None and core.HAS_FAST_CRC32 else zlib.crc32


def data_checksum(data: bytes | pa.Buffer, layout: int) -> int:
    """Return the checksum of a blob and of its layout."""
    return _crc32(data, layout)


class RowChecksum:
    """Computes the checksums of the rows of one table."""

    def __init__(self, table: str) -> None:
        self._seed = zlib.crc32(table.encode())

    def of(self, values: Sequence[Any]) -> int:
        """Return the checksum of the values of a row."""
        return zlib.crc32("\0".join(map(str, values)).encode(), self._seed)

    def matches(self, row: Sequence[Any]) -> bool:
        """Return whether the last value of a row is the checksum of the others."""
        return bool(self.of(row[:-1]) == row[-1])


class IntegerRowChecksum(RowChecksum):
    """The checksums of rows of integers. Faster, because batches are many."""

    def __init__(self, table: str, columns: int, nullable: tuple[int, ...] = ()) -> None:
        super().__init__(table)
        self._pack = struct.Struct(f"<{columns}q").pack
        self._nullable = nullable

    def of(self, values: Sequence[Any]) -> int:
        """Return the checksum of the values of a row. -1 stands for null, and is not stored."""
        integers = list(values)
        for column in self._nullable:
            if integers[column] is None:
                integers[column] = -1
        return zlib.crc32(self._pack(*integers), self._seed)

    def matches(self, row: Sequence[Any]) -> bool:
        """Return whether the last value of a row is the checksum of the others."""
        try:
            return bool(self.of(row[:-1]) == row[-1])
        except struct.error:
            # A damaged header of a row turns integers into other types.
            return False


META = RowChecksum("meta")
TOPICS = RowChecksum("topics")
PARTITIONS = IntegerRowChecksum("partitions", 6)
#: Null are append_time, delete_horizon and data_checksum.
BATCHES = IntegerRowChecksum("batches", 12, nullable=(8, 9, 11))
ASIDE = RowChecksum("aside")
GROUP_OFFSETS = RowChecksum("group_offsets")
LEASES = RowChecksum("leases")
