from __future__ import annotations

import pickle
from collections import deque
from typing import Any

import pytest
from tests.unit.joins.fakes import FakeNode, KeyValues, Sink, Table

from penstock.errors import StreamsException
from penstock.processors.foreign_key_join import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    response_partition,
)
from penstock.processors.foreign_key_wire import (
    CombinedKeyCodec,
    Subscription,
    SubscriptionResponse,
    hash128,
    response_serde,
    subscription_serde,
)
from penstock.record import NO_HEADERS, Change
from penstock.serdes.builtin import Serdes

STRING = Serdes.string()
HASH = bytes.fromhex("0000000000000001fffffffffffffffe")


# The expected bytes below were written by Kafka Streams 4.3.0 itself.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "9d2764a018e329428c3cf3b035938518"),
        ("a", "3361634e7e0f5188e9c7dda24eae326b"),
        ("hello", "30bfb4f39919e764566aea857401d1c6"),
        ("exactly16bytes!!", "b245696a8c1f482c97e5c9884cdd9cee"),
        ("seventeen bytes!!", "221c89a821c43bfde70ee8deb107bd0f"),
        ("the quick brown fox jumps over the lazy dog", "02c400fed0da43bedf6165624053a941"),
        ("\u00e9\u00ff 24 bytes of somethi", "093cd1f08dd7d2d7626cc42c1fb6a537"),
    ],
)
def test_hashes_equal_kafkas(text, expected):
    assert hash128(text.encode()).hex() == expected


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription(HASH, 3, "pk", 7), "01030000000000000001fffffffffffffffe706b00000007"),
        (Subscription(None, 1, "pk", 7), "8101706b00000007"),
        (Subscription(None, 1, "pk", None, 0), "8001706b"),
    ],
)
def test_subscriptions_on_the_wire(subscription, expected):
    serde = pickle.loads(pickle.dumps(subscription_serde(STRING)))
    assert serde.serialize(subscription).hex() == expected
    assert serde.deserialize(bytes.fromhex(expected)) == subscription


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (SubscriptionResponse(HASH, "v"), "000000000000000001fffffffffffffffe76"),
        (SubscriptionResponse(None, None), "80"),
    ],
)
def test_responses_on_the_wire(response, expected):
    serde = response_serde(STRING)
    assert serde.serialize(response._replace(partition=3)).hex() == expected
    assert serde.deserialize(bytes.fromhex(expected)) == response


def test_empty_foreign_value_is_read_as_null():
    serde = response_serde(STRING)
    assert serde.deserialize(serde.serialize(SubscriptionResponse(HASH, ""))).foreign_value is None


def test_unknown_versions_and_instructions_are_rejected():
    with pytest.raises(StreamsException):
        subscription_serde(STRING).deserialize(b"\x02\x00")
    with pytest.raises(ValueError, match="instruction"):
        subscription_serde(STRING).deserialize(b"\x81\x04k\x00\x00\x00\x00")
    with pytest.raises(StreamsException):
        response_serde(STRING).deserialize(b"\x01")


def test_combined_keys():
    keys = CombinedKeyCodec(STRING, STRING)
    assert keys.to_bytes("fk", "pk") == b"\x00\x00\x00\x02fkpk"
    assert keys.from_bytes(b"\x00\x00\x00\x02fkpk") == ("fk", "pk")


