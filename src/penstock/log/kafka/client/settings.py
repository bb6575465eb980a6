"""The address, the options, and the settings of every client that is made.

Options of `open_log("kafka://...", **options)` are librdkafka's settings (dots may be written as
underscores), such as those of security. They go to every client alike and are never logged. The
options of `KafkaOptions` are penstock's own.
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

#: A fetch at the end of a partition answers after this time, and only then is the end known.
FETCH_WAIT_MS = 10
#: What a reader may have in its queue.
_READ_AHEAD_KB = 8 * 1024
#: What may wait in a producer.
_WRITE_AHEAD_KB = 64 * 1024
#: The largest request that a client makes; the topic's own limit is checked before.
_LARGEST_REQUEST = 1_000_000_000


class _ClientLines:
    """Where clients put their lines: the logger `penstock.kafka`, at INFO at most.

    librdkafka calls a broker that is away an error and a coordinator that still loads a warning,
    and tries again by itself. What comes of it penstock tells: in the error that it raises, or in
    a line of its own.
    """

    _logger = logging.getLogger("penstock.kafka")

    def log(self, level: int, text: str, *parts: object) -> None:
        """Called by confluent-kafka, with the level that librdkafka gives the line."""
        self._logger.log(min(level, logging.INFO), text, *parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaOptions:
    """What is penstock's own of the options."""

    #: How long to wait for an answer of the brokers before `LogUnavailable`.
    timeout_ms: int = 30_000
    #: Where blobs wait: a folder that the processes of this host share. None: below the folder
    #: for temporary files.
    blob_dir: str | None = None
    #: Blobs put aside and not used for this long are swept by `clean`.
    unused_blob_ms: int = 3_600_000
    #: Taken for the sake of the embedded log: a cluster is never created.
    create: bool = True
    #: Settings of librdkafka.
    clients: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> KafkaOptions:
        """Options as `open_log` takes them."""
        own = {one.name for one in fields(cls)} - {"clients"}
        mine = {name: value for name, value in options.items() if name in own}
        for name in mine.keys() & {"timeout_ms", "unused_blob_ms"}:
            mine[name] = _milliseconds(name, mine[name])
        clients = {
            name if name.endswith("_cb") else name.replace("_", "."): value
            for name, value in options.items() if name not in own
        }
        return cls(**mine, clients=clients)

    @property
    def timeout_s(self) -> float:
        """The timeout in seconds."""
        return self.timeout_ms / 1000


def _milliseconds(name: str, given: Any) -> int:
    """A number, or the text of one from a file of properties."""
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ConfigException(f"{name} must be a number of milliseconds, not {given!r}.")
    return number


def servers_of(address: str) -> str:
    """The brokers that an address names."""
    servers = address.removeprefix(PREFIX).strip("/ ")
    if not servers:
        raise ConfigException(f"No broker in '{address}'. Write kafka://host:9092,host:9092.")
    return servers


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of each kind of client, all to the same brokers with the same options."""

    servers: str
    options: KafkaOptions

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "client.id": "penstock",
            "logger": _ClientLines(),
            "log.connection.close": False,
            # After a broker was away, it is found again soon.
            "reconnect.backoff.max.ms": 1000,
            "socket.nagle.disable": True,
            "topic.metadata.refresh.fast.interval.ms": 20,
        }

    def admin(self) -> dict[str, Any]:
        """For topics, offsets and groups."""
        return {**self._common(), **self.options.clients}

    def reader(self) -> dict[str, Any]:
        """For a consumer that reads ranges and is in no group."""
        return {
            **self._common(),
            "group.id": "penstock-readers",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "fetch.queue.backoff.ms": 5,
            "fetch.error.backoff.ms": 10,
            "queued.max.messages.kbytes": _READ_AHEAD_KB,
            # Nobody waits for a reader: it may rest for as long as it likes.
            "max.poll.interval.ms": 86_400_000,
            **self.options.clients,
        }

    def member(self, group: str, session_timeout_ms: int, **more: Any) -> dict[str, Any]:
        """For a consumer that has a place in a group. It reads nothing itself."""
        return {
            **self._common(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": max(20, min(300, session_timeout_ms // 3)),
            "max.poll.interval.ms": max(300_000, session_timeout_ms),
            # New topics and partitions are divided soon.
            "topic.metadata.refresh.interval.ms": 2000,
            **more,
            **self.options.clients,
        }

    def producer(self, batch_bytes: int, transactional_id: str | None = None) -> dict[str, Any]:
        """For a producer; idempotent, or of transactions."""
        settings = {
            **self._common(),
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "message.max.bytes": _LARGEST_REQUEST,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": _WRITE_AHEAD_KB,
            # A transaction right after another waits for a moment; the default is 100 ms.
            "retry.backoff.ms": 2,
            "retry.backoff.max.ms": 20,
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        else:
            settings["delivery.timeout.ms"] = self.options.timeout_ms
        return {**settings, **self.options.clients}

    def blob_folder(self) -> Path:
        """Where blobs wait on this host."""
        given = self.options.blob_dir
        user = os.getuid() if hasattr(os, "getuid") else ""
        return Path(given) if given else Path(tempfile.gettempdir()) / f"penstock-blobs-{user}"
