"""What all parts of the log share: the connection, and what a process keeps on it."""

from __future__ import annotations

from penstock.log.errors import LogUnavailable
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.group_offsets import GroupOffsetClients
from penstock.log.kafka.client.producers import Producers
from penstock.log.kafka.client.readers import Readers
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache
from penstock.log.kafka.staging import Blobs


class Core:
    """The connection of one log."""

    _connection: Connection

    @property
    def topic_book(self) -> TopicMetadataCache:
        """What is known of topics."""
        return self._connection.part("topics", lambda: TopicMetadataCache(self._connection))

    @property
    def readers(self) -> Readers:
        """The readers of this process."""
        return self._connection.part("readers", lambda: Readers(self._connection))

    @property
    def producers(self) -> Producers:
        """The producers of this process that belong to no lease."""
        return self._connection.part("producers", lambda: Producers(self._connection))

    @property
    def blobs(self) -> Blobs:
        """What was put aside on this host."""
        return Blobs(self._connection.settings.blob_folder())

    @property
    def timeout(self) -> float:
        """How long to try, in seconds."""
        return self._connection.timeout

    def unavailable(self, what: str) -> LogUnavailable:
        """The error of a cluster that does not answer."""
        return self._connection.unavailable(what)

    def tell_change(self) -> None:
        """Let this handle's own `wait_for_change` answer."""
        self._connection.changed.set()

    @property
    def strangers(self) -> GroupOffsetClients:
        """Who asks and commits for groups without being in them."""
        return self._connection.part("strangers", lambda: GroupOffsetClients(self._connection))
