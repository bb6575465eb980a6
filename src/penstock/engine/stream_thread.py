"""The thread of an instance: it wants the lease, runs batches while it has it, and ends in order.

    want the lease ──► open the engine ──► batch, batch, wait, batch ... ──► close the engine
         ▲                  ▲                        │
         │                  ├── LogUnavailable ──────┤ it comes back, and is asked what has happened
         │                  └── REPLACE_THREAD ──────┤ a failure: the handler is asked
         └───────────────────── Fenced ──────────────┤
                                                     └── SHUTDOWN_*: the instance ends in ERROR
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.config import StreamsConfig
from penstock.engine.exception_handler import (
    StreamThreadExceptionResponse,
    UncaughtExceptionHandler,
    response_of,
    shut_down_client,
)
from penstock.engine.lease import (
    HeldLease,
    create_candidate,
    instance_name,
    lease_timeout_ms,
    take_lease,
)
from penstock.engine.lifecycle import LifeCycle, State
from penstock.engine.shutdown import ShutdownRequest, ShutdownWatch, request_shutdown
from penstock.errors import StreamsException
from penstock.log.base import Candidate, Lease, Log
from penstock.log.errors import Fenced, LogBusy, LogError, LogUnavailable, OutcomeUnknown
from penstock.log.types import TopicPartition

if TYPE_CHECKING:
    from penstock.engine.loop import BatchReport

log = logging.getLogger(__name__)

#: The longest wait for input; whoever wants to end the thread wakes it before.
LONGEST_WAIT_S = 1.0
#: Between a failure and the next try, if the handler wants one: doubled each time.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 5.0


def thread_name(config: StreamsConfig, number: int = 1) -> str:
    """A thread as metrics and metadata name it."""
    return f"{config.client_id or config.application_id}-StreamThread-{number}"


class BatchRunner(Protocol):
    """What the thread needs of an `Engine`."""

    def run_batch(self) -> BatchReport | None:
        """One batch; None if there is nothing to do."""
        ...

    def wait(self, timeout: float) -> object:
        """Until there may be something to do, or the seconds have passed."""
        ...

    def due_within(self, seconds: float) -> float:
        """The seconds until something is to be done even without input, if they are fewer."""
        ...

    @property
    def holds_back(self) -> bool:
        """Whether there is input which waits for other input."""
        ...

    def ends(self) -> Mapping[TopicPartition, int] | None:
        """Where the input ended when the last batch was planned; None if that says nothing."""
        ...

    def is_behind(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether some input before these offsets is not processed yet."""
        ...

    def cancel(self) -> None:
        """Give up the running batch: nothing of it happens."""
        ...

    def close(self) -> None:
        """No more batches."""
        ...


class ShutdownRequested(StreamsException):
    """Another instance has asked all instances of the application to end."""


@dataclass(slots=True)
class ThreadCallbacks:
    """What others want to hear of the thread; set before it starts."""

    uncaught: UncaughtExceptionHandler = shut_down_client
    on_batch: Callable[[BatchReport], object] = lambda report: None
    #: Another instance runs: told who it is.
    on_standby: Callable[[str], object] = lambda holder: None
    #: About to see whether the lease is free; what it raises ends the instance.
    on_look: Callable[[], object] = lambda: None
    #: Nothing runs any more; what is left is to be put away.
    on_end: Callable[[], object] = lambda: None


@dataclass(slots=True)
class _CatchUpWaiter:
    """Somebody waits until all that was there at a moment is processed."""

    #: The round that was under way at that moment: it may have looked at the log before.
    since: int
    #: Where the input ended; None until that is known.
    ends: Mapping[TopicPartition, int] | None = None
    is_reached: bool = False


