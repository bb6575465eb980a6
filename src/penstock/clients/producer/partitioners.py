"""Which partition a record goes to, if `produce` does not say it.

The default is Kafka's own choice for records with a key, so that a key is in the same partition
whoever wrote it; records without a key go to the partitions in turn. A program's own partitioner
is a function of topic, key, value (as they were given to `produce`) and the number of partitions.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

from penstock.clients.settings import Settings
from penstock.errors import ConfigException
from penstock.partitioning import partition_of

#: What a program may give: topic, key, value, number of partitions.
Partitioner: TypeAlias = Callable[[str, Any, Any, int], int]
#: What stands behind a name: the key's bytes, the number of partitions, a number that counts up.
_ByKey: TypeAlias = Callable[["bytes | None", int, int], int]

#: Longer keys are not remembered, so the memory for it is bounded.
_SHORT = 64
_remembered = lru_cache(maxsize=16_384)(partition_of)


def _hashed(key: bytes, partitions: int) -> int:
    return _remembered(key, partitions) if len(key) <= _SHORT else partition_of(key, partitions)


def _murmur2_in_turn(key: bytes | None, partitions: int, turn: int) -> int:
    return turn % partitions if key is None else _hashed(key, partitions)


def _murmur2(key: bytes | None, partitions: int, turn: int) -> int:
    return _hashed(key or b"", partitions)


def _crc32(key: bytes | None, partitions: int, turn: int) -> int:
    return zlib.crc32(key or b"") % partitions


def _crc32_in_turn(key: bytes | None, partitions: int, turn: int) -> int:
    return turn % partitions if not key else zlib.crc32(key) % partitions


def _random(key: bytes | None, partitions: int, turn: int) -> int:
    return random.randrange(partitions)


def _in_turn(key: bytes | None, partitions: int, turn: int) -> int:
    return turn % partitions


#: librdkafka's names, and "round_robin". Its "consistent" ones hash with CRC32, so they do not
#: agree with Kafka's Java clients.
_NAMED: Mapping[str, _ByKey] = {
    "murmur2_random": _murmur2_in_turn,
    "murmur2": _murmur2,
    "consistent": _crc32,
    "consistent_random": _crc32_in_turn,
    "random": _random,
    "round_robin": _in_turn,
}
_JAVA = {"RoundRobinPartitioner": "round_robin", "DefaultPartitioner": "murmur2_random"}


class Chooser:
    """Chooses partitions; counts the records of every topic for those that go in turn."""

    def __init__(self, settings: Settings) -> None:
        given = settings.raw("partitioner", "murmur2_random")
        self._own: Partitioner | None = None
        self._by_key: _ByKey = _murmur2_in_turn
        self._turns: dict[str, count[int]] = {}
        if callable(given):
            self._own = given
            return
        name = _JAVA.get(str(given).rsplit(".", 1)[-1], str(given))
        if name not in _NAMED:
            raise ConfigException(
                f"partitioner must be a function or one of {', '.join(_NAMED)}, not '{given}'."
            )
        self._by_key = _NAMED[name]

    def choose(self, topic: str, key: Any, value: Any, key_bytes: bytes | None, n: int) -> int:
        """The partition of a record among n; the program's own choice is checked."""
        if self._own is None:
            if key_bytes is not None and self._by_key is _murmur2_in_turn:
                return _hashed(key_bytes, n)
            turns = self._turns.get(topic)
            if turns is None:
                turns = self._turns.setdefault(topic, count())
            return self._by_key(key_bytes, n, next(turns))
        chosen = self._own(topic, key, value, n)
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < n:
            raise ValueError(
                f"The partitioner answered {chosen!r} for topic '{topic}', which has {n} "
                "partitions, from 0."
            )
        return chosen
