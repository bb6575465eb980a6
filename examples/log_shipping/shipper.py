"""`LogShipper`: a handler of Python's logging that sends each log message to a topic, as JSON.

The key of a record decides its partition: records without a key go to the partitions in turn, a key
of the thread keeps the order of its messages. `by_level` decides by the value instead.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable

import msgspec

from penstock.clients import KafkaError, Message, Producer

_FORMATTER = logging.Formatter()


class LogLine(msgspec.Struct, frozen=True, rename="camel"):
    """A log message as it is sent. `mdc` has the fields of `extra={"mdc": ...}` of the call."""

    app_name: str
    app_version: str
    level: str
    logger: str
    thread: str
    message: str
    mdc: dict[str, str] = {}
    #: The traceback of an exception.
    stack: str | None = None


def no_key(record: logging.LogRecord) -> None:
    """The partitions in turn."""


def key_of_thread(record: logging.LogRecord) -> bytes:
    """Four bytes: all messages of a thread go to one partition, and keep their order."""
    return zlib.crc32((record.threadName or "").encode()).to_bytes(4, "big")


def by_level(topic: str, key: bytes, value: bytes, partitions: int) -> int:
    """A partitioner: warnings and errors go to partition 0, all others by their key."""
    line = msgspec.json.decode(value, type=LogLine)
    if line.level in ("WARNING", "ERROR", "CRITICAL"):
        return 0
    return int.from_bytes(key, "big") % partitions


class LogShipper(logging.Handler):
    """Sends log messages, and reports where each of them was written."""

    def __init__(
        self, producer: Producer, topic: str, app: tuple[str, str], *,
        key: Callable[[logging.LogRecord], bytes | None] = no_key,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        super().__init__()
        self._producer = producer
        self._topic = topic
        self._app = app
        self._key = key
        self._on_delivery = on_delivery

    def emit(self, record: logging.LogRecord) -> None:
        line = LogLine(
            *self._app, record.levelname, record.name, record.threadName or "",
            record.getMessage(), getattr(record, "mdc", {}),
            _FORMATTER.formatException(record.exc_info) if record.exc_info else None,
        )
        self._producer.produce(
            self._topic, msgspec.json.encode(line), key=self._key(record),
            timestamp=int(record.created * 1000), on_delivery=self._on_delivery,
        )

    def flush(self) -> None:
        """Wait until all messages are written, and their delivery is reported."""
        self._producer.flush()
