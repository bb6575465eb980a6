"""The thread of an instance: acquires the lease, runs batches while it holds it, and shuts down.

    wait for the lease ─► open the engine ─► batch, batch, wait, batch ... ─► close the engine
         ▲                     ▲                       │
         │                     ├── LogUnavailable ─────┤ resume from what the log holds
         │                     └── REPLACE_THREAD ─────┤ the exception handler's choice
         └──────────────────────── Fenced ─────────────┤ another instance has the lease
                                                       └── SHUTDOWN_*: end in ERROR
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.clock import wall_clock_ms
from penstock.config import StreamsConfig
from penstock.engine.catch_up import CatchUpTracker, InputProgress
from penstock.engine.commit_log import CommitLog
from penstock.engine.exception_handler import (
    ShutdownMonitor,
    ShutdownRequest,
    StreamThreadExceptionResponse,
    UncaughtExceptionHandler,
    call_handler,
    request_shutdown,
    shut_down_client,
)
from penstock.engine.lease import (
    HeldLease,
    create_candidate,
    instance_name,
    lease_timeout_ms,
    wait_for_lease,
)
from penstock.engine.lifecycle import LifeCycle, State
from penstock.errors import RetryRequestedException, StreamsException
from penstock.log.base import Candidate, Lease, Log
from penstock.log.errors import Fenced, LogBusy, LogError, LogUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from penstock.engine.batch_report import BatchReport

log = logging.getLogger(__name__)

#: The longest wait for input. `_wake` interrupts it.
LONGEST_WAIT_S = 1.0
#: The pause between a failure and the next attempt. It doubles with each failure.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 5.0


def thread_name(config: StreamsConfig, number: int = 1) -> str:
    """Return the name of a thread in metrics and metadata."""
    return f"{config.client_id or config.application_id}-StreamThread-{number}"


class BatchRunner(InputProgress, Protocol):
    """The part of an `Engine` that the thread uses."""

    def run_batch(self) -> BatchReport | None:
        """Run one batch. Return None if there is nothing to do."""
        ...

    def wait(self, timeout: float) -> object:
        """Wait until there may be something to do, for at most `timeout` seconds."""
        ...

    def seconds_until_due(self, at_most: float) -> float:
        """Return the seconds until a batch is due even without input, but at most so many."""
        ...

    def wake(self) -> None:
        """End the current `wait`. Any thread may call it."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the stores of all tasks are restored, so that the application is RUNNING."""
        ...

    def set_paused(self, paused: bool) -> None:
        """Pause or resume what runs between the calls of `run_batch`."""
        ...

    def set_awaited(self, awaited: bool) -> None:
        """Note whether a caller waits until the input is processed."""
        ...

    def cancel(self) -> None:
        """Cancel the running batch. Nothing of it is committed."""
        ...

    def close(self) -> None:
        """Release the resources."""
        ...


class ShutdownRequested(StreamsException):
    """Another instance has requested that all instances of the application stop."""


@dataclass(slots=True)
class ThreadCallbacks:
    """The functions that the thread calls. Set before it starts."""

    exception_handler: UncaughtExceptionHandler = shut_down_client
    on_batch: Callable[[BatchReport], object] = lambda report: None
    #: A batch has failed: its error, and when it began, in nanoseconds since the epoch.
    on_failure: Callable[[Exception, int], object] = lambda error, began_ns: None
    #: Another instance runs the application: called with its name.
    on_standby: Callable[[str], object] = lambda holder: None
    #: Called before each attempt to acquire the lease. An exception ends the instance.
    before_attempt: Callable[[], object] = lambda: None
    #: Nothing runs any more: releases what is left.
    on_end: Callable[[], object] = lambda: None


