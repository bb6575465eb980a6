"""Who asks and commits for a group without being in it.

A consumer with the group's id that subscribes to nothing. The admin client could do the same, but
an answer of a broker that is not the group's coordinator any more ends the whole process
(librdkafka 2.16, a null pointer in `rd_kafka_handle_OffsetFetch`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, made
from penstock.log.kafka.client.errors import BUSY, error_of, translated
from penstock.log.types import CommittedOffset, TopicPartition

_KEPT = 4
_PAUSE_S = 0.005
_LATER = BUSY | {
    KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
}


def _told(call: Callable[[], Any]) -> tuple[Any, KafkaError | None]:
    """What a call answers, and the first error in it, or of it."""
    try:
        answer = call()
    except KafkaException as raised:
        return [], error_of(raised)
    return answer, next((one.error for one in answer if one.error is not None), None)


class GroupOffsetClient:
    """One group, seen from outside. May be used by many threads."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        settings = connection.settings.member(
            group, 6_000, **{"isolation.level": "read_committed"}
        )
        self._consumer = made(lambda: Consumer(settings))
        #: What a transaction needs to commit for the group.
        self.metadata: Any = self._consumer.consumer_group_metadata()

    def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed; waits for transactions that are just ending."""
        what = f"Offsets of group '{self._group}' were asked for"
        deadline = time.monotonic() + self._connection.timeout
        while True:
            found, error = _told(lambda: self._consumer.committed(
                [KafkaPartition(*where) for where in partitions],
                timeout=self._connection.request_timeout,
            ))
            if error is None:
                return {
                    TopicPartition(one.topic, one.partition): CommittedOffset(
                        one.offset, one.metadata or ""
                    )
                    for one in found if one.offset >= 0
                }
            self._wait_or_raise(error, what, deadline)

    def find_coordinator(self) -> None:
        """Wait until a broker takes care of the group; the first group of a cluster takes long."""
        self.committed([TopicPartition("__consumer_offsets", 0)])

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit for the group; `Fenced` while it has members."""
        what = f"Offsets of group '{self._group}' were to be committed"
        deadline = time.monotonic() + self._connection.timeout
        wanted = [
            KafkaPartition(*where, offset, text) for where, (offset, text) in offsets.items()
        ]
        while True:
            _, error = _told(lambda: self._consumer.commit(offsets=wanted, asynchronous=False))
            if error is None:
                return
            self._wait_or_raise(error, what, deadline)

    def _wait_or_raise(self, error: KafkaError, what: str, deadline: float) -> None:
        if error.code() not in _LATER:
            raise translated(error, what, self._group)
        if time.monotonic() > deadline:
            raise self._connection.unavailable(f"{what}: {error.str()}")
        time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Let go."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()


class GroupOffsetClients:
    """The strangers of one log in one process; the last few are kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        #: In the order in which they were last asked for.
        self._kept: dict[str, GroupOffsetClient] = {}

    def of(self, group: str) -> GroupOffsetClient:
        """The one of a group."""
        with self._lock:
            found = self._kept.pop(group, None) or GroupOffsetClient(self._connection, group)
            self._kept[group] = found
            # One that another thread still uses goes when that is done with it.
            while len(self._kept) > _KEPT:
                self._kept.pop(next(iter(self._kept)))
        return found

    def close(self) -> None:
        """Close all."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for stranger in kept.values():
            stranger.close()
