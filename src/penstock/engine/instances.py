"""The instances of an application, as they see each other: records with heartbeats in the log.

An instance with `application.server` writes a record to the topic `<application>-instances` at its
start, when its role changes, every `HEARTBEAT_S` seconds, and at its end. Instances without that
setting are not listed: other instances could not reach them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable

import msgspec

from penstock.clock import wall_clock_ms
from penstock.config import StreamsConfig
from penstock.engine.layout.internal_topics import instances_topic
from penstock.engine.lease import instance_name
from penstock.log import open_log
from penstock.log.base import Log
from penstock.log.errors import LogError, OffsetOutOfRange, TopicExists, UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
#: An instance without a heartbeat for this time has ended.
EXPIRY_MS = 5_000
#: The topic needs only the last heartbeats.
_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "600000"}


class InstanceRecord(msgspec.Struct, frozen=True):
    """One instance, at one heartbeat."""

    #: Unique for each start of an instance.
    id: str
    #: The process, for messages.
    name: str
    host: str
    port: int
    #: Whether it runs the tasks. The others are standbys.
    is_active: bool
    #: The instance ends: there are no more heartbeats.
    is_closed: bool = False
    format_version: int = 1


def read_instances(source: Log, application_id: str) -> list[InstanceRecord]:
    """Return the instances that are alive, the active one first."""
    topic = instances_topic(application_id)
    partition = TopicPartition(topic, 0)
    newest: dict[str, InstanceRecord] = {}
    try:
        first = source.offset_for_time(topic, 0, wall_clock_ms() - EXPIRY_MS)
        if first is None:
            return []
        end = source.offsets([partition])[partition].end
        for batch in source.read(topic, 0, first.offset, end):
            for record in map(_decode, batch.columns().values):
                if record is not None:
                    newest[record.id] = record
    except (UnknownTopic, OffsetOutOfRange):
        return []
    alive = [record for record in newest.values() if not record.is_closed]
    return sorted(alive, key=lambda record: (not record.is_active, record.name, record.id))


def _decode(value: bytes | None) -> InstanceRecord | None:
    """Return the record of an instance. None for a record that another program has written."""
    try:
        return None if value is None else msgspec.json.decode(value, type=InstanceRecord)
    except msgspec.DecodeError:
        return None


class Heartbeats:
    """Writes the record of this instance in a separate thread, until it is closed."""

    def __init__(self, config: StreamsConfig, is_active: Callable[[], bool]) -> None:
        host, _, port = config.application_server.rpartition(":")
        self._config = config
        self._is_active = is_active
        self._record = InstanceRecord(
            uuid.uuid4().hex, instance_name(config), host, int(port), False
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="penstock-heartbeats", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Write the last record, and stop."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        config = self._config
        assert config.log is not None
        while not self._stopped.is_set():
            try:
                with open_log(config.log, connection=config.connection_settings()) as target:
                    self._beat_until_stopped(target)
            except LogError as error:
                log.warning("The record of this instance cannot be written: %s", error)
                self._stopped.wait(HEARTBEAT_S)
            except Exception:
                log.exception("The record of this instance cannot be written.")
                self._stopped.wait(HEARTBEAT_S)

    def _beat_until_stopped(self, target: Log) -> None:
        topic = instances_topic(self._config.application_id)
        with contextlib.suppress(TopicExists):
            target.create_topic(
                topic, 1, _SETTINGS, replication_factor=self._config.replication_factor
            )
        while True:
            is_last = self._stopped.is_set()
            record = msgspec.structs.replace(
                self._record, is_active=not is_last and self._is_active(), is_closed=is_last
            )
            target.append(topic, 0, RecordColumns(
                [record.id.encode()], [msgspec.json.encode(record)], [wall_clock_ms()]
            ))
            if is_last:
                return
            self._stopped.wait(HEARTBEAT_S)
