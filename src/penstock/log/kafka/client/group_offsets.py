"""Reads and commits offsets of a group without joining it.

Uses a consumer with the group's id that subscribes to nothing. The admin client could do the same,
but a response of a broker that is no longer the coordinator crashes the process (librdkafka 2.16,
a null pointer in `rd_kafka_handle_OffsetFetch`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, create_client
from penstock.log.kafka.client.errors import RETRIABLE, error_of, translate
from penstock.log.kafka.client.retry import Retry
from penstock.log.types import CommittedOffset, TopicPartition

#: The number of groups whose clients are kept.
_KEPT = 4
_PAUSE_S = 0.005
_SESSION_MS = 6_000


class GroupOffsetClient:
    """Reads and commits the offsets of one group. Thread-safe."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        settings = connection.settings.member(
            group, _SESSION_MS, **{"isolation.level": "read_committed"}
        )
        self._consumer = create_client(lambda: Consumer(settings))
        #: The group metadata for a transaction that commits offsets.
        self.metadata: Any = self._consumer.consumer_group_metadata()

    def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets. Waits for transactions that are being completed."""
        wanted = [KafkaPartition(*where) for where in partitions]
        found = self._retry(
            lambda: self._consumer.committed(
                wanted, timeout=self._connection.request_timeout
            ),
            f"Reading the offsets of group '{self._group}' failed",
        )
        return {
            TopicPartition(one.topic, one.partition): CommittedOffset(one.offset, _metadata(one))
            for one in found if one.offset >= 0
        }

    def find_coordinator(self) -> None:
        """Wait until the group has a coordinator. The first group of a cluster takes long."""
        self.committed([TopicPartition("__consumer_offsets", 0)])

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets for the group; `Fenced` while it has members."""
        wanted = [
            KafkaPartition(*where, offset, metadata)
            for where, (offset, metadata) in offsets.items()
        ]
        self._retry(
            lambda: self._consumer.commit(offsets=wanted, asynchronous=False),
            f"Committing the offsets of group '{self._group}' failed",
        )

    def _retry(self, call: Callable[[], Any], what: str) -> Any:
        """Return the partitions that a call returns without an error."""
        retry = Retry(self._connection.timeout, _PAUSE_S)
        while True:
            try:
                found = call()
            except KafkaException as raised:
                error: KafkaError | None = error_of(raised)
            else:
                error = next((one.error for one in found if one.error is not None), None)
            if error is None:
                return found
            if error.code() not in RETRIABLE:
                raise translate(error, what, self._group)
            if retry.is_over:
                raise self._connection.unavailable(f"{what}: {error.str()}")
            retry.wait()

    def close(self) -> None:
        """Close the consumer."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()


def _metadata(committed: KafkaPartition) -> str:
    """Return the metadata of a committed offset.

    librdkafka does not terminate it, and confluent-kafka reads on to the next zero byte. So there
    may be a few bytes more, which need not be UTF-8.
    """
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as error:
        return error.object[: error.start].decode()


class GroupOffsetClients:
    """The most recently used clients, one per group."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        #: The least recently used client first.
        self._kept: dict[str, GroupOffsetClient] = {}

    def of(self, group: str) -> GroupOffsetClient:
        """Return the client of a group."""
        with self._lock:
            found = self._kept.pop(group, None) or GroupOffsetClient(self._connection, group)
            self._kept[group] = found
            # A removed client may be in use by another thread. It is deallocated afterwards.
            while len(self._kept) > _KEPT:
                self._kept.pop(next(iter(self._kept)))
        return found

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for client in kept.values():
            client.close()
