"""The clients that a process keeps for one log: admin, readers, producers.

Clients of librdkafka have threads, so they do not survive a fork, and must not even be let go of
in the child. After a fork the child's copy of a connection starts without clients; those of the
parent are kept in `_LEFT_BEHIND` until the process ends, and so are clients that hang. What the
parent has let go of and not collected yet, the child never collects.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.log.errors import LogBusy, LogUnavailable
from penstock.log.kafka.client.errors import config_error, error_of, kept_out, no_answer, translated
from penstock.log.kafka.client.settings import ClientSettings

T = TypeVar("T")

_PAUSE_S = 0.02
_REQUEST_S = 3.0
_LEFT_BEHIND: list[object] = []
_LIVE: weakref.WeakSet[Connection] = weakref.WeakSet()


class Closable(Protocol):
    """What is closed with the log."""

    def close(self) -> None:
        """Let go."""


class Connection:
    """The clients of one log in one process, made when they are first needed."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.timeout = settings.options.timeout_s
        #: A question is asked again after this time: librdkafka may wait for a broker that is gone
        #: while others would answer.
        self.request_timeout = min(self.timeout, _REQUEST_S)
        #: Set by every commit of this handle, and by `wake`.
        self.changed = threading.Event()
        self._closed = False
        self._begin()
        _LIVE.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._admin: AdminClient | None = None
        self._parts: dict[str, Any] = {}
        self._open: list[Closable] = []
        #: What the admin client last heard that was wrong; None after an answer.
        self._trouble: KafkaError | None = None
        self._was_answered = False

    def after_fork(self) -> None:
        """Start anew in a child; called by the fork itself."""
        _LEFT_BEHIND.append((self._admin, self._parts, self._open))
        self._begin()
        self.changed = threading.Event()

    def check_open(self) -> None:
        """Raise if the log was closed."""
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
                self._admin = made(lambda: AdminClient(settings))
            return self._admin

    def _on_error(self, error: KafkaError) -> None:
        # That all brokers are down is told after the reason, and is none.
        if self._trouble is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def part(self, name: str, make: Callable[[], T]) -> T:
        """Something of this process that is made once."""
        self.check_open()
        with self._lock:
            if name not in self._parts:
                self._parts[name] = make()
            found: T = self._parts[name]
            return found

    def opened(self, what: Closable) -> None:
        """Close this with the log."""
        with self._lock:
            self._open.append(what)

    def ask(self, request: Callable[[], Future[T]], what: str, name: str = "") -> T:
        """What a request is answered; made again while a leader or a coordinator moves."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return self.answer(request(), what, name)
            except LogBusy:
                if time.monotonic() > deadline:
                    raise
                self.look_around()

    def look_around(self) -> None:
        """After a refusal: wait a moment, and hear who leads and who controls by now.

        A client that follows no topics would otherwise ask the wrong broker for minutes.
        """
        time.sleep(_PAUSE_S)
        with contextlib.suppress(KafkaException):
            self.admin.list_topics(timeout=self.request_timeout)

    def answer(self, future: Future[T], what: str, name: str = "") -> T:
        """What a request was answered, or the contract's error."""
        try:
            found = future.result(self.timeout + 5)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() in {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}:
                if self._is_kept_out():
                    raise self.unavailable(what) from raised
                # The broker that was asked is gone; another one may answer.
                raise LogBusy(str(self.unavailable(what))) from raised
            raise translated(error, what, name) from raised
        except FutureTimeout as raised:
            raise self.unavailable(what) from raised
        self._trouble, self._was_answered = None, True
        return found

    def _heard(self) -> KafkaError | None:
        """What is wrong, as far as the admin client has heard; it tells only who asks."""
        if self._admin is not None:
            self._admin.poll(0)
        return self._trouble

    def _is_kept_out(self) -> bool:
        """Whether the brokers are there and have never let this process in: waiting is no use."""
        return not self._was_answered and bool(kept_out(self._heard()))

    def unavailable(self, what: str) -> LogUnavailable:
        """The error of a cluster that does not answer."""
        return LogUnavailable(no_answer(self.settings.servers, self.timeout, what, self._heard()))

    def close(self) -> None:
        """Close what was opened."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            parts: Iterable[Any] = list(self._parts.values())
            opened, self._open, self._parts, self._admin = self._open, [], {}, None
        for one in [*opened, *parts]:
            close = getattr(one, "close", None)
            if close is not None:
                close()


def leave_behind(client: object) -> None:
    """Never touch a client again, and never let go of it: that would wait for it for ever."""
    _LEFT_BEHIND.append(client)


def made(make: Callable[[], T]) -> T:
    """A client; `ConfigException` if librdkafka does not take its settings."""
    try:
        return make()
    except KafkaException as raised:
        raise config_error(raised) from raised


def _after_fork() -> None:
    gc.freeze()
    for connection in list(_LIVE):
        connection.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
