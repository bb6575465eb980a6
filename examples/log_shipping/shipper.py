"""`LogShipper`: a handler of Python's logging that sends each log message to a topic, as JSON."""

from __future__ import annotations

import logging
import zlib

import msgspec

from penstock.clients import Producer


class LogLine(msgspec.Struct, frozen=True, rename="camel"):
    """A log message as it is sent."""

    app_name: str
    app_version: str
    level: str
    logger: str
    thread: str
    message: str


def key_of_thread(thread: str) -> bytes:
    """Four bytes: all messages of a thread go to one partition, and keep their order."""
    return zlib.crc32(thread.encode()).to_bytes(4, "big")


class LogShipper(logging.Handler):
    """Sends log messages. Warnings and errors go to partition 0, the others by their thread."""

    def __init__(self, producer: Producer, topic: str, app: str, version: str) -> None:
        super().__init__()
        self._producer = producer
        self._topic = topic
        self._app = (app, version)
        self._json = msgspec.json.Encoder()

    def emit(self, record: logging.LogRecord) -> None:
        line = LogLine(
            *self._app, record.levelname, record.name, record.threadName or "", record.getMessage()
        )
        self._producer.produce(
            self._topic, self._json.encode(line), key=key_of_thread(line.thread),
            timestamp=int(record.created * 1000),
            **({"partition": 0} if record.levelno >= logging.WARNING else {}),
        )
