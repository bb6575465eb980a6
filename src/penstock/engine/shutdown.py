"""How one instance asks all the others to end: a record in the topic of the task records."""

from __future__ import annotations

import msgspec

from penstock.engine.layout.internal_topics import tasks_topic
from penstock.log.base import Log
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns

#: The key of the record. Task records have other keys.
KEY = b"shutdown"


class ShutdownRequest(msgspec.Struct, frozen=True):
    """Who asked, and why."""

    instance: str
    reason: str
    #: As all records of the topic have it, so that who reads the others can pass this one over.
    format_version: int = 1


def request_shutdown(log: Log, application_id: str, request: ShutdownRequest) -> None:
    """Tell every instance that listens by now."""
    log.append(
        tasks_topic(application_id), 0, RecordColumns([KEY], [msgspec.json.encode(request)])
    )


class ShutdownWatch:
    """Hears requests that were made after it was made itself."""

    def __init__(self, log: Log, application_id: str) -> None:
        self._log = log
        self._partition = TopicPartition(tasks_topic(application_id), 0)
        self._position = self._end()

    def asked(self) -> ShutdownRequest | None:
        """The newest request since the last call, if there was one."""
        end = self._end()
        found = None
        if end > self._position:
            try:
                reading = self._log.read(*self._partition, self._position, end)
                for batch in reading:
                    rows = batch.columns()
                    for key, value in zip(rows.keys, rows.values, strict=True):
                        if key == KEY and value is not None:
                            found = msgspec.json.decode(value, type=ShutdownRequest)
            except (OffsetOutOfRange, UnknownTopic):
                # The topic was made anew: nobody there asked this instance for anything.
                found = None
        self._position = end
        return found

    def _end(self) -> int:
        try:
            return self._log.offsets([self._partition])[self._partition].end
        except UnknownTopic:
            return 0