class StreamThread:
    """Runs one instance. Holds no durable state: the log has all that is committed.

    Only the thread itself writes the fields, except the events, which any thread may set.
    """

    def __init__(
        self, config: StreamsConfig, source: Log, lifecycle: LifeCycle,
        open_engine: Callable[[Log, Lease], BatchRunner], callbacks: ThreadCallbacks,
    ) -> None:
        self.name = thread_name(config)
        #: The exception that ended the instance, if it ended with an error.
        self.failure: BaseException | None = None
        #: How often the exception handler chose REPLACE_THREAD.
        self.replacements = 0
        #: The time of `start`, or None before it.
        self.started_ms: int | None = None
        #: The engine while this instance runs the application, otherwise None.
        self.engine: BatchRunner | None = None
        #: The lease while this instance holds it, otherwise None.
        self._held: HeldLease | None = None
        #: The name of the instance that runs the application, while this one is a standby.
        self.waits_for: str | None = None
        #: Set by `stop`.
        self.leaves_group = True
        #: The progress of callers that wait for the input to be processed.
        self.catch_up = CatchUpTracker()
        self._commit_log = CommitLog()
        #: When the last batch or round began, in nanoseconds since the epoch.
        self._began_ns = time.time_ns()
        self._config = config
        self._log = source
        self._lifecycle = lifecycle
        self._open_engine = open_engine
        self._callbacks = callbacks
        self._stopped = threading.Event()
        self._cancelled = threading.Event()
        self._reopen_requested = threading.Event()
        self._resumed = threading.Event()
        self._resumed.set()
        #: Interrupts the pause between two batches.
        self._woken = threading.Event()
        #: When the log became unavailable (monotonic); None while it is available.
        self._unavailable_since: float | None = None
        self._shutdown_monitor: ShutdownMonitor | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    # ---- control, from any thread ------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Called once."""
        self.started_ms = wall_clock_ms()
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    @property
    def has_lease(self) -> bool:
        """Whether this instance holds the lease, and no other can have taken it."""
        held = self._held
        return held is not None and held.is_current

    @property
    def is_paused(self) -> bool:
        """Whether no batches run until `resume`."""
        return not self._resumed.is_set()

    def pause(self) -> None:
        """Run no more batches after the current one. The instance keeps the lease."""
        self._resumed.clear()

    def resume(self) -> None:
        """Run batches again."""
        self._resumed.set()
        self._wake()

    def reopen(self) -> None:
        """Reopen the engine before the next batch, because its configuration has changed."""
        self._reopen_requested.set()
        self._wake()

    def stop(self, *, leave_group: bool = True) -> None:
        """Stop after the current batch. Returns at once."""
        self.leaves_group = leave_group
        self._stopped.set()
        self._resumed.set()
        self._wake()

    def _wake(self) -> None:
        self._woken.set()
        engine = self.engine
        if engine is None:
            self._log.wake()
        else:
            engine.wake()

    def cancel(self) -> None:
        """Cancel the running batch, after `stop`. Nothing of it is committed. Returns at once."""
        self._cancelled.set()
        engine = self.engine
        if engine is not None:
            engine.cancel()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, for example as a state listener."""
        return threading.current_thread() is self._thread

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread.

        Return False after `timeout` seconds, in the thread itself, and before it was started.
        """
        if self.is_current or self._thread.ident is None:
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait_until_caught_up(self, timeout: float | None = None) -> bool:
        """Wait until the current content of the source topics is processed.

        Return False after `timeout` seconds, or if the thread ends before.
        """
        return self.catch_up.wait(
            timeout, wake=self._wake, has_ended=lambda: self._lifecycle.state.has_ended
        )

    # ---- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._run_until_stopped()
        except BaseException as error:
            self._fail(error)
        finally:
            for release in (self._commit_log.close, self._callbacks.on_end, self._log.close):
                try:
                    release()
                except Exception:
                    log.exception("A resource could not be released.")
            failed = self._lifecycle.state is State.PENDING_ERROR
            if not failed:
                self._lifecycle.try_transition_to(State.PENDING_SHUTDOWN)
            self._lifecycle.try_transition_to(State.ERROR if failed else State.NOT_RUNNING)
            self.catch_up.wake_all()

    def _run_until_stopped(self) -> None:
        candidate = create_candidate(self._log, self._config)
        while not self._stopped.is_set():
            self._lifecycle.try_transition_to(State.REBALANCING)
            held = self._acquire_lease(candidate)
            if held is None:
                return
            self._held = held
            try:
                self._run_with_lease(held)
            except Fenced as lost:
                log.warning("%s This instance becomes a standby.", lost)
            finally:
                self._held = None
                if self.leaves_group:
                    held.release()
                else:
                    held.abandon()

    def _acquire_lease(self, candidate: Candidate) -> HeldLease | None:
        timeout_ms = lease_timeout_ms(self._config)
        while True:
            lease = wait_for_lease(
                candidate, timeout_ms, stopped=self._stopped, on_standby=self._become_standby,
                before_attempt=self._check_shutdown_request,
            )
            if lease is None:
                return None
            held = HeldLease(lease, timeout_ms, on_lost=self._wake)
            try:
                # The last holder may have requested a shutdown after the previous check.
                self._check_shutdown_request()
            except BaseException as error:
                held.release()
                if not (isinstance(error, LogUnavailable) and error.may_pass):
                    raise
                log.warning("The lease is released and requested again: %s", error)
                self._stopped.wait(FIRST_PAUSE_S)
                continue
            self.waits_for = None
            log.info(
                "This instance runs application '%s' (epoch %d).", lease.name, lease.epoch
            )
            return held

    def _check_shutdown_request(self) -> None:
        """Raise if another instance has requested that all instances stop."""
        self._callbacks.before_attempt()
        if self._shutdown_monitor is None:
            self._shutdown_monitor = ShutdownMonitor(self._log, self._config.application_id)
        request = self._shutdown_monitor.poll()
        if request is not None:
            raise ShutdownRequested(
                f"Instance {request.instance} requested that all instances of "
                f"'{self._config.application_id}' stop: {request.reason}"
            )

    def _become_standby(self, holder: str) -> None:
        self.waits_for = holder
        log.info(
            "Application '%s' is run by %s. This instance is a standby and takes over when that "
            "one ends.", self._config.application_id, holder,
        )
        try:
            self._callbacks.on_standby(holder)
        except Exception:
            log.exception("on_standby failed; the instance remains a standby.")

    def _run_with_lease(self, held: HeldLease) -> None:
        """Run the application until it is stopped, or until the lease is lost."""
        pause = FIRST_PAUSE_S
        self._unavailable_since = None
        while not self._stopped.is_set() and not held.is_lost:
            rounds = self.catch_up.rounds
            try:
                self._run_engine(held)
            except Fenced:
                raise
            except Exception as error:
                if self._is_outage(error):
                    # A new engine reads its state from the log. A batch whose commit has an
                    # unknown outcome is either there or is processed again.
                    log.warning("%s The application resumes from what the log holds.", error)
                    pause = self._back_off(pause, rounds)
                    continue
                if self._cancelled.is_set():
                    log.info("The running batch was cancelled: %s", error)
                    break
                if held.check_lost():
                    # An error that another instance has caused is not a failure of this one.
                    log.info("A batch failed after the lease was lost: %s", error)
                    break
                response = self._handle_failure(error)
                if response is not StreamThreadExceptionResponse.REPLACE_THREAD:
                    raise
                self.replacements += 1
                pause = self._back_off(pause, rounds)
                self._lifecycle.try_transition_to(State.RUNNING, "the failed thread is replaced")
        if held.is_lost:
            raise Fenced(f"The lease '{held.lease.name}' is lost.")

    def _is_outage(self, error: Exception) -> bool:
        """Whether the log is unavailable, for no longer than `task.timeout.ms`."""
        if not isinstance(error, LogUnavailable):
            return False
        now = time.monotonic()
        if self._unavailable_since is None:
            self._unavailable_since = now
        is_within_timeout = now - self._unavailable_since < self._config.task_timeout_ms / 1000
        return isinstance(error, OutcomeUnknown) or (error.may_pass and is_within_timeout)

    def _back_off(self, pause: float, rounds: int) -> float:
        """Wait after a failure, and return the next pause.

        The pauses restart if a batch has succeeded since the round with the number `rounds`.
        """
        if self.catch_up.rounds > rounds + 1:
            pause = FIRST_PAUSE_S
        self._stopped.wait(pause)
        return min(pause * 2, LAST_PAUSE_S)

    def _run_engine(self, held: HeldLease) -> None:
        self._reopen_requested.clear()
        engine = self.engine = self._open_engine(self._log, held.lease)
        try:
            while not (
                self._stopped.is_set() or self._reopen_requested.is_set() or held.is_lost
            ):
                engine.set_paused(self.is_paused)
                engine.set_awaited(self.catch_up.is_awaited)
                if self.is_paused and not self._config.is_continuous:
                    self._resumed.wait(LONGEST_WAIT_S)
                    continue
                report = self._run_batch(engine)
                self._unavailable_since = None
                is_ready = engine.is_ready
                if is_ready:
                    self._lifecycle.try_transition_to(State.RUNNING, unless=(State.RUNNING,))
                if report is not None:
                    self._commit_log.add(report)
                    self._callbacks.on_batch(report)
                if is_ready:
                    # Callers that have caught up may query the stores.
                    self.catch_up.finish_round(engine, is_idle=report is None)
                if report is None:
                    engine.wait(LONGEST_WAIT_S)
                elif not report.lag:
                    self._wait_for_commit_interval(engine, report.seconds)
        finally:
            self.engine = None
            engine.close()

    def _wait_for_commit_interval(self, engine: BatchRunner, batch_seconds: float) -> None:
        """Wait for the rest of a configured commit interval, so that the next batch is larger."""
        interval_ms = self._config.commit_interval_ms
        if interval_ms and not self._stopped.is_set():
            remaining = max(0.0, interval_ms / 1000 - batch_seconds)
            self._woken.wait(engine.seconds_until_due(remaining))
            self._woken.clear()

    def _run_batch(self, engine: BatchRunner) -> BatchReport | None:
        """Run a batch. Retry for `task.timeout.ms` while other processes keep the log busy, or
        while the production exception handler requests it."""
        self.catch_up.start_round()
        self._began_ns = time.time_ns()
        deadline: float | None = None
        pause = FIRST_PAUSE_S
        while True:
            try:
                return engine.run_batch()
            except (LogBusy, RetryRequestedException) as busy:
                if isinstance(busy, RetryRequestedException) and self._config.is_continuous:
                    # Lanes have retried the task until its timeout.
                    raise
                now = time.monotonic()
                if deadline is None:
                    deadline = now + self._config.task_timeout_ms / 1000
                if now >= deadline or self._stopped.is_set():
                    raise
                log.warning("The batch is retried: %s", busy)
                self._stopped.wait(pause)
                pause = min(pause * 2, LAST_PAUSE_S)

    def _handle_failure(self, error: Exception) -> StreamThreadExceptionResponse:
        """Call the exception handler, and pass a shutdown on to the other instances."""
        self._callbacks.on_failure(error, self._began_ns)
        response = call_handler(self._callbacks.exception_handler, error)
        log.error(
            "Application '%s' failed (%s): %s: %s", self._config.application_id, response.value,
            type(error).__name__, error,
        )
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            request = ShutdownRequest(
                instance_name(self._config), f"{type(error).__name__}: {error}"
            )
            try:
                request_shutdown(self._log, self._config.application_id, request)
            except LogError as log_error:
                log.error("The other instances could not be asked to stop: %s", log_error)
        return response

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        reason = f"{type(error).__name__}: {error}"
        if not self._lifecycle.try_transition_to(State.PENDING_ERROR, reason):
            log.error("Error during shutdown: %s", reason)
