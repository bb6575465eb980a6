"""The wire format of a foreign-key join: subscriptions, responses, combined keys, value hashes.

All bytes are those of Kafka Streams (subscription version 1, response version 0). In the first
byte of a message the top bit means that there is no hash; the other bits are the version.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.errors import StreamsException, WrongSerdeException
from penstock.serdes.base import Serde, WrappingSerde, malformed_bytes_error
from penstock.serdes.headers import HasHeaders
from penstock.serdes.store import store_serde

SUBSCRIPTION_VERSION = 1
RESPONSE_VERSION = 0

_NO_HASH = 0x80
_INT = struct.Struct(">i")
_TWO_LONGS = struct.Struct(">QQ")
_BLOCKS = struct.Struct("<QQ")


class Instruction(IntEnum):
    """The instruction of a subscription for the right side."""

    #: Delete it, send nothing.
    DELETE_KEY_NO_PROPAGATE = 0
    #: Delete it, respond with null.
    DELETE_KEY_AND_PROPAGATE = 1
    #: Store it, respond with the row or null.
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    #: Store it, respond only if the row exists.
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(NamedTuple):
    """Sent to the partition of the foreign key: subscribes a left row to it.

    `hash` is that of the left value (None for a deletion). The response returns it, so that
    responses for an outdated value can be detected. `partition` is None in version 0.
    """

    hash: bytes | None
    instruction: int
    primary_key: Any
    partition: int | None
    version: int = SUBSCRIPTION_VERSION


class SubscriptionResponse(NamedTuple):
    """Sent back to the partition of the left row; `partition` itself is not serialized."""

    hash: bytes | None
    foreign_value: Any
    partition: int | None = None
    version: int = RESPONSE_VERSION


class CombinedKey(NamedTuple):
    """The key of a subscription: foreign key (None only in left joins) and primary key."""

    foreign_key: Any
    primary_key: Any


def subscription_serde(
    primary_key: Serde[Any], version: int = SUBSCRIPTION_VERSION
) -> Serde[Subscription]:
    """Version and hash flag, instruction, hash, primary key, and since version 1 the partition.

    The serde of the primary key is already that of the join's pseudo topic. `version` 0 is for a
    rolling upgrade from Kafka Streams before 3.4.
    """
    write, read = primary_key.serialize, primary_key.deserialize

    def serialize(subscription: Subscription) -> bytes:
        hashed, instruction, key, partition, own = subscription
        form = min(version, own)
        return b"".join((
            bytes((form | _NO_HASH if hashed is None else form, instruction)),
            hashed or b"", write(key), _INT.pack(partition or 0) if form else b"",
        ))

    def deserialize(data: bytes) -> Subscription:
        if len(data) < 2:
            raise malformed_bytes_error("A foreign-key subscription is too short", data)
        form = data[0] & 0x7F
        if form > SUBSCRIPTION_VERSION:
            raise StreamsException(f"SubscriptionWrapper does not support version {form}")
        if data[1] > Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            raise ValueError(f"Unknown instruction byte value = {data[1]}")
        at, hashed = (2, None) if data[0] & _NO_HASH else (18, data[2:18])
        if not form:
            return Subscription(hashed, data[1], read(data[at:]), None, form)
        (partition,) = _INT.unpack_from(data, len(data) - 4)
        return Subscription(hashed, data[1], read(data[at:-4]), partition, form)

    return _SubscriptionSerde(
        (serialize, deserialize), "subscription", primary_key, subscription_serde, version
    )


class _SubscriptionSerde(WrappingSerde[Subscription]):
    """The topic of the record or store is not that of the primary key."""

    def for_topic(self, topic: str, is_key: bool) -> Serde[Subscription]:
        return self

    def for_store(self, topic: str, is_key: bool) -> Serde[Subscription]:
        return self


@dataclass(frozen=True, slots=True)
class PseudoTopics:
    """The topics that Kafka Streams passes to the serdes of keys and values inside of messages.

    Such bytes have no headers of their own, so the serdes are those for stores.
    """

    #: The name of the registration topic in the log.
    registration_topic: str

    def primary_key(self, serde: Serde[Any]) -> Serde[Any]:
        """The serde of primary keys in subscriptions and in the keys of the store."""
        return serde.for_store(f"{self.registration_topic}-pk", True)

    def foreign_key(self, serde: Serde[Any]) -> Serde[Any]:
        """The serde of foreign keys that are compared, and in the keys of the store."""
        return serde.for_store(f"{self.registration_topic}-fk", True)

    def hashed_value(self, serde: Serde[Any]) -> Serde[Any]:
        """The serde of the left values that are hashed."""
        return serde.for_store(f"{self.registration_topic}-vh", False)


def response_serde(foreign_value: Serde[Any]) -> Serde[SubscriptionResponse]:
    """Version and hash flag, hash, value. An empty value is read as null."""
    write, read = foreign_value.serialize, foreign_value.deserialize

    def serialize(response: SubscriptionResponse) -> bytes:
        hashed, value, _, version = response
        return b"".join((
            bytes((version | _NO_HASH if hashed is None else version,)),
            hashed or b"", b"" if value is None else write(value),
        ))

    def deserialize(data: bytes) -> SubscriptionResponse:
        if not data:
            raise malformed_bytes_error("The response to a foreign-key subscription is empty", data)
        version = data[0] & 0x7F
        if version > RESPONSE_VERSION:
            raise StreamsException(f"SubscriptionWrapper does not support version {version}")
        at, hashed = (1, None) if data[0] & _NO_HASH else (17, data[1:17])
        value = read(data[at:]) if len(data) > at else None
        return SubscriptionResponse(hashed, value, None, version)

    return WrappingSerde((serialize, deserialize), "response", foreign_value, response_serde)


@dataclass(frozen=True, slots=True)
class CombinedKeyCodec:
    """Keys of the subscription store: 4-byte length of the foreign key, foreign key, primary key.

    All subscriptions of a foreign key are adjacent, in the order of their primary keys.
    """

    foreign_key: Serde[Any]
    primary_key: Serde[Any]

    def with_headers_of(self, record: HasHeaders) -> CombinedKeyCodec:
        """The codec whose serdes see the headers of `record`."""
        return CombinedKeyCodec(
            self.foreign_key.with_headers_of(record), self.primary_key.with_headers_of(record)
        )

    def for_store(self, store: str) -> CombinedKeyCodec:
        """The codec whose errors name the subscription store."""
        return CombinedKeyCodec(
            store_serde(self.foreign_key, store, "key", WrongSerdeException),
            store_serde(self.primary_key, store, "key", WrongSerdeException),
        )

    def to_bytes(self, foreign_key: Any, primary_key: Any) -> bytes:
        """The key of one subscription."""
        return self.prefix(foreign_key) + self.primary_key.serialize(primary_key)

    def prefix(self, foreign_key: Any) -> bytes:
        """The prefix of the keys of all subscriptions of a foreign key."""
        raw = self.foreign_key.serialize(foreign_key)
        return _INT.pack(len(raw)) + raw

    def from_bytes(self, raw: bytes) -> CombinedKey:
        """Decode both keys."""
        end = 4 + _INT.unpack_from(raw)[0]
        return CombinedKey(
            self.foreign_key.deserialize(raw[4:end]), self.primary_key.deserialize(raw[end:])
        )


_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_MASK = 0xFFFFFFFFFFFFFFFF
_SEED = 104729


def hash128(data: bytes) -> bytes:
    """128-bit Murmur3 (x64 variant, Kafka's seed): two 8-byte words, big-endian."""
    h1 = h2 = _SEED
    length = len(data)
    body = length & ~15
    for low, high in _BLOCKS.iter_unpack(data[:body]):
        k1 = low * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
        h1 = (((h1 << 27 | h1 >> 37) + h2) * 5 + 0x52DCE729) & _MASK
        k2 = high * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
        h2 = (((h2 << 31 | h2 >> 33) + h1) * 5 + 0x38495AB5) & _MASK
    if body < length:
        k2 = int.from_bytes(data[body + 8 :], "little") * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
        k1 = int.from_bytes(data[body : body + 8], "little") * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
    h1 ^= length
    h2 ^= length
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1 = _final_mix(h1)
    h2 = _final_mix(h2)
    h1 = h1 + h2 & _MASK
    return _TWO_LONGS.pack(h1, h2 + h1 & _MASK)


def _final_mix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
