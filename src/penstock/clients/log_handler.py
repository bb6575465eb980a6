"""`TopicHandler`: ships what a program logs to a topic, as JSON events.

    handler = TopicHandler({"log": "orders.db"}, "logs", fields={"appName": "testdata"})
    logging.getLogger().addHandler(handler)

An event has the names that Logback's JSON encoders use: `@timestamp`, `level`, `logger_name`,
`thread_name`, `message`, `stack_trace` for exceptions, then the handler's own fields, then whatever
was given to the logging call as `extra`.

A program that logs is never held up and never broken by it: events wait in a queue of bounded
length and are sent by a thread, which alone touches the log file. What finds the queue full, or
cannot be sent, is dropped and counted.
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

#: Makes the key of an event; None: no key.
KeyFunction: TypeAlias = Callable[[logging.LogRecord], "bytes | str | None"]

#: What every record has; the rest was given as `extra`.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
#: Their events are not shipped: shipping them would make more of them.
_OWN_LOGGERS = ("penstock.clients", "penstock.log")
_RETRY_S = 1.0


def java_hash(text: str) -> int:
    """What Java's `String.hashCode` answers."""
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


_KEYS: Mapping[str, KeyFunction] = {
    "none": _no_key, "thread": _thread_key, "logger": _logger_key,
}


class TopicHandler(logging.Handler):
    """Ships log events to a topic.

    `key` says how events are spread over partitions: "none" (in turn), "thread" (the four bytes of
    Java's hash of the thread's name), "logger", or a function of the `LogRecord`.
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
        if isinstance(key, str) and key not in _KEYS:
            raise ConfigException(
                f"key must be one of {', '.join(_KEYS)}, or a function, not '{key}'."
            )
        self._config = dict(config)
        self._topic = topic
        self._key = _KEYS[key] if isinstance(key, str) else key
        self._fields = dict(fields or {})
        self._capacity = capacity
        self._close_timeout = close_timeout
        #: Events that were written to the topic.
        self.shipped = 0
        #: Events that were not: the queue was full, or the log refused them.
        self.dropped = 0
        #: The last reason for which an event was dropped.
        self.last_error: BaseException | KafkaError | None = None
        self._encode = msgspec.json.Encoder(enc_hook=str).encode
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[tuple[bytes | str | None, bytes, int]] = deque()
        self._sending = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def event(self, record: logging.LogRecord) -> dict[str, Any]:
        """What is shipped of a record. To be overridden for another shape."""
        created = datetime.fromtimestamp(record.created, UTC)
        event: dict[str, Any] = {
            "@timestamp": created.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger_name": record.name,
            "thread_name": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            event["stack_trace"] = (self.formatter or _PLAIN).formatException(record.exc_info)
        for name, value in self._fields.items():
            event.setdefault(name, value)
        for name, value in vars(record).items():
            if name not in _USUAL:
                event.setdefault(name, value)
        return event

    def emit(self, record: logging.LogRecord) -> None:
        """Put the event into the queue. Raises nothing, waits for nothing."""
        if record.name.startswith(_OWN_LOGGERS):
            return
        try:
            if self._pid != os.getpid():
                self._start_over()
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
                    target=self._ship, name="penstock-log-handler", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _drop(self, error: BaseException | KafkaError | None, count: int = 1) -> None:
        self.dropped += count
        if error is not None:
            self.last_error = error

    # The thread

    def _ship(self) -> None:
        producer: Producer | None = None
        while True:
            with self._changed:
                self._sending = 0
                self._changed.notify_all()
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    break
                entries = list(self._queue)
                self._sending = len(entries)
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
                    self._topic, value, key, timestamp=timestamp, on_delivery=self._delivered
                )
            except Exception as error:
                self._drop(error)
        producer.flush()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.shipped += 1
        else:
            self._drop(error)

    def flush(self) -> None:
        """Wait until what was logged so far has been sent, for `close_timeout` seconds at most."""
        if self._pid != os.getpid() or threading.current_thread() is self._thread:
            return
        end = time.monotonic() + self._close_timeout
        with self._changed:
            while self._queue or self._sending:
                left = end - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def close(self) -> None:
        """Send what waits, for `close_timeout` seconds at most, and stop."""
        if self._pid == os.getpid() and not self._closing:
            self.flush()
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(self._close_timeout)
        super().close()


_PLAIN = logging.Formatter()
