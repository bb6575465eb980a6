"""The log on Kafka, put together from its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.log.base import Log
from penstock.log.kafka.appends import Appends
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.settings import ClientSettings, KafkaOptions, servers_of
from penstock.log.kafka.leases import Leases
from penstock.log.kafka.members import Members
from penstock.log.kafka.offsets import GroupOffsets
from penstock.log.kafka.scheme import KAFKA, PREFIX
from penstock.log.kafka.topics import Topics
from penstock.log.types import CleanReport


class KafkaLog(Topics, Appends, GroupOffsets, Members, Leases, Log):
    """A Kafka cluster as a log."""

    capabilities = KAFKA.capabilities

    def __init__(self, address: str, options: KafkaOptions | None = None) -> None:
        servers = servers_of(address)
        self.address = f"{PREFIX}{servers}"
        self._connection = Connection(ClientSettings(servers, options or KafkaOptions()))
        try:
            described: Any = self._connection.ask(
                self._asked_for_cluster, "The cluster was asked for its id"
            )
        except BaseException:
            self._connection.close()
            raise
        self.id = str(described.cluster_id)

    def _asked_for_cluster(self) -> Any:
        return self._connection.admin.describe_cluster(
            request_timeout=self._connection.request_timeout
        )

    def wait_for_change(self, timeout: float) -> bool:
        """See `Log.wait_for_change`."""
        self._connection.check_open()
        return self.watch.wait(timeout)

    def wake(self) -> None:
        """See `Log.wake`."""
        self._connection.changed.set()

    def clean(self, topics: Iterable[str] | None = None, *, force: bool = False) -> CleanReport:
        """See `Log.clean`. Brokers clean their topics themselves; blobs of this host are swept."""
        for topic in topics or ():
            self.topic(topic)
        unused_ms = self._connection.settings.options.unused_blob_ms
        swept, size = self.blobs.sweep(unused_ms)
        return CleanReport(blobs_swept=swept, bytes_freed=size)

    def close(self) -> None:
        """See `Log.close`."""
        self._connection.close()

    def __repr__(self) -> str:
        return f"KafkaLog('{self.address}')"


def open_kafka(address: str, options: Mapping[str, Any]) -> KafkaLog:
    """Connect to a cluster. `options` are those of `KafkaOptions` and librdkafka's settings."""
    return KafkaLog(address, KafkaOptions.of(options))