class StreamThread:
    """One instance at work. It is the truth about nothing: what is committed is in the log.

    Everything here is written by the thread itself but for the events, which others set.
    """

    def __init__(
        self, config: StreamsConfig, source: Log, life: LifeCycle,
        open_engine: Callable[[Log, Lease], BatchRunner], hooks: ThreadCallbacks,
    ) -> None:
        self.name = thread_name(config)
        #: What ended the instance, if it did not end well.
        self.failure: BaseException | None = None
        #: How often the handler wanted to begin anew.
        self.replaced = 0
        #: The engine while this instance runs the application, None while it does not.
        self.engine: BatchRunner | None = None
        #: Who runs the application instead; None if nobody does, or this instance.
        self.waits_for: str | None = None
        #: Set by `end`.
        self.leaves_group = True
        self._config = config
        self._log = source
        self._life = life
        self._open_engine = open_engine
        self._hooks = hooks
        self._ended = threading.Event()
        self._cancelled = threading.Event()
        self._reopens = threading.Event()
        self._resumed = threading.Event()
        self._resumed.set()
        #: Ends a rest between two batches.
        self._stirred = threading.Event()
        #: How many times the engine was asked for a batch.
        self._rounds = 0
        self._goals: list[_CatchUpWaiter] = []
        self._progress = threading.Condition()
        #: Since when the log is away; None: it was there when it was last asked.
        self._away_since: float | None = None
        self._watch: ShutdownWatch | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    # ---- for others --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin. Called once."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """It still works, or has something to put away."""
        return self._thread.is_alive()

    @property
    def is_paused(self) -> bool:
        """It runs no batches until it is told to go on."""
        return not self._resumed.is_set()

    def pause(self) -> None:
        """No more batches after the running one; the lease is kept."""
        self._resumed.clear()

    def resume(self) -> None:
        """Go on."""
        self._resumed.set()
        self._stir()

    def reopen(self) -> None:
        """Open the engine anew before the next batch: what it is opened with has changed."""
        self._reopens.set()
        self._stir()

    def end(self, *, leave_group: bool = True) -> None:
        """Finish the running batch and stop; returns at once."""
        self.leaves_group = leave_group
        self._ended.set()
        self._resumed.set()
        self._stir()

    def _stir(self) -> None:
        """Something is to be seen to at once."""
        self._stirred.set()
        self._log.wake()

    def cancel(self) -> None:
        """Give up the running batch, after `end`: nothing of it happens. Returns at once."""
        self._cancelled.set()
        engine = self.engine
        if engine is not None:
            engine.cancel()

    @property
    def is_this_thread(self) -> bool:
        """Whether the caller is the thread: a listener of the application, say."""
        return threading.current_thread() is self._thread

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; False if the seconds have passed, or this is the thread itself, or is
        about to start it."""
        if self.is_this_thread or self._thread.ident is None:
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait_until_caught_up(self, timeout: float | None = None) -> bool:
        """Wait until all that is in the source topics now has been processed; False if it never
        was. The end of the thread ends the waiting, too."""
        with self._progress:
            goal = _CatchUpWaiter(self._rounds)
            self._goals.append(goal)
            self._stir()
            self._progress.wait_for(
                lambda: goal.is_reached or self._life.state.has_ended, timeout
            )
            self._goals.remove(goal)
            return goal.is_reached

    # ---- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._want_and_lead()
        except BaseException as error:
            self._fail(error)
        finally:
            for put_away in (self._hooks.on_end, self._log.close):
                try:
                    put_away()
                except Exception:
                    log.exception("Something could not be put away.")
            state = State.ERROR if self._life.state is State.PENDING_ERROR else State.NOT_RUNNING
            if self._life.state is not State.PENDING_ERROR:
                self._life.try_to(State.PENDING_SHUTDOWN)
            self._life.try_to(state)
            with self._progress:
                self._progress.notify_all()

    def _want_and_lead(self) -> None:
        candidate = create_candidate(self._log, self._config)
        while not self._ended.is_set():
            self._life.try_to(State.REBALANCING)
            held = self._take_lease(candidate)
            if held is None:
                return
            try:
                self._lead(held)
            except Fenced as lost:
                log.warning("%s This instance stands by.", lost)
            finally:
                if self.leaves_group:
                    held.release()
                else:
                    held.forget()

    def _take_lease(self, candidate: Candidate) -> HeldLease | None:
        timeout_ms = lease_timeout_ms(self._config)
        while True:
            lease = take_lease(
                candidate, timeout_ms, ended=self._ended, on_wait=self._stand_by,
                on_try=self._obey,
            )
            if lease is None:
                return None
            held = HeldLease(lease, timeout_ms, on_lost=self._stir)
            try:
                # The holder may have asked, and given up the lease, between the last two looks.
                self._obey()
            except BaseException as error:
                held.release()
                if not (isinstance(error, LogUnavailable) and error.may_pass):
                    raise
                log.warning("The lease is given up, and waited for again: %s", error)
                self._ended.wait(FIRST_PAUSE_S)
                continue
            self.waits_for = None
            log.info(
                "This instance runs application '%s' (epoch %d).", lease.name, lease.epoch
            )
            return held

    def _obey(self) -> None:
        """End if another instance has asked all of them to."""
        self._hooks.on_look()
        if self._watch is None:
            self._watch = ShutdownWatch(self._log, self._config.application_id)
        request = self._watch.asked()
        if request is not None:
            raise ShutdownRequested(
                f"Instance {request.instance} has asked all instances of "
                f"'{self._config.application_id}' to end: {request.reason}"
            )

    def _stand_by(self, holder: str) -> None:
        self.waits_for = holder
        log.info(
            "Application '%s' is run by %s. This instance stands by and takes over when that ends.",
            self._config.application_id, holder,
        )
        try:
            self._hooks.on_standby(holder)
        except Exception:
            log.exception("on_standby failed; the instance stands by all the same.")

    def _lead(self, held: HeldLease) -> None:
        """Run the application until the end, or until the lease is lost."""
        pause = FIRST_PAUSE_S
        self._away_since = None
        while not self._ended.is_set() and not held.is_lost:
            rounds = self._rounds
            try:
                self._run_engine(held)
            except Fenced:
                raise
            except Exception as error:
                if self._is_outage(error):
                    # A new engine asks the log for everything: a batch whose commit has no answer
                    # is there, or is made again.
                    log.warning("%s The application goes on from what the log holds.", error)
                    pause = self._pause(pause, rounds)
                    continue
                if self._cancelled.is_set():
                    log.info("The running batch was given up: %s", error)
                    break
                if held.is_lost_by_now():
                    # What goes wrong in the shadow of another instance is no failure.
                    log.info("A batch ended without the lease: %s", error)
                    break
                if self._response(error) is not StreamThreadExceptionResponse.REPLACE_THREAD:
                    raise
                self.replaced += 1
                pause = self._pause(pause, rounds)
                self._life.try_to(State.RUNNING, "the failed thread is replaced")
        if held.is_lost:
            raise Fenced(f"The lease '{held.lease.name}' is lost.")

    def _is_outage(self, error: Exception) -> bool:
        """Whether the log is away, and not yet for longer than `task.timeout.ms`."""
        if not isinstance(error, LogUnavailable):
            return False
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        is_patient = now - self._away_since < self._config.task_timeout_ms / 1000
        return isinstance(error, OutcomeUnknown) or (error.may_pass and is_patient)

    def _pause(self, pause: float, rounds: int) -> float:
        """Rest after a failure; answers how long to rest after the next one, if no batch went well
        since the round with that number."""
        if self._rounds > rounds + 1:
            pause = FIRST_PAUSE_S
        self._ended.wait(pause)
        return min(pause * 2, LAST_PAUSE_S)

    def _run_engine(self, held: HeldLease) -> None:
        self._reopens.clear()
        engine = self.engine = self._open_engine(self._log, held.lease)
        try:
            while not (self._ended.is_set() or self._reopens.is_set() or held.is_lost):
                if self.is_paused:
                    self._resumed.wait(LONGEST_WAIT_S)
                    continue
                report = self._run_batch(engine)
                self._away_since = None
                # The first batch fills the stores of all tasks, with or without input.
                self._life.try_to(State.RUNNING, unless=(State.RUNNING,))
                if report is not None:
                    self._hooks.on_batch(report)
                self._tell_progress(engine, is_idle=report is None)
                if report is None:
                    engine.wait(LONGEST_WAIT_S)
                elif not report.lag:
                    self._rest(engine, report.seconds)
        finally:
            self.engine = None
            engine.close()

    def _tell_progress(self, engine: BatchRunner, *, is_idle: bool) -> None:
        """A round is over; those who wait may have got what they wait for."""
        with self._progress:
            for goal in self._goals:
                if self._rounds <= goal.since:
                    continue
                if goal.ends is None:
                    goal.ends = engine.ends()
                if goal.ends is not None:
                    goal.is_reached = not engine.is_behind(goal.ends)
                if is_idle and not engine.holds_back:
                    goal.is_reached = True
            self._progress.notify_all()

    def _rest(self, engine: BatchRunner, seconds: float) -> None:
        """Let the commit interval pass, if one was chosen: then a batch holds more."""
        interval_ms = self._config.commit_interval_ms
        if interval_ms and not self._ended.is_set():
            left = max(0.0, interval_ms / 1000 - seconds)
            self._stirred.wait(engine.due_within(left))
            self._stirred.clear()

    def _run_batch(self, engine: BatchRunner) -> BatchReport | None:
        """A batch; tried again while others keep the log busy, for `task.timeout.ms`."""
        with self._progress:
            self._rounds += 1
        deadline: float | None = None
        pause = FIRST_PAUSE_S
        while True:
            try:
                return engine.run_batch()
            except LogBusy as busy:
                now = time.monotonic()
                if deadline is None:
                    deadline = now + self._config.task_timeout_ms / 1000
                if now >= deadline or self._ended.is_set():
                    raise
                log.warning("The batch is tried again: %s", busy)
                self._ended.wait(pause)
                pause = min(pause * 2, LAST_PAUSE_S)

    def _response(self, error: Exception) -> StreamThreadExceptionResponse:
        """Ask the handler, and carry out what can be carried out here."""
        response = response_of(self._hooks.uncaught, error)
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
            except LogError as trouble:
                log.error("The other instances could not be asked to end: %s", trouble)
        return response

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        if not self._life.try_to(State.PENDING_ERROR, f"{type(error).__name__}: {error}"):
            log.error("While the application ended: %s: %s", type(error).__name__, error)
