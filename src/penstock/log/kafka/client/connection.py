"""The connection of a log to its cluster: the admin client, requests, and all other clients.

Clients of librdkafka have threads. They do not survive a fork, and the child must not even
deallocate them. After a fork the child's copy of a connection starts without clients; those of the
parent stay in `_ABANDONED` until the process ends, and so do clients that hang. The child also
never collects garbage that the parent left before the fork.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.log.errors import LogBusy, LogUnavailable
from penstock.log.kafka.client.errors import (
    access_advice,
    config_error,
    error_of,
    translate,
    unavailable_message,
)
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.client.settings import ClientSettings

T = TypeVar("T")

_PAUSE_S = 0.02
_REQUEST_S = 3.0
#: A future is waited for this much longer than its request may take.
_FUTURE_GRACE_S = 5.0
_ABANDONED: list[object] = []
_LIVE: weakref.WeakSet[Connection] = weakref.WeakSet()


class Closable(Protocol):
    """A client that is closed with the log."""

    def close(self) -> None:
        """Close it."""


class Connection:
    """The clients of one log in one process, created on first use."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        #: How long an operation may take in all, in seconds.
        self.timeout = settings.options.timeout_s
        #: How long one request may take before it is sent again: librdkafka may wait for a dead
        #: broker while others would respond.
        self.request_timeout = min(self.timeout, _REQUEST_S)
        #: Set by every commit of this handle, and by `Log.wake`.
        self.changed = threading.Event()
        self._closed = False
        self._reset()
        _LIVE.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._admin: AdminClient | None = None
        self._shared: dict[str, Any] = {}
        self._closables: list[Closable] = []
        #: The last error that the admin client reported; None after a response.
        self._last_error: KafkaError | None = None
        self._has_responded = False

    def after_fork(self) -> None:
        """Start without clients, in the child of a fork."""
        _ABANDONED.append((self._admin, self._shared, self._closables))
        self._reset()
        self.changed = threading.Event()

    def check_open(self) -> None:
        """Raise if the log is closed."""
        if self._closed:
            raise LogUnavailable("The log is closed. Open it again.")

    @property
    def admin(self) -> AdminClient:
        """The client for topics, offsets and groups."""
        self.check_open()
        with self._lock:
            if self._admin is None:
                settings: dict[str, Any] = {
                    **self.settings.admin(), "error_cb": self._on_error
                }
                self._admin = create_client(lambda: AdminClient(settings))
            return self._admin

    def _on_error(self, error: KafkaError) -> None:
        # _ALL_BROKERS_DOWN follows the actual reason. Keep the reason.
        if self._last_error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def shared(self, name: str, create: Callable[[], T]) -> T:
        """Return the client of this name, created once per process and closed with the log."""
        self.check_open()
        with self._lock:
            if name not in self._shared:
                self._shared[name] = create()
            found: T = self._shared[name]
            return found

    def close_later(self, client: Closable) -> None:
        """Close a client with the log."""
        with self._lock:
            self._closables.append(client)

    def forget(self, client: Closable) -> None:
        """Do not close a client with the log: its owner has closed it."""
        with self._lock:
            self._closables = [one for one in self._closables if one is not client]

    def request(self, send: Callable[[], Future[T]], what: str, name: str = "") -> T:
        """Send a request, and again while a leader or a coordinator moves.

        `what` is the sentence of an error message, `name` the topic or the group.
        """
        retry = Retry(self.timeout, _PAUSE_S)
        while True:
            try:
                return self.result(send(), what, name)
            except LogBusy as error:
                self.wait_and_refresh(retry, error)

    def wait_and_refresh(self, retry: Retry, error: Exception) -> None:
        """Pause before the next attempt, and update the metadata of the admin client.

        A client that follows no topics would send requests to the wrong broker for minutes.
        """
        retry.wait_or_raise(error)
        with contextlib.suppress(KafkaException):
            self.admin.list_topics(timeout=self.request_timeout)

    def result(self, future: Future[T], what: str, name: str = "") -> T:
        """Return the result of a request, or raise the contract's error."""
        try:
            found = future.result(self.timeout + _FUTURE_GRACE_S)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() in {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}:
                if self._is_rejected():
                    raise self.unavailable(what) from raised
                # This broker is gone; another one may respond.
                raise LogBusy(str(self.unavailable(what))) from raised
            raise translate(error, what, name) from raised
        except FutureTimeout as raised:
            raise self.unavailable(what) from raised
        self._last_error, self._has_responded = None, True
        return found

    def _poll_last_error(self) -> KafkaError | None:
        """Return the last error of the admin client, which reports errors only when polled."""
        if self._admin is not None:
            self._admin.poll(0)
        return self._last_error

    def _is_rejected(self) -> bool:
        """Whether the brokers have never accepted this client, so that retries are useless."""
        return not self._has_responded and bool(access_advice(self._poll_last_error()))

    def unavailable(self, what: str) -> LogUnavailable:
        """Return the error of a cluster that does not respond."""
        return LogUnavailable(unavailable_message(
            self.settings.servers, self.timeout, what, self._poll_last_error()
        ))

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            shared: Iterable[Any] = list(self._shared.values())
            closables, self._closables = self._closables, []
            self._shared, self._admin = {}, None
        for client in [*closables, *shared]:
            close = getattr(client, "close", None)
            if close is not None:
                close()


def abandon(client: object) -> None:
    """Keep a hanging client until the process ends: deallocating it would never return."""
    _ABANDONED.append(client)


def create_client(create: Callable[[], T]) -> T:
    """Create a client; `ConfigException` if librdkafka rejects its settings."""
    try:
        return create()
    except KafkaException as raised:
        raise config_error(raised) from raised


def _after_fork() -> None:
    gc.freeze()
    for connection in list(_LIVE):
        connection.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
