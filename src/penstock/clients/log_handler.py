"""`TopicHandler`: a logging handler that writes JSON events to a topic.

    handler = TopicHandler({"log": "orders.db"}, "logs", fields={"appName": "testdata"})
    logging.getLogger().addHandler(handler)

The fields of an event have the names of Logback's JSON encoders: `@timestamp`, `level`,
`logger_name`, `thread_name`, `message`, `stack_trace` for exceptions, then the fields of the
handler, then the `extra` of the logging call.

Logging never blocks and never raises: events wait in a bounded queue for a thread, which alone uses
the log. Events that do not fit into the queue, or cannot be sent, are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from penstock.clients.errors import KafkaError
from penstock.clients.producer.client import Producer
from penstock.clients.types import Message
from penstock.errors import ConfigException

#: Returns the key of an event, or None.
KeyFunction: TypeAlias = Callable[[logging.LogRecord], "bytes | str | None"]

#: The attributes of every `LogRecord`; all others come from `extra`.
_STANDARD_ATTRIBUTES = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName")
)
#: Events of these loggers are not sent, because sending them would create more of them.
_OWN_LOGGERS = ("penstock.clients", "penstock.log")
_RETRY_S = 1.0


def java_hash(text: str) -> int:
    """Return the result of Java's `String.hashCode`."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def _thread_key(record: logging.LogRecord) -> bytes:
    return struct.pack(">i", java_hash(record.threadName or ""))


def _logger_key(record: logging.LogRecord) -> str:
    return record.name


def _no_key(record: logging.LogRecord) -> None:
    return None


_KEY_FUNCTIONS: Mapping[str, KeyFunction] = {
    "none": _no_key, "thread": _thread_key, "logger": _logger_key,
}


class TopicHandler(logging.Handler):
    """Writes log events to a topic.

    Args:
        config: Settings of the producer.
        topic: The topic of the events.
        key: The key of events: "none" (no key, partitions in turn), "thread" (the four bytes of
            Java's hash of the thread name), "logger", or a function of the `LogRecord`.
        fields: Fields that every event has.
        capacity: The largest number of events that wait; more are dropped.
        level: The lowest level of events.
        close_timeout: How long `close` waits for events to be sent, in seconds.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        key: str | KeyFunction = "none",
        fields: Mapping[str, Any] | None = None,
        capacity: int = 10_000,
        level: int | str = logging.NOTSET,
        close_timeout: float = 5.0,
    ) -> None:
        super().__init__(level)
        if isinstance(key, str) and key not in _KEY_FUNCTIONS:
            raise ConfigException(
                f"key must be one of {', '.join(_KEY_FUNCTIONS)}, or a function, not '{key}'."
            )
        self._config = dict(config)
        self._topic = topic
        self._key = _KEY_FUNCTIONS[key] if isinstance(key, str) else key
        self._fields = dict(fields or {})
        self._capacity = capacity
        self._close_timeout = close_timeout
        #: Number of events in the topic.
        self.shipped = 0
        #: Number of dropped events: the queue was full, or they could not be sent.
        self.dropped = 0
        #: The reason of the last dropped event, unless the queue was full.
        self.last_error: BaseException | KafkaError | None = None
        self._encode = msgspec.json.Encoder(enc_hook=str).encode
        self._reset()

    def _reset(self) -> None:
        """Initialize queue and thread, also in a forked process, which has no sender thread."""
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[tuple[bytes | str | None, bytes, int]] = deque()
        self._in_flight = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def event(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the event of a record. Override it for another format.

        Args:
            record: The log record.
        """
        created = datetime.fromtimestamp(record.created, UTC)
        event: dict[str, Any] = {
            "@timestamp": created.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger_name": record.name,
            "thread_name": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            formatter = self.formatter or _DEFAULT_FORMATTER
            event["stack_trace"] = formatter.formatException(record.exc_info)
        for name, value in self._fields.items():
            event.setdefault(name, value)
        for name, value in vars(record).items():
            if name not in _STANDARD_ATTRIBUTES:
                event.setdefault(name, value)
        return event

    def emit(self, record: logging.LogRecord) -> None:
        """Put the event into the queue. Does not raise or wait.

        Args:
            record: The log record.
        """
        if record.name.startswith(_OWN_LOGGERS):
            return
        try:
            if self._pid != os.getpid():
                self._reset()
            entry = (
                self._key(record), self._encode(self.event(record)), int(record.created * 1000)
            )
        except Exception as error:
            self._drop(error)
            return
        with self._changed:
            if self._closing or len(self._queue) >= self._capacity:
                self._drop(None)
                return
            self._queue.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-log-handler", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _drop(self, error: BaseException | KafkaError | None, count: int = 1) -> None:
        self.dropped += count
        if error is not None:
            self.last_error = error

    # The sender thread

    def _run(self) -> None:
        producer: Producer | None = None
        while True:
            with self._changed:
                self._in_flight = 0
                self._changed.notify_all()
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    break
                entries = list(self._queue)
                self._in_flight = len(entries)
                self._queue.clear()
            try:
                if producer is None:
                    producer = Producer(self._config)
                self._send(producer, entries)
            except Exception as error:
                self._drop(error, len(entries))
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, _RETRY_S)
        if producer is not None:
            producer.close(self._close_timeout)

    def _send(
        self, producer: Producer, entries: list[tuple[bytes | str | None, bytes, int]]
    ) -> None:
        for key, value, timestamp in entries:
            try:
                producer.produce(
                    self._topic, value, key, timestamp=timestamp, on_delivery=self._on_delivery
                )
            except Exception as error:
                self._drop(error)
        producer.flush()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.shipped += 1
        else:
            self._drop(error)

    def flush(self) -> None:
        """Wait until all events are sent, for at most `close_timeout` seconds."""
        if self._pid != os.getpid() or threading.current_thread() is self._thread:
            return
        deadline = time.monotonic() + self._close_timeout
        with self._changed:
            while self._queue or self._in_flight:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return
                self._changed.wait(remaining)

    def close(self) -> None:
        """Send the queued events, for at most `close_timeout` seconds, and stop."""
        if self._pid == os.getpid() and not self._closing:
            self.flush()
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(self._close_timeout)
        super().close()


_DEFAULT_FORMATTER = logging.Formatter()
