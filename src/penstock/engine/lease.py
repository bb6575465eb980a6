"""The lease of an application: one instance holds it and runs, the others are standbys.

The lease has the name of the application. The holder renews it from a separate thread, so that a
long batch does not look like a crash. Standbys retry until they acquire it. The log fences a holder
that has lost the lease, so correctness does not depend on this module: it makes failover quick
and reports which instance runs.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable

from penstock.config import StreamsConfig
from penstock.errors import ConfigException
from penstock.log.base import Candidate, Lease, Log
from penstock.log.errors import Fenced, LogError, LogUnavailable

log = logging.getLogger(__name__)

#: A holder that sends no heartbeat for this long is considered dead.
DEFAULT_TIMEOUT_MS = 6_000
#: Kafka's setting for it, with the accepted prefixes. The first one that is set wins.
TIMEOUT_SETTINGS = tuple(
    f"{prefix}session.timeout.ms" for prefix in ("main.consumer.", "consumer.", "")
)
#: The longest pause of a standby between two attempts to acquire the lease.
LONGEST_PAUSE_S = 0.25


def lease_name(application_id: str) -> str:
    """Return the name of an application's lease."""
    return application_id


def lease_timeout_ms(config: StreamsConfig) -> int:
    """Return `session.timeout.ms`: how long a silent holder keeps the lease."""
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
    """Return the name under which other instances see this process as the lease holder."""
    process = f"{socket.gethostname()}, process {os.getpid()}"
    return f"{config.client_id} ({process})" if config.client_id else process


def create_candidate(source: Log, config: StreamsConfig) -> Candidate:
    """Create the candidate with which this process competes for the lease."""
    return source.candidate(
        lease_name(config.application_id), holder=instance_name(config),
        timeout_ms=lease_timeout_ms(config),
    )


class HeldLease:
    """An acquired lease, and the thread that renews it until it is released or lost."""

    def __init__(
        self, lease: Lease, timeout_ms: int, on_lost: Callable[[], object] = lambda: None
    ) -> None:
        self.lease = lease
        #: Another instance has the lease. Never reset.
        self.is_lost = False
        self._on_lost = on_lost
        self._timeout_s = timeout_ms / 1000
        #: When the log last confirmed the lease (monotonic).
        self._confirmed_at = time.monotonic()
        # A process that checks the lease may use the default timeout, whatever is configured here.
        self._interval = min(timeout_ms, DEFAULT_TIMEOUT_MS) / 3000
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._renew_until_stopped, name=f"penstock-lease-{lease.name}", daemon=True
        )
        self._thread.start()

    def _renew_until_stopped(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self._renew()
            except Fenced as lost:
                self.is_lost = True
                log.warning("%s", lost)
                self._on_lost()
                return
            except LogError as error:
                # The log may recover before another instance takes the lease.
                log.warning("Lease '%s' could not be renewed: %s", self.lease.name, error)

    def _renew(self) -> None:
        started = time.monotonic()
        self.lease.renew()
        self._confirmed_at = started

    @property
    def is_current(self) -> bool:
        """Whether no other instance can have the lease: it was confirmed within the timeout."""
        return not self.is_lost and time.monotonic() - self._confirmed_at < self._timeout_s

    def check_lost(self) -> bool:
        """Ask the log and return True only if another instance has taken the lease."""
        try:
            self._renew()
        except Fenced:
            self.is_lost = True
        except LogError as error:
            log.warning("Lease '%s' could not be renewed: %s", self.lease.name, error)
        return self.is_lost

    def release(self) -> None:
        """Release the lease, so that a standby takes over without waiting for the timeout."""
        self.abandon()
        try:
            self.lease.release()
        except LogError as error:
            log.warning("Lease '%s' could not be released: %s", self.lease.name, error)

    def abandon(self) -> None:
        """Stop renewing. The lease expires after its timeout."""
        self._stopped.set()
        self._thread.join()


def wait_for_lease(
    candidate: Candidate, timeout_ms: int, *, stopped: threading.Event,
    on_standby: Callable[[str], object] = lambda holder: None,
    before_attempt: Callable[[], object] = lambda: None,
) -> Lease | None:
    """Wait until the candidate acquires the lease. Return None if `stopped` is set first.

    `on_standby` is called with the name of the holder whenever it changes. `before_attempt` is
    called before each attempt.
    """
    pause = min(LONGEST_PAUSE_S, timeout_ms / 3000)
    last_holder: str | None = None
    while not stopped.is_set():
        try:
            before_attempt()
            lease = candidate.try_acquire()
        except Fenced as lost:
            log.warning("The lease was lost before it was used: %s", lost)
            lease = None
        except LogUnavailable as error:
            # The log may be blocked by a holder that hangs, or its brokers may recover.
            if not error.may_pass:
                raise
            log.warning("The log is unavailable; still waiting for the lease: %s", error)
            lease = None
        if lease is not None:
            return lease
        holder = candidate.holder or "another instance"
        if holder != last_holder:
            last_holder = holder
            on_standby(holder)
        stopped.wait(pause)
    return None