class Join:
    """A whole join; the foreign key is the part of a left value before the colon."""

    def __init__(self, *, left: bool = False) -> None:
        self.left_rows: dict[str, Any] = {}
        self.right_rows: dict[str, Any] = {}
        self.node = FakeNode(S=KeyValues())
        self.node.at(0)
        self.out = Sink()
        self.topics: deque[Any] = deque()
        keys = CombinedKeyCodec(STRING, STRING)

        def responses(*record: Any) -> None:
            self.topics.append((self.respond, *record))

        self.send = SubscriptionSend(
            lambda key, value: value.split(":")[0] or None, STRING, STRING, left
        ).attach(self.node, lambda *record: self.topics.append((self.receive, *record)))
        self.receive = SubscriptionReceive("S", keys).attach(
            self.node, SubscriptionJoin(Table(self.right_rows)).attach(self.node, responses)
        )
        self.foreign = ForeignTableJoin("S", keys).attach(self.node, responses)
        self.respond = ResponseJoin(
            Table(self.left_rows), STRING, lambda a, b: f"{a}/{b}", left
        ).attach(self.node, self.out)

    def put(self, side: str, key: str, value: str | None, ts: int) -> None:
        rows, update = (
            (self.left_rows, self.send) if side == "left" else (self.right_rows, self.foreign)
        )
        old = rows.pop(key, (None, 0))[0]
        if value is not None:
            rows[key] = (value, ts)
        update(key, Change(value, old), ts, NO_HEADERS)

    def deliver(self) -> list[Any]:
        while self.topics:
            process, *record = self.topics.popleft()
            process(*record)
        return self.out.take()

    def l(self, key: str, value: str | None, ts: int) -> list[Any]:  # noqa: E743
        self.put("left", key, value, ts)
        return self.deliver()

    def r(self, key: str, value: str | None, ts: int) -> list[Any]:
        self.put("right", key, value, ts)
        return self.deliver()


def test_left_and_right_updates_join():
    join = Join()
    assert join.l("b", "x:2", 5) == []
    assert join.l("a", "x:1", 5) == []
    assert join.r("x", "X", 3) == [("a", "x:1/X", 3), ("b", "x:2/X", 3)]
    assert join.l("a", "x:3", 1) == [("a", "x:3/X", 3)]
    assert join.r("x", None, 9) == [("a", None, 9), ("b", None, 9)]


def test_changed_foreign_key_unsubscribes_from_the_old_row():
    join = Join()
    join.r("x", "X", 1)
    join.l("a", "x:1", 2)
    assert join.l("a", "y:1", 3) == [("a", None, 3)]
    assert join.r("x", "XX", 4) == []
    assert join.r("y", "Y", 5) == [("a", "y:1/Y", 5)]
    assert join.l("a", None, 6) == [("a", None, 6)]
    assert join.node.stores["S"].rows == {}


def test_null_foreign_key_is_dropped_by_inner_and_joined_by_left_join():
    inner, left = Join(), Join(left=True)
    for join in (inner, left):
        join.r("x", "X", 1)
        assert join.l("a", "x:1", 2) == [("a", "x:1/X", 2)]
    assert inner.l("a", ":none", 3) == [("a", None, 3)]
    assert inner.l("b", ":none", 3) == []
    assert len(inner.node.dropped) == 2
    assert left.l("a", ":none", 3) == [("a", ":none/None", 3)]
    assert left.node.dropped == []
    assert left.l("a", None, 4) == [("a", None, 4)]
    assert left.l("a", None, 5) == []


def test_responses_for_a_changed_value_are_dropped():
    join = Join()
    join.r("x", "X", 1)
    join.put("left", "a", "x:1", 2)
    join.put("left", "a", "x:2", 3)
    assert join.deliver() == [("a", "x:2/X", 3)]
    assert len(join.node.dropped) == 1


def test_right_update_responds_only_to_its_own_subscriptions():
    join = Join()
    for key, value in (("a", "x:"), ("b", "xx:"), ("c", "y:"), ("d", "\x7f:"), ("e", "\x80:")):
        join.l(key, value, 1)
    for key, subscriber in (("x", "a"), ("\x7f", "d"), ("\x80", "e")):
        assert [found for found, _, _ in join.r(key, "v", 2)] == [subscriber]


def test_out_of_order_versions_are_dropped():
    node = FakeNode(S=KeyValues())
    keys = CombinedKeyCodec(STRING, STRING)
    update = Change("v", None, False)
    send = SubscriptionSend(lambda k, v: v, STRING, STRING, versioned=True).attach(node, Sink())
    send("k", update, 1, NO_HEADERS)
    ForeignTableJoin("S", keys, versioned=True).attach(node, Sink())("k", update, 1, NO_HEADERS)
    assert len(node.dropped) == 2


def test_response_returns_to_the_partition_of_its_subscription():
    assert response_partition("t", "k", SubscriptionResponse(None, None, 3), 9) == {3}
    assert response_partition("t", "k", SubscriptionResponse(None, None), 9) is None
