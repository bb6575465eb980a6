"""Options of a Kafka log, and the settings of each kind of client.

Options of `open_log("kafka://...", **options)` are settings of librdkafka, such as those of
security; underscores stand for dots. They apply to every client and are never logged. The fields of
`KafkaOptions` are penstock's own options.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.errors import ConfigException
from penstock.log.kafka.scheme import PREFIX

#: A fetch at the end of a partition returns after this time; only then is the end known.
_FETCH_WAIT_MS = 10
#: The most that a reader prefetches.
_READER_QUEUE_KB = 8 * 1024
#: A fetch of a tail reader waits this long for new records. One request for all partitions of a
#: broker is under way at a time, so a partition that is added, or whose queue was full, may wait as
#: long.
_TAIL_WAIT_MS = 100
#: The most that a tail reader prefetches: enough for `_TAIL_WAIT_MS` at 160 MB/s.
_TAIL_QUEUE_KB = 16 * 1024
#: An open transaction holds back the readers of its partitions, so writers end theirs soon.
_WRITER_TRANSACTION_MS = 10_000
#: Timeouts of librdkafka that must be shorter than that of a transaction.
_TIMEOUTS_IN_TRANSACTION = ("socket.timeout.ms", "message.timeout.ms", "delivery.timeout.ms")
#: The most that a producer buffers.
_PRODUCER_QUEUE_KB = 64 * 1024
#: The largest request of a client. The limit of the topic is checked before.
_MAX_REQUEST_BYTES = 1_000_000_000


class ClientLogger:
    """Passes log lines of clients to the logger `penstock.kafka`, with level INFO at most.

    librdkafka logs an unreachable broker as an error and a loading coordinator as a warning, but
    retries by itself. If a retry does not help, penstock raises an error or logs the failure.
    """

    _logger = logging.getLogger("penstock.kafka")

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line. confluent-kafka calls this with librdkafka's level."""
        self._logger.log(min(level, logging.INFO), message, *arguments)


CLIENT_LOGGER = ClientLogger()

@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaOptions:
    """The options of one `KafkaLog`."""

    #: How long to wait for the brokers before `LogUnavailable`; as `default.api.timeout.ms` and
    #: `max.block.ms` of Kafka's clients. The loss of a coordinator may take half a minute.
    timeout_ms: int = 60_000
    #: The directory of staged records, shared by the processes of this host. None: a directory
    #: below the one for temporary files.
    blob_dir: str | None = None
    #: `clean` deletes staged records that are older than this.
    unused_blob_ms: int = 3_600_000
    #: No effect: a cluster is never created. Every log accepts this option.
    create: bool = True
    #: Settings of librdkafka.
    clients: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> KafkaOptions:
        """Separate penstock's own options from the settings of librdkafka."""
        names = {one.name for one in fields(cls)} - {"clients"}
        own = {name: value for name, value in options.items() if name in names}
        for name in own.keys() & {"timeout_ms", "unused_blob_ms"}:
            own[name] = _parse_milliseconds(name, own[name])
        clients = {
            name if name.endswith("_cb") else name.replace("_", "."): value
            for name, value in options.items() if name not in names
        }
        return cls(**own, clients=clients)

    @property
    def timeout_s(self) -> float:
        """The timeout in seconds."""
        return self.timeout_ms / 1000


def _parse_milliseconds(name: str, given: Any) -> int:
    """Parse a number; values from a properties file are strings."""
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ConfigException(f"{name} must be a number of milliseconds, not {given!r}.")
    return number


def parse_servers(address: str) -> str:
    """Return the brokers of an address."""
    servers = address.removeprefix(PREFIX).strip("/ ")
    if not servers:
        raise ConfigException(f"No broker in '{address}'. Write kafka://host:9092,host:9092.")
    return servers


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of each kind of client, all with the same brokers and options."""

    servers: str
    options: KafkaOptions

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "client.id": "penstock",
            "logger": CLIENT_LOGGER,
            "log.connection.close": False,
            # Reconnect soon after a broker was down.
            "reconnect.backoff.max.ms": 1000,
            "socket.nagle.disable": True,
            "topic.metadata.refresh.fast.interval.ms": 20,
        }

    def admin(self) -> dict[str, Any]:
        """Return the settings of a client for topics, offsets and groups."""
        return {**self._common(), **self.options.clients}

    def reader(self) -> dict[str, Any]:
        """Return the settings of a consumer that reads ranges without a group."""
        return {
            **self._common(),
            "group.id": "penstock-readers",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # As in Java clients. Off by default in librdkafka.
            "check.crcs": True,
            "fetch.wait.max.ms": _FETCH_WAIT_MS,
            "fetch.queue.backoff.ms": 5,
            "fetch.error.backoff.ms": 10,
            "queued.max.messages.kbytes": _READER_QUEUE_KB,
            # A reader is in no group and may be idle for any time.
            "max.poll.interval.ms": 86_400_000,
            **self.options.clients,
        }

    def tail(self) -> dict[str, Any]:
        """Return the settings of a consumer that follows partitions without a group."""
        return {
            **self.reader(),
            "fetch.wait.max.ms": _TAIL_WAIT_MS,
            "queued.max.messages.kbytes": _TAIL_QUEUE_KB,
            **self.options.clients,
        }

    def member(self, group: str, session_timeout_ms: int, **more: Any) -> dict[str, Any]:
        """Return the settings of a consumer that joins a group and reads nothing."""
        return {
            **self._common(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": max(20, min(300, session_timeout_ms // 3)),
            "max.poll.interval.ms": max(300_000, session_timeout_ms),
            # Assign new topics and partitions soon.
            "topic.metadata.refresh.interval.ms": 2000,
            **more,
            **self.options.clients,
        }

    def producer(self, batch_bytes: int, transactional_id: str | None = None) -> dict[str, Any]:
        """Return the settings of an idempotent or transactional producer."""
        settings = {
            **self._common(),
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "message.max.bytes": _MAX_REQUEST_BYTES,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": _PRODUCER_QUEUE_KB,
            # A transaction right after another one is retried. The default of 100 ms is too long.
            "retry.backoff.ms": 2,
            "retry.backoff.max.ms": 20,
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        else:
            settings["delivery.timeout.ms"] = self.options.timeout_ms
        return {**settings, **self.options.clients}

    def writer(self, batch_bytes: int, transactional_id: str) -> dict[str, Any]:
        """Return the settings of a producer with short transactions."""
        settings = {
            "transaction.timeout.ms": _WRITER_TRANSACTION_MS,
            **self.producer(batch_bytes, transactional_id),
        }
        longest = int(settings["transaction.timeout.ms"]) - 100
        for name in _TIMEOUTS_IN_TRANSACTION:
            if name in settings:
                settings[name] = min(int(settings[name]), longest)
        return settings

    def staging_directory(self) -> Path:
        """Return the directory of staged records on this host."""
        given = self.options.blob_dir
        user = os.getuid() if hasattr(os, "getuid") else ""
        return Path(given) if given else Path(tempfile.gettempdir()) / f"penstock-blobs-{user}"
