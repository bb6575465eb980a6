"""Foreign-key joins of two tables.

    left table                       right table
        |                                |
    SubscriptionSend              ForeignTableJoin
        | registration topic             |
    SubscriptionReceive  -- store -------+
        |                                |
    SubscriptionJoin                     |
        +------ response topic ----------+
                      |
                 ResponseJoin -> the result's table

The left side subscribes each row to its foreign key on the right side, which responds at once and
whenever the right row changes. A response carries the hash of the left value of its subscription.
The left side drops responses for a value that has changed since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamsException
from penstock.processors.base import Forward, NodeContext, ValueGetterSupplier
from penstock.processors.foreign_key_wire import (
    RESPONSE_VERSION,
    SUBSCRIPTION_VERSION,
    CombinedKey,
    CombinedKeyCodec,
    Instruction,
    Subscription,
    SubscriptionResponse,
    hash128,
)
from penstock.processors.joiner import Joiner, orient_joiner
from penstock.record import Change, Headers
from penstock.serdes.base import Serde
from penstock.serdes.headers import ReadOnlyHeaders
from penstock.serdes.store import operator_serializer

_DELETE_SILENTLY = int(Instruction.DELETE_KEY_NO_PROPAGATE)
_DELETE = int(Instruction.DELETE_KEY_AND_PROPAGATE)
_RESPOND_ALWAYS = int(Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
_RESPOND_IF_FOUND = int(Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)

_OUT_OF_ORDER = "out-of-order update of a versioned table in a foreign-key join"
_NULL_FOREIGN_KEY = "null foreign key"
_STALE_RESPONSE = "response for a left value that has changed since, in a foreign-key join"


def response_partition(
    topic: str, key: Any, response: SubscriptionResponse, partitions: int
) -> set[int] | None:
    """The partitioner of the response topic: back to the partition of the subscription."""
    return None if response.partition is None else {response.partition}


@dataclass(frozen=True, slots=True)
class SubscriptionSend:
    """Turns an update of the left table into subscriptions, keyed by foreign key.

    It needs old values: a row that changes its foreign key is first removed from the old one.
    `foreign_key` is called with (key, value). The serdes are those of the join's pseudo topics.
    """

    foreign_key: Callable[[Any, Any], Any]
    foreign_key_serde: Serde[Any]
    value_serde: Serde[Any]
    left: bool = False
    versioned: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes an update in this task."""
        current, drop = node.current, node.drop
        headers_of = ReadOnlyHeaders(current)
        to_bytes = operator_serializer(self.value_serde.with_headers_of(headers_of), node.name)
        changed = self._changes(headers_of, node.name)
        instructions = (
            self._left_instructions(changed) if self.left
            else self._inner_instructions(changed, drop)
        )
        versioned = self.versioned

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            new, old, is_latest = change
            if versioned and not is_latest:
                drop(_OUT_OF_ORDER, logging.INFO)
                return
            hashed = None
            for foreign_key, instruction in instructions(key, new, old):
                if hashed is None and new is not None:
                    hashed = hash128(to_bytes(new))
                forward(
                    foreign_key, Subscription(hashed, instruction, key, current.partition),
                    timestamp, headers,
                )

        return process

    def _changes(self, headers_of: ReadOnlyHeaders, step: str) -> Callable[[Any, Any], bool]:
        """Compares two foreign keys by their bytes."""
        to_bytes = operator_serializer(self.foreign_key_serde.with_headers_of(headers_of), step)

        def changed(new: Any, old: Any) -> bool:
            # The old key is serialized in any case: it may not fit the serde.
            raw_old = to_bytes(old)
            return new is None or bool(to_bytes(new) != raw_old)

        return changed

    def _left_instructions(
        self, changed: Callable[[Any, Any], bool]
    ) -> Callable[[Any, Any, Any], tuple[tuple[Any, int], ...]]:
        extract = self.foreign_key

        def instructions(key: Any, new: Any, old: Any) -> tuple[tuple[Any, int], ...]:
            if old is None and new is None:
                return ()
            old_key = None if old is None else extract(key, old)
            new_key = None if new is None else extract(key, new)
            # Every update gets a response. A null foreign key is not subscribed.
            if old_key is not None and changed(new_key, old_key):
                return (old_key, _DELETE_SILENTLY), (new_key, _RESPOND_ALWAYS)
            return ((new_key, _RESPOND_ALWAYS),)

        return instructions

    def _inner_instructions(
        self, changed: Callable[[Any, Any], bool], drop: Callable[[str], None]
    ) -> Callable[[Any, Any, Any], tuple[tuple[Any, int], ...]]:
        extract = self.foreign_key

        def instructions(key: Any, new: Any, old: Any) -> tuple[tuple[Any, int], ...]:
            old_key = None if old is None else extract(key, old)
            if new is None:
                return () if old_key is None else ((old_key, _DELETE),)
            new_key = extract(key, new)
            if new_key is None:
                drop(_NULL_FOREIGN_KEY)
                return () if old_key is None else ((old_key, _DELETE),)
            if old_key is not None and changed(new_key, old_key):
                # An earlier result must be deleted if the new key has no row.
                return (old_key, _DELETE_SILENTLY), (new_key, _RESPOND_ALWAYS)
            return ((new_key, _RESPOND_IF_FOUND),)

        return instructions


