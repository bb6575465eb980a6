"""An application that is killed repeatedly at the failpoints, and the comparison of its results.

A trial appends a wave of input, piece by piece, while the application runs. When a process stops at
the chosen failpoint, the trial kills the victim with SIGKILL:

    driver      the Python process that plans and commits, or, in continuous mode, supervises the
                lanes; the trial starts a new one
    worker      the Python process that runs tasks, or, in continuous mode, a lane: the stopped one,
                or any if the driver is stopped
    executor    the JVM of a worker, under local-cluster; Spark starts a new one

The other processes keep running as in a cluster: the JVM and the workers of a killed driver exit
when they notice, the worker of a killed executor finishes its task. Then the wave is processed to
its end. Before a kill at `restoring` the trial stops the application and removes its state folder,
so that there is something to restore. Under local-cluster each executor has its own folder, so
killing one more executor is sufficient. Lanes start, and tasks move, only after a lane was lost. So
before a kill at such a failpoint the trial kills one more lane.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pyspark

from faults.engine_app import (
    PIECES,
    Input,
    Row,
    append,
    is_drained,
    make_topics,
    run_reference,
    verify,
)
from faults.engine_processes import (
    LANE_FAILPOINTS,
    LOSS_FAILPOINTS,
    WORKER_FAILPOINTS,
    Execution,
    FailpointFiles,
    Instance,
    Process,
    Victim,
    send,
    wait_until,
)
from faults.spark_cluster import SparkCluster
from penstock.engine.failpoints import FailpointName
from penstock.log import open_log
from penstock.log.errors import LogBusy, LogUnavailable

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
#: In the directory of the trial, or in that of the executor, so that each has its own.
STATE, STATE_OF_EXECUTOR = "state", "/proc/self/cwd/state"
#: By default Spark asks a dead executor three times for its shuffle files, at 5 s intervals.
LITTLE_PATIENCE = ("spark.shuffle.io.maxRetries=1", "spark.shuffle.io.retryWait=100ms")
#: A process that reached a failpoint and does not stop within this time has ended.
GONE_S = 2.0


class Kill(NamedTuple):
    """The victim and the failpoint of a kill."""

    victim: Victim
    failpoint: FailpointName


@dataclass
class Counts:
    """Totals of the kills, records, waves and pieces."""

    kills: Counter[Kill] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    waves: int = 0
    pieces: int = 0

    def __iadd__(self, other: Counts) -> Counts:
        self.kills += other.kills
        self.records += other.records
        self.waves += other.waves
        self.pieces += other.pieces
        return self


class Trial:
    """An application on its own log, and its input.

    `waves` is the appended input, for the reference run without a crash. With the `master`
    "inline" tasks run in the process of the driver.
    """

    def __init__(
        self, directory: Path, seed: int, master: str = LOCAL, *, settings: Sequence[str] = (),
        cluster: SparkCluster | None = None, address: str | None = None,
        execution: Execution = "batch",
    ) -> None:
        """`cluster` replaces the master, `address` replaces the log in the directory."""
        self.execution = execution
        self.directory = directory
        self.master = master if cluster is None else cluster.master
        self.cluster = cluster
        self.settings = (*LITTLE_PATIENCE, *settings)
        self.rng = random.Random(seed)
        self.counts = Counts()
        self.instance: Instance | None = None
        self.log = open_log(address or directory / "log.db")
        #: The address of the log for drivers.
        self.driver_address = self.log.address
        make_topics(self.log)
        self._input = Input(seed)
        first = self._input.first()
        self.waves: list[list[list[Row]]] = [[first]]
        append(self.log, first)
        self._ended: list[Instance] = []
        self._others = itertools.count(1)

    # ---- processes -----------------------------------------------------------------------

    def start(self) -> Instance:
        """Start a driver if none is running. Each driver has its own failpoint files: the processes
        of a killed driver run for a while, and must not stop in its place."""
        if self.instance is None:
            failpoints = self.directory / "steps" / str(len(self._ended))
            self.instance = self.another("driver", FailpointFiles(failpoints))
        return self.instance

    def another(
        self, name: str, files: FailpointFiles, *, state: str | None = None,
        master: str | None = None,
    ) -> Instance:
        """Start one more driver of the application."""
        has_executors = self.master == CLUSTER or self.cluster is not None
        state = state or (STATE_OF_EXECUTOR if has_executors else STATE)
        settings, environment, sessions = list(self.settings), {}, []
        if self.master == CLUSTER:
            # The number of lanes does not depend on when the executors register.
            settings.append("penstock.parallelism=2")
            environment["SPARK_HOME"] = str(_spark_home(self.directory / "spark-home"))
        if self.cluster is not None:
            # The environment of a driver is not copied to a cluster.
            settings.append(f"spark.executorEnv.PENSTOCK_STOP_AT={files.order}")
            environment["PYSPARK_PYTHON"] = sys.executable
            sessions = self.cluster.sessions
        arguments = [
            "--log", self.driver_address, "--state", state, "--execution", self.execution,
            "--master", master or self.master, *(f"--conf={each}" for each in settings),
        ]
        output = self.directory / f"{name}.log"
        return Instance(arguments, files, output, environment, sessions=sessions)

    def start_other(self, name: str) -> Instance:
        """Start another instance, without Spark and with its own state."""
        name = f"{name}-{next(self._others)}"
        files = FailpointFiles(self.directory / f"steps-of-{name}")
        return self.another(name, files, state=f"state-of-{name}", master="inline")

    def end(self) -> None:
        """Kill the driver."""
        if self.instance is not None:
            self.instance.kill_driver()
            self._ended.append(self.instance)
            self.instance = None

    def close(self) -> None:
        """Stop all processes."""
        self.end()
        for instance in self._ended:
            instance.end()
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, AssertionError) and self.instance is not None:
            error.add_note(f"Output of the driver:\n{self.instance.output_tail()}")
        self.close()

    # ---- input ---------------------------------------------------------------------------

    def new_wave(self) -> Iterator[Callable[[], None]]:
        """Start a wave. Each call of a returned function appends a piece; there is no last one."""
        self.drain()
        self.waves.append([])
        self.counts.waves += 1
        rows = self._input.wave(len(self.waves) - 1)
        return (functools.partial(self.append_piece, each) for each in rows)

    def every_key(self) -> Iterator[Callable[[], None]]:
        """A wave whose first piece touches every key; the others are empty.

        Customers are processed before their orders: on Kafka partitions do not become visible at
        the same moment, and orders must not overtake their customers.
        """
        self.drain()
        self.waves.append([])
        self.counts.waves += 1
        rows = self._input.every_key(len(self.waves) - 1)
        customers = [row for row in rows if row[0] == "customers"]
        self.append_piece(customers)
        self.drain()
        piece = functools.partial(self.append_piece, rows[len(customers):])
        return itertools.chain([piece], itertools.repeat(lambda: None))

    def append_piece(self, rows: list[Row]) -> None:
        """Append a piece of the current wave."""
        append(self.log, rows)
        self.waves[-1].append(rows)
        self.counts.pieces += 1

    def drain(self) -> None:
        """Wait until all input is processed."""
        wait_until("a wave was processed", self.is_drained, meanwhile=self._alive)

    def is_drained(self) -> bool:
        """Whether all input is processed. False while a killed broker restarts."""
        try:
            return is_drained(self.log, continuous=self.execution == "continuous")
        except LogUnavailable:
            return False

    def _alive(self) -> None:
        instance = self.start()
        assert instance.is_alive, "the driver exited"

    # ---- kills ---------------------------------------------------------------------------

    def run_wave(self, *kills: Kill) -> None:
        """Process one wave of input with some kills, one after the other."""
        pieces = self.new_wave()
        for kill in kills:
            self.kill(kill, pieces)
        self.finish_wave(pieces)

    def kill(self, kill: Kill, pieces: Iterator[Callable[[], None]]) -> None:
        """Kill the victim when a process stops at the failpoint."""
        self.reach(kill.failpoint, pieces)
        while not self._kill_victim(kill):
            self.reach(kill.failpoint, pieces)
        self.counts.kills[kill] += 1

    def finish_wave(self, pieces: Iterator[Callable[[], None]]) -> None:
        """Append the missing pieces of the wave and wait until it is processed."""
        while len(self.waves[-1]) < PIECES:
            next(pieces)()
        self.drain()

    def reach(self, failpoint: str, pieces: Iterator[Callable[[], None]]) -> None:
        """Append input until a process stops at the failpoint. Processes at other failpoints
        resume. Lanes that are to be lost first are killed."""
        if failpoint == "restoring":
            self._lose_state()
        number = signal.SIGCONT
        if self.execution == "continuous" and failpoint in LOSS_FAILPOINTS:
            if self.master == "inline":
                self.end()
            else:
                self.reach("processed", pieces)
                number = signal.SIGKILL
        instance = self.start()
        standing = instance.stopped()
        before = instance.lanes_started()
        instance.files.disarm(failpoint)
        instance.files.arm(failpoint)
        for process in standing:
            send(process.pid, number)

        def is_reached() -> bool:
            return not instance.files.is_armed(failpoint) and bool(instance.stopped())

        def is_missed() -> bool:
            """The next lane got the tasks of the lost one, so no task is released."""
            return (
                failpoint == "released" and instance.lanes_started() > before
                and self.is_drained()
            )

        ended_at: float | None = None

        def is_gone() -> bool:
            """The process that reached the failpoint has ended, with an executor killed before."""
            nonlocal ended_at
            if instance.files.is_armed(failpoint) or instance.stopped():
                ended_at = None
            elif ended_at is None:
                ended_at = time.monotonic()
            return ended_at is not None and time.monotonic() - ended_at > GONE_S

        wait_until(
            f"a process reached '{failpoint}'",
            lambda: is_reached() or is_missed() or is_gone(), meanwhile=self.feeder(pieces),
        )
        if not is_reached():
            self.reach(failpoint, pieces)

    def feeder(self, pieces: Iterator[Callable[[], None]]) -> Callable[[], None]:
        """Returns a function that appends pieces at intervals, to call while waiting."""
        due = 0.0

        def feed() -> None:
            nonlocal due
            self._alive()
            # On a slow machine the backlog must not grow without limit.
            wanted = len(self.waves[-1]) < 2 * PIECES or self.is_drained()
            if wanted and time.monotonic() >= due:
                # A driver that is stopped in its commit holds the lock of the log.
                with contextlib.suppress(LogBusy):
                    next(pieces)()
                due = time.monotonic() + self.rng.uniform(0.01, 0.3)

        return feed

    def _lose_state(self) -> None:
        """Remove local state, so that there is something to restore."""
        if self.master == CLUSTER and self.instance is not None:
            # Each executor has its own folder: that of the next one is empty.
            send(self._any(self.instance.executors()).pid, signal.SIGKILL)
            return
        self.end()
        # Workers of killed drivers may still write to the folder.
        wait_until(
            "nothing of the killed drivers was left",
            lambda: not any(instance.all() for instance in self._ended),
        )
        shutil.rmtree(self.directory / STATE, ignore_errors=True)

    @property
    def _worker_failpoints(self) -> frozenset[FailpointName]:
        if self.master == "inline":
            return frozenset()
        return WORKER_FAILPOINTS if self.execution == "batch" else frozenset(LANE_FAILPOINTS)

    def _kill_victim(self, kill: Kill) -> bool:
        """Kill the victim and resume the others. False if there is no such process now."""
        instance = self.start()
        [stopped] = instance.stopped()
        in_driver = stopped.pid == instance.pid
        assert in_driver == (kill.failpoint not in self._worker_failpoints), stopped
        if kill.victim == "driver":
            instance.kill_driver()
            self._ended.append(instance)
            self.instance = None
        elif kill.victim == "worker":
            workers = instance.workers() if in_driver else [stopped]
            if not workers:
                # Spark starts workers with the first job.
                instance.resume()
                return False
            send(self._any(workers).pid, signal.SIGKILL)
        elif in_driver:
            send(self._any(instance.executors()).pid, signal.SIGKILL)
        else:
            executor = instance.executor_of(stopped.pid)
            if executor is None:
                # Spark has ended the executor of an overtaken attempt.
                instance.resume()
                return False
            send(executor.pid, signal.SIGKILL)
        instance.resume()
        return True

    def _any(self, those: list[Process]) -> Process:
        assert those, "there is no process to kill"
        return self.rng.choice(those)

    # ---- comparison -----------------------------------------------------------------------------

    def verify(self) -> None:
        """Touch every key, and compare all results with a run without a crash."""
        next(self.every_key())()
        self.drain()
        self.end()
        reference = run_reference(self.directory / "undisturbed", self.waves)
        with open_log(reference) as right:
            self.counts.records.update(verify(self.log, right, self.waves))


def _spark_home(place: Path) -> Path:
    """An installation of Spark with its own folder for executors."""
    if not place.exists():
        place.mkdir()
        (place / "work").mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name != "work":
                (place / part.name).symlink_to(part)
    return place
