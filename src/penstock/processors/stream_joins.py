"""Stream-stream joins.

Each side has two nodes: `StreamJoinWindow` forwards a record and then stores it for the other
side; `StreamStreamJoin`, its child, looks up the partners in the store of the other side. A record
therefore joins every earlier partner and never itself. Late records are not detected: they join
the rows that the store of the other side still holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.processors.base import Forward, NodeContext
from penstock.processors.joiner import Joiner, orient_joiner
from penstock.processors.outer_join_store import OuterJoinShared, OuterJoinStore
from penstock.record import Headers

_NULL = "null key or value in a stream-stream join"


@dataclass(frozen=True, slots=True)
class StreamJoinWindow:
    """Forwards each record of one side, then stores it for lookups by the other side."""

    forwards_input = True

    store_name: str

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        keep = node.store(self.store_name).put_join_record
        expired = node.counter("expired")

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value, timestamp, headers)
            if key is None:
                return
            if timestamp >= node.stream_time:
                keep(key, value, timestamp, headers)
                return
            before = node.drops
            keep(key, value, timestamp, headers)
            # The store drops records that are too old.
            expired.amount += node.drops - before

        return process


@dataclass(frozen=True, slots=True)
class StreamStreamJoin:
    """One side of a stream-stream join.

    `before_ms`, `after_ms`, `grace_ms` and the joiner are those of the user's join, from the left
    side's point of view, for both sides. With `outer` the records of this side are also results
    without a partner. They wait for a partner in `shared`; without it (Kafka's deprecated
    JoinWindows.of) they are forwarded at once. In a left join the right side is not outer but has
    `shared` too, to remove the records that found a partner.
    """

    side: Literal["left", "right"]
    other_store: str
    joiner: Joiner
    before_ms: int
    after_ms: int
    grace_ms: int
    outer: bool = False
    shared: OuterJoinShared | None = None
    with_key: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        if self.shared is None:
            return self._attach_at_once(node, forward)
        return self._attach_waiting(node, forward, self.shared)

    def _reach(self) -> tuple[int, int]:
        """How far this side looks back and ahead, in milliseconds."""
        if self.side == "left":
            return self.before_ms, self.after_ms
        return self.after_ms, self.before_ms

    def _attach_at_once(self, node: NodeContext, forward: Forward) -> Forward:
        before, after = self._reach()
        partners = node.store(self.other_store).fetch_join_records
        combine = orient_joiner(self.joiner, with_key=self.with_key, reverse=self.side == "right")
        drop, outer = node.drop, self.outer
        all_matched, unmatched = node.counter("matched"), node.counter(f"unmatched-{self.side}")

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not outer):
                drop(_NULL)
                return
            matched = 0
            if key is not None:
                since, until = max(0, timestamp - before), max(0, timestamp + after)
                for start, other in partners(key, since, until):
                    matched += 1
                    forward(
                        key, combine(key, value, other),
                        start if start > timestamp else timestamp, headers,
                    )
            if matched:
                all_matched.amount += matched
                return
            # In an inner join a partner may arrive later; that record then counts as matched.
            unmatched.amount += 1
            if outer:
                forward(key, combine(key, value, None), timestamp, headers)

        return process

    def _attach_waiting(
        self, node: NodeContext, forward: Forward, shared: OuterJoinShared
    ) -> Forward:
        before, after = self._reach()
        outer, is_left = self.outer, self.side == "left"
        partners = node.store(self.other_store).fetch_join_records
        combine = orient_joiner(self.joiner, with_key=self.with_key, reverse=not is_left)
        drop, count = node.drop, node.count
        waiting = shared.open(node)
        add, discard, key_to_bytes = waiting.add, waiting.discard, waiting.key_to_bytes
        seen, oldest = shared.stream_time(node), shared.oldest(node)
        send_closed = self._closed_sender(node, forward, shared, waiting)
        unmatched = f"unmatched-{self.side}"

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            seen.time = max(seen.time, timestamp)
            if key is None or value is None:
                if outer and value is not None:
                    count(unmatched)
                    forward(None, combine(None, value, None), timestamp, headers)
                else:
                    drop(_NULL)
                return
            if timestamp == seen.time:
                send_closed(timestamp, headers)
            until = max(0, timestamp + after)
            matched = 0
            raw_key = b""
            for start, other in partners(key, max(0, timestamp - before), until):
                if not matched:
                    raw_key = key_to_bytes(key)
                matched += 1
                discard(start, not is_left, raw_key)
                forward(
                    key, combine(key, value, other),
                    start if start > timestamp else timestamp, headers,
                )
            if matched:
                count("matched", matched)
            elif outer:
                if until < seen.time:
                    # No partner can arrive any more: both sides are past the window.
                    count("late")
                    count(unmatched)
                    forward(key, combine(key, value, None), timestamp, headers)
                else:
                    if oldest.time < 0 or timestamp < oldest.time:
                        oldest.time = timestamp
                    add(timestamp, is_left, key_to_bytes(key), value)

        return process

    def _closed_sender(
        self, node: NodeContext, forward: Forward, shared: OuterJoinShared, waiting: OuterJoinStore
    ) -> Callable[[int, Headers], None]:
        """The function that forwards unmatched records whose windows have closed.

        They have the headers of the arriving record and their own timestamps. Whether to scan
        depends only on the reach of the arriving side.
        """
        wait = self._reach()[1] + self.grace_ms
        left_reach, right_reach = self.after_ms + self.grace_ms, self.before_ms + self.grace_ms
        combine = orient_joiner(self.joiner, with_key=self.with_key)
        oldest, count = shared.oldest(node), node.count

        def send_closed(now: int, headers: Headers) -> None:
            if oldest.time < 0 or oldest.time + wait >= now:
                return
            due, last = waiting.closed(left_reach, right_reach, now)
            sent: bytes | None = None
            for entry in due:
                timestamp = oldest.time = entry.timestamp
                key = waiting.key_of(entry)
                for value in waiting.values_of(entry):
                    if entry.is_left:
                        result = combine(key, value, None)
                        count("unmatched-left")
                    else:
                        result = combine(key, None, value)
                        count("unmatched-right")
                    forward(key, result, timestamp, headers)
                    if sent is not None and sent is not entry.raw_key:
                        # Deletes one entry behind: if the joiner fails, the entry is sent again.
                        waiting.delete(sent)
                    sent = entry.raw_key
            if sent is not None:
                waiting.delete(sent)
            oldest.time = last

        return send_closed


@dataclass(frozen=True, slots=True)
class StreamSelfJoin:
    """An inner join of a stream with itself over one store (single.store.self.join).

    It forwards the results of the two-sided join in the same order. `retention_ms` is that of the
    store; a record older than that does not join itself.
    """

    store_name: str
    joiner: Joiner
    before_ms: int
    after_ms: int
    retention_ms: int
    with_key: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        before, after, retention = self.before_ms, self.after_ms, self.retention_ms
        partners = node.store(self.store_name).fetch_join_records
        combine = orient_joiner(self.joiner, with_key=self.with_key)
        drop, count = node.drop, node.count
        seen = node.clock(f"{node.name}:stream-time")

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop(_NULL)
                return
            with_itself = combine(key, value, value)
            seen.time = max(seen.time, timestamp)
            pending = timestamp > seen.time - retention + 1
            matched = int(pending)
            first, last = max(0, timestamp - before), max(0, timestamp + after)
            for start, other in partners(key, first, last):
                matched += 1
                forward(
                    key, combine(key, value, other),
                    start if start > timestamp else timestamp, headers,
                )
            first, last = max(0, timestamp - after), max(0, timestamp + before)
            for start, other in partners(key, first, last):
                matched += 1
                if pending and start > timestamp:
                    pending = False
                    forward(key, with_itself, timestamp, headers)
                forward(
                    key, combine(key, other, value),
                    start if start > timestamp else timestamp, headers,
                )
            if pending:
                forward(key, with_itself, timestamp, headers)
            if matched:
                count("matched", matched)

        return process
