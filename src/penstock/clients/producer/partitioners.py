"""The partitioners of a producer, for records that are produced without a partition.

The default assigns records with a key as Kafka's Java clients do, so that a key is in the same
partition whichever client wrote it. Records without a key go to the partitions in turn. A user's
partitioner is a function of topic, key, value (as passed to `produce`) and number of partitions.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

from penstock.clients.settings import ConfigReader
from penstock.errors import ConfigException
from penstock.partitioning import partition_of

#: A user's partitioner: topic, key, value, number of partitions.
PartitionerFunction: TypeAlias = Callable[[str, Any, Any, int], int]
#: A built-in partitioner: key bytes, number of partitions, number of the record.
_KeyPartitioner: TypeAlias = Callable[["bytes | None", int, int], int]

#: Longer keys are not cached, which bounds the memory of the cache.
_MAX_CACHED_KEY_BYTES = 64
_cached_partition_of = lru_cache(maxsize=16_384)(partition_of)


def _hash_key(key: bytes, partitions: int) -> int:
    if len(key) <= _MAX_CACHED_KEY_BYTES:
        return _cached_partition_of(key, partitions)
    return partition_of(key, partitions)


def _murmur2_random(key: bytes | None, partitions: int, number: int) -> int:
    return number % partitions if key is None else _hash_key(key, partitions)


def _murmur2(key: bytes | None, partitions: int, number: int) -> int:
    return _hash_key(key or b"", partitions)


def _consistent(key: bytes | None, partitions: int, number: int) -> int:
    return zlib.crc32(key or b"") % partitions


def _consistent_random(key: bytes | None, partitions: int, number: int) -> int:
    return number % partitions if not key else zlib.crc32(key) % partitions


def _random(key: bytes | None, partitions: int, number: int) -> int:
    return random.randrange(partitions)


def _round_robin(key: bytes | None, partitions: int, number: int) -> int:
    return number % partitions


#: librdkafka's names, and "round_robin". The "consistent" partitioners hash with CRC32 and do not
#: agree with Kafka's Java clients.
_BUILT_IN: Mapping[str, _KeyPartitioner] = {
    "murmur2_random": _murmur2_random,
    "murmur2": _murmur2,
    "consistent": _consistent,
    "consistent_random": _consistent_random,
    "random": _random,
    "round_robin": _round_robin,
}
_JAVA_NAMES = {"RoundRobinPartitioner": "round_robin", "DefaultPartitioner": "murmur2_random"}


class ProducerPartitioner:
    """Applies the configured partitioner and counts the records of each topic for round robin."""

    def __init__(self, reader: ConfigReader) -> None:
        configured = reader.raw("partitioner", "murmur2_random")
        self._user_function: PartitionerFunction | None = None
        self._partitioner: _KeyPartitioner = _murmur2_random
        self._counters: dict[str, count[int]] = {}
        if callable(configured):
            self._user_function = configured
            return
        name = _JAVA_NAMES.get(str(configured).rsplit(".", 1)[-1], str(configured))
        if name not in _BUILT_IN:
            raise ConfigException(
                f"partitioner must be a function or one of {', '.join(_BUILT_IN)}, "
                f"not '{configured}'."
            )
        self._partitioner = _BUILT_IN[name]

    def choose(
        self, topic: str, key: Any, value: Any, key_bytes: bytes | None, partitions: int
    ) -> int:
        """Return the partition of a record. The result of a user's function is checked."""
        if self._user_function is None:
            if key_bytes is not None and self._partitioner is _murmur2_random:
                return _hash_key(key_bytes, partitions)
            counter = self._counters.get(topic)
            if counter is None:
                counter = self._counters.setdefault(topic, count())
            return self._partitioner(key_bytes, partitions, next(counter))
        chosen = self._user_function(topic, key, value, partitions)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < partitions:
            raise ValueError(
                f"The partitioner returned {chosen!r} for topic '{topic}', which has {partitions} "
                "partitions, numbered from 0."
            )
        return chosen