@dataclass(frozen=True, slots=True)
class SubscriptionReceive:
    """Updates the subscriptions in the store of the right side.

    It forwards a `CombinedKey` and a `Change` of (subscription, timestamp). The store is a
    timestamped store with bytes keys and `Subscription` values, without a cache.
    """

    store_name: str
    keys: CombinedKeyCodec

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a subscription in this task."""
        save, drop = node.store(self.store_name).save, node.drop
        keys = self.keys.with_headers_of(ReadOnlyHeaders(node.current))
        to_bytes = keys.for_store(self.store_name).to_bytes

        def process(
            key: Any, subscription: Subscription, timestamp: int, headers: Headers
        ) -> None:
            _, instruction, primary_key, _, version = subscription
            if key is None and instruction != _RESPOND_ALWAYS:
                drop(_NULL_FOREIGN_KEY)
                return
            if version > SUBSCRIPTION_VERSION:
                raise StreamsException("SubscriptionWrapper is of an incompatible version.")
            if key is not None:
                deleted = instruction in (_DELETE, _DELETE_SILENTLY)
                save(to_bytes(key, primary_key), None if deleted else subscription, timestamp)
            forward(
                CombinedKey(key, primary_key), Change((subscription, timestamp), None),
                timestamp, headers,
            )

        return process


@dataclass(frozen=True, slots=True)
class SubscriptionJoin:
    """Responds to a subscription with the row of the right table."""

    foreign_table: ValueGetterSupplier

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a subscription in this task."""
        get, count = self.foreign_table.attach_getter(node).get, node.count

        def process(key: CombinedKey, change: Change, timestamp: int, headers: Headers) -> None:
            foreign_key, primary_key = key
            (hashed, instruction, _, partition, _), subscribed_at = change.new
            # Kafka reads the row for every instruction: the functions of a view are called.
            row = None if foreign_key is None else get(foreign_key)
            if instruction == _DELETE_SILENTLY:
                return
            value = None
            if instruction != _DELETE:
                if row is not None:
                    count("matched")
                    value = row[0]
                else:
                    count("unmatched-left")
                    if instruction == _RESPOND_IF_FOUND:
                        return
            if row is not None and row[1] > subscribed_at:
                subscribed_at = row[1]
            forward(
                primary_key, SubscriptionResponse(hashed, value, partition), subscribed_at, headers
            )

        return process


@dataclass(frozen=True, slots=True)
class ForeignTableJoin:
    """Responds to all subscriptions of a key when the right table is updated."""

    store_name: str
    keys: CombinedKeyCodec
    versioned: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes an update in this task."""
        scan = node.store(self.store_name).range
        keys = self.keys.with_headers_of(ReadOnlyHeaders(node.current)).for_store(self.store_name)
        prefix_of, primary_key_of = keys.prefix, keys.primary_key.deserialize
        drop, count, versioned = node.drop, node.count, self.versioned

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key in a foreign-key join")
                return
            if versioned and not change.is_latest:
                drop(_OUT_OF_ORDER, logging.INFO)
                return
            prefix = prefix_of(key)
            size = len(prefix)
            responses = 0
            for raw_key, row in scan(prefix, _after(prefix)):
                # The end of a range is inclusive.
                if raw_key[:size] != prefix:
                    continue
                responses += 1
                subscription: Subscription = row[0]
                forward(
                    primary_key_of(raw_key[size:]),
                    SubscriptionResponse(subscription.hash, change.new, subscription.partition),
                    timestamp, headers,
                )
            if responses:
                count("matched", responses)
            else:
                count("unmatched-right")

        return process


def _after(prefix: bytes) -> bytes:
    """The smallest key after all keys with this prefix.

    It always exists: a prefix starts with a length, which is never all ones.
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) + bytes(len(prefix) - len(kept))


@dataclass(frozen=True, slots=True)
class ResponseJoin:
    """Joins a response with the left row, if that row has not changed since its subscription."""

    left_table: ValueGetterSupplier
    value_serde: Serde[Any]
    joiner: Joiner
    left: bool = False
    with_key: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a response in this task."""
        get, drop = self.left_table.attach_getter(node).get, node.drop
        value_serde = self.value_serde.with_headers_of(ReadOnlyHeaders(node.current))
        to_bytes = operator_serializer(value_serde, node.name)
        left = self.left
        combine = orient_joiner(self.joiner, with_key=self.with_key)

        def process(
            key: Any, response: SubscriptionResponse, timestamp: int, headers: Headers
        ) -> None:
            hashed, foreign_value, _, version = response
            if version != RESPONSE_VERSION:
                raise StreamsException("SubscriptionResponseWrapper is of an incompatible version.")
            row = get(key)
            if hashed != (None if row is None else hash128(to_bytes(row[0]))):
                drop(_STALE_RESPONSE, logging.DEBUG)
                return
            if foreign_value is None and (not left or row is None):
                result = None
            else:
                result = combine(key, None if row is None else row[0], foreign_value)
            forward(key, result, timestamp, headers)

        return process
