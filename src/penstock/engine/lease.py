"""One instance of an application runs, the others stand by: who holds the lease is the one.

The lease is named like the application. Its holder renews it from a thread of its own, so that a
long batch does not look like death; those who stand by try to take it again and again. The log
fences a holder that has lost it, whatever the holder believes: nothing here is needed for
correctness, only for taking over soon and for telling people who runs.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable

from penstock.config import StreamsConfig
from penstock.errors import ConfigException
from penstock.log.base import Candidate, Lease, Log
from penstock.log.errors import Fenced, LogError, LogUnavailable

log = logging.getLogger(__name__)

#: A holder that gives no sign for so long is taken for dead.
DEFAULT_TIMEOUT_MS = 6_000
#: Kafka's name for that time, with the prefixes under which it may be given; the first one wins.
TIMEOUT_SETTINGS = tuple(
    f"{prefix}session.timeout.ms" for prefix in ("main.consumer.", "consumer.", "")
)
#: How often one who stands by looks whether the lease is free, at the least.
LONGEST_PAUSE_S = 0.25


def lease_name(application_id: str) -> str:
    """The name of an application's lease."""
    return application_id


def lease_timeout_ms(config: StreamsConfig) -> int:
    """After which silence a holder is taken for dead: `session.timeout.ms`."""
    for name in TIMEOUT_SETTINGS:
        if name in config.extra:
            try:
                timeout = int(config.extra[name])
            except (TypeError, ValueError):
                timeout = 0
            if timeout < 1:
                raise ConfigException(
                    f"{name} must be a number of milliseconds, not {config.extra[name]!r}."
                )
            return timeout
    return DEFAULT_TIMEOUT_MS


def instance_name(config: StreamsConfig) -> str:
    """What others are told of this process when it holds the lease."""
    who = f"{socket.gethostname()}, process {os.getpid()}"
    return f"{config.client_id} ({who})" if config.client_id else who


def create_candidate(source: Log, config: StreamsConfig) -> Candidate:
    """One who wants the lease of the application, in this process."""
    return source.candidate(
        lease_name(config.application_id), holder=instance_name(config),
        timeout_ms=lease_timeout_ms(config),
    )


class HeldLease:
    """A lease that was taken, and the thread that renews it until it is given up or lost."""

    def __init__(
        self, lease: Lease, timeout_ms: int, on_lost: Callable[[], object] = lambda: None
    ) -> None:
        self.lease = lease
        #: Another instance has the lease; never taken back.
        self.is_lost = False
        self._on_lost = on_lost
        # However long the others wait: who asks whether it lives need not know for how long.
        self._interval = min(timeout_ms, DEFAULT_TIMEOUT_MS) / 3000
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._renew, name=f"penstock-lease-{lease.name}", daemon=True
        )
        self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self.lease.renew()
            except Fenced as lost:
                self.is_lost = True
                log.warning("%s", lost)
                self._on_lost()
                return
            except LogError as trouble:
                # The log may come back before anybody else takes the lease.
                log.warning("The lease '%s' could not be renewed: %s", self.lease.name, trouble)

    def is_lost_by_now(self) -> bool:
        """Ask the log; True only if another instance has taken it."""
        try:
            self.lease.renew()
        except Fenced:
            self.is_lost = True
        except LogError as trouble:
            log.warning("The lease '%s' could not be renewed: %s", self.lease.name, trouble)
        return self.is_lost

    def release(self) -> None:
        """Give it up: the next one need not wait for the timeout."""
        self.forget()
        try:
            self.lease.release()
        except LogError as trouble:
            log.warning("The lease '%s' could not be released: %s", self.lease.name, trouble)

    def forget(self) -> None:
        """Renew it no longer, and leave it to the others to notice."""
        self._ended.set()
        self._thread.join()


def take_lease(
    candidate: Candidate, timeout_ms: int, *, ended: threading.Event,
    on_wait: Callable[[str], object] = lambda holder: None,
    on_try: Callable[[], object] = lambda: None,
) -> Lease | None:
    """Wait until the lease is this instance's; None if it was `ended` before.

    `on_wait` is told who holds it, whenever that is somebody else than before; `on_try` is called
    before each look.
    """
    pause = min(LONGEST_PAUSE_S, timeout_ms / 3000)
    waits_for: str | None = None
    while not ended.is_set():
        try:
            on_try()
            lease = candidate.try_acquire()
        except Fenced as lost:
            log.warning("The lease was lost before it could be used: %s", lost)
            lease = None
        except LogUnavailable as trouble:
            # Whoever keeps the log busy may be the one that is waited for, standing still; and
            # brokers that are away come back.
            if not trouble.may_pass:
                raise
            log.warning("The lease is waited for all the same: %s", trouble)
            lease = None
        if lease is not None:
            return lease
        holder = candidate.holder or "another instance"
        if holder != waits_for:
            waits_for = holder
            on_wait(holder)
        ended.wait(pause)
    return None
