"""The shared clients of one log in one process."""

from __future__ import annotations

from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.group_offsets import GroupOffsetClients
from penstock.log.kafka.client.list_offsets import OffsetLister
from penstock.log.kafka.client.prefetch import Prefetcher
from penstock.log.kafka.client.producers import Producers
from penstock.log.kafka.client.readers import Readers
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache


class ClientPool:
    """Creates each client on first use. The connection owns them: a fork discards them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def topics(self) -> TopicMetadataCache:
        """The cache of topic metadata."""
        connection = self._connection
        return connection.shared("topics", lambda: TopicMetadataCache(connection))

    @property
    def offset_lister(self) -> OffsetLister:
        """The client that asks for partition offsets."""
        connection = self._connection
        return connection.shared(
            "offset_lister", lambda: OffsetLister(connection, self.topics)
        )

    @property
    def high_watermark_lister(self) -> OffsetLister:
        """The client that asks for partition offsets, including those of open transactions."""
        connection = self._connection
        return connection.shared(
            "high_watermark_lister",
            lambda: OffsetLister(connection, self.topics, isolation="read_uncommitted"),
        )

    @property
    def group_offsets(self) -> GroupOffsetClients:
        """The clients for offsets of groups."""
        connection = self._connection
        return connection.shared("group_offsets", lambda: GroupOffsetClients(connection))

    @property
    def readers(self) -> Readers:
        """The consumers that read ranges."""
        connection = self._connection
        return connection.shared("readers", lambda: Readers(connection))

    @property
    def prefetcher(self) -> Prefetcher:
        """The consumer that reads small ranges of many partitions."""
        connection = self._connection
        return connection.shared("prefetcher", lambda: Prefetcher(connection))

    @property
    def producers(self) -> Producers:
        """The producers that belong to no lease."""
        connection = self._connection
        return connection.shared("producers", lambda: Producers(connection))
