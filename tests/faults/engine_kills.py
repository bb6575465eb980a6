"""An application is killed at every step of a batch, again and again; then everything is compared.

    PYTHONPATH=tests python -m faults.engine_kills [--kills 210] [--seed S] [--report FILE]

A wave of input is appended, piece by piece, while the application runs. As soon as a process stands
in the chosen step the victim is killed with SIGKILL:

    driver      the Python process that plans and commits; a new one takes its place
    worker      the Python process that runs tasks; the one in the step, or any if the driver is
    executor    the JVM above a worker, under local-cluster, where Spark starts another

What the victim leaves behind lives on as it would in a cluster: a killed driver's JVM and workers
end when they notice; a worker whose executor was killed finishes its task for nobody. Then the wave
is processed to its end. Before a kill in `restoring` the application is ended and its state folder
is removed, so that there is something to restore; under local-cluster, where each executor has a
folder of its own, it is enough to kill one more.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, get_args

import pyspark

from faults.engine_app import (
    PIECES,
    Input,
    Row,
    append,
    is_drained,
    make_topics,
    run_undisturbed,
    verify,
)
from faults.engine_processes import (
    STEPS,
    WORKER_STEPS,
    Instance,
    Process,
    StepFiles,
    Victim,
    send,
    wait_until,
)
from faults.spark_cluster import SparkCluster
from penstock.engine.failpoints import Step
from penstock.log import open_log
from penstock.log.errors import LogBusy

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
#: In the trial's directory; or where the executor of a worker runs, so that each has its own.
STATE, STATE_OF_EXECUTOR = "state", "/proc/self/cwd/state"
KILLS_OF_A_TRIAL = 35
#: Spark asks a dead executor three times for its shuffle files, five seconds apart.
LITTLE_PATIENCE = ("spark.shuffle.io.maxRetries=1", "spark.shuffle.io.retryWait=100ms")


class Kill(NamedTuple):
    """Whom to kill, and in which step."""

    victim: Victim
    step: Step


@dataclass
class Counts:
    """What has been done so far."""

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
    """An application on a log of its own, and all that was given to it.

    The truth about the input: `waves` is what was appended, so the same can be given to a run
    without a crash. `master` is where it runs: "inline" is the driver's own process.
    """

    def __init__(
        self, directory: Path, seed: int, master: str = LOCAL, *, settings: Sequence[str] = (),
        cluster: SparkCluster | None = None, address: str | None = None,
    ) -> None:
        """`cluster` takes the place of the master, `address` that of a log in the directory."""
        self.directory = directory
        self.master = master if cluster is None else cluster.master
        self.cluster = cluster
        self.settings = (*LITTLE_PATIENCE, *settings)
        self.rng = random.Random(seed)
        self.counts = Counts()
        self.instance: Instance | None = None
        self.log = open_log(address or directory / "log.db")
        #: Where drivers find the log.
        self.driver_address = self.log.address
        make_topics(self.log)
        self._input = Input(seed)
        first = self._input.first()
        self.waves: list[list[list[Row]]] = [[first]]
        append(self.log, first)
        self._ended: list[Instance] = []

    # ---- the processes -----------------------------------------------------------------------

    def start(self) -> Instance:
        """A driver, if there is none. Its steps are its own: what a killed one has left behind
        lives on for a while, and must not be the one that stops."""
        if self.instance is None:
            steps = self.directory / "steps" / str(len(self._ended))
            self.instance = self.another("driver", StepFiles(steps))
        return self.instance

    def another(
        self, name: str, files: StepFiles, *, state: str | None = None, master: str | None = None
    ) -> Instance:
        """One more driver of the application."""
        has_executors = self.master == CLUSTER or self.cluster is not None
        state = state or (STATE_OF_EXECUTOR if has_executors else STATE)
        settings, environment, sessions = list(self.settings), {}, []
        if self.master == CLUSTER:
            environment["SPARK_HOME"] = str(_spark_home(self.directory / "spark-home"))
        if self.cluster is not None:
            # What a driver finds in its own environment does not go to a cluster by itself.
            settings.append(f"spark.executorEnv.PENSTOCK_STOP_AT={files.order}")
            environment["PYSPARK_PYTHON"] = sys.executable
            sessions = self.cluster.sessions
        arguments = [
            "--log", self.driver_address, "--state", state,
            "--master", master or self.master, *(f"--conf={each}" for each in settings),
        ]
        output = self.directory / f"{name}.log"
        return Instance(arguments, files, output, environment, sessions=sessions)

    def end(self) -> None:
        """Kill the driver between two batches, and forget about it."""
        if self.instance is not None:
            self.instance.kill_driver()
            self._ended.append(self.instance)
            self.instance = None

    def close(self) -> None:
        """Leave nothing running."""
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
            error.add_note(f"The driver has told:\n{self.instance.told()}")
        self.close()

    # ---- the input ---------------------------------------------------------------------------

    def new_wave(self) -> Iterator[Callable[[], None]]:
        """Each answer appends a piece when it is called; they never end."""
        self.drain()
        self.waves.append([])
        self.counts.waves += 1
        rows = self._input.wave(len(self.waves) - 1)
        return (functools.partial(self.append_piece, each) for each in rows)

    def every_key(self) -> Iterator[Callable[[], None]]:
        """A wave whose first piece touches all there is; the others are empty.

        Customers were there before their orders: on Kafka partitions do not appear at the same
        moment, and orders must not overtake their customers.
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
        """More of the wave that is under way."""
        append(self.log, rows)
        self.waves[-1].append(rows)
        self.counts.pieces += 1

    def drain(self) -> None:
        """Until all that was appended is processed, in whatever batches."""
        wait_until("a wave was processed", lambda: is_drained(self.log), meanwhile=self._alive)

    def _alive(self) -> None:
        instance = self.start()
        assert instance.is_alive, "the driver has ended by itself"

    # ---- the kills ---------------------------------------------------------------------------

    def run_wave(self, *kills: Kill) -> None:
        """One wave of input with some kills, one after the other, processed to its end."""
        pieces = self.new_wave()
        for kill in kills:
            self.kill(kill, pieces)
        self.finish_wave(pieces)

    def kill(self, kill: Kill, pieces: Iterator[Callable[[], None]]) -> None:
        """As soon as a process stands in the step."""
        self.reach(kill.step, pieces)
        while not self._strike(kill):
            self.reach(kill.step, pieces)
        self.counts.kills[kill] += 1

    def finish_wave(self, pieces: Iterator[Callable[[], None]]) -> None:
        """Append what the wave still needs, and wait until all of it is processed."""
        while len(self.waves[-1]) < PIECES:
            next(pieces)()
        self.drain()

    def reach(self, step: str, pieces: Iterator[Callable[[], None]]) -> None:
        """Until a process stands in the step; input is appended all the while. What stood in
        another step goes on."""
        if step == "restoring":
            self._lose_state()
        instance = self.start()
        standing = instance.stopped()
        instance.files.arm(step)
        for process in standing:
            send(process.pid, signal.SIGCONT)
        wait_until(
            f"a process reached '{step}'",
            lambda: not instance.files.is_armed(step) and instance.stopped(),
            meanwhile=self.feeding(pieces),
        )

    def feeding(self, pieces: Iterator[Callable[[], None]]) -> Callable[[], None]:
        """What to do while something is waited for: append, now and then."""
        due = 0.0

        def feed() -> None:
            nonlocal due
            self._alive()
            # On a slow machine the input must not run away from the application.
            wanted = len(self.waves[-1]) < 2 * PIECES or is_drained(self.log)
            if wanted and time.monotonic() >= due:
                # A driver that stands in its commit has the log's lock; the next piece will do.
                with contextlib.suppress(LogBusy):
                    next(pieces)()
                due = time.monotonic() + self.rng.uniform(0.01, 0.3)

        return feed

    def _lose_state(self) -> None:
        """Let there be something to restore."""
        if self.master == CLUSTER and self.instance is not None:
            # Each executor has a folder of its own: the one that takes its place has an empty one.
            send(self._any(self.instance.executors()).pid, signal.SIGKILL)
            return
        self.end()
        # Until then their workers may write to the folder.
        wait_until(
            "nothing of the killed drivers was left",
            lambda: not any(instance.all() for instance in self._ended),
        )
        shutil.rmtree(self.directory / STATE, ignore_errors=True)

    def _strike(self, kill: Kill) -> bool:
        """Kill; False if there is no such process at the moment. What was stopped goes on."""
        instance = self.start()
        [stopped] = instance.stopped()
        in_driver = stopped.pid == instance.pid
        assert in_driver == (kill.step not in WORKER_STEPS or self.master == "inline"), stopped
        if kill.victim == "driver":
            instance.kill_driver()
            self._ended.append(instance)
            self.instance = None
        elif kill.victim == "worker":
            workers = instance.workers() if in_driver else [stopped]
            if not workers:
                # Spark starts them with a job, and the first one has not come yet.
                instance.go_on()
                return False
            send(self._any(workers).pid, signal.SIGKILL)
        elif in_driver:
            send(self._any(instance.executors()).pid, signal.SIGKILL)
        else:
            send(instance.executor_of(stopped.pid).pid, signal.SIGKILL)
        instance.go_on()
        return True

    def _any(self, those: list[Process]) -> Process:
        assert those, "nobody is there to be killed"
        return self.rng.choice(those)

    # ---- the end -----------------------------------------------------------------------------

    def verify(self) -> None:
        """Touch every key once more, and compare everything with a run without a crash."""
        next(self.every_key())()
        self.drain()
        self.end()
        undisturbed = run_undisturbed(self.directory / "undisturbed", self.waves)
        with open_log(undisturbed) as right:
            self.counts.records.update(verify(self.log, right, self.waves))


def _spark_home(place: Path) -> Path:
    """An installation of Spark whose folder for executors is the trial's own."""
    if not place.exists():
        place.mkdir()
        (place / "work").mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name != "work":
                (place / part.name).symlink_to(part)
    return place


# ---- many of them ----------------------------------------------------------------------------


class Part(NamedTuple):
    """Kills of the same kind, under one master."""

    master: str
    victims: tuple[Victim, ...]
    kills: int


def schedule(part: Part, rng: random.Random) -> list[Kill]:
    """Each step for each victim, again and again, in a random order."""
    every = itertools.cycle([Kill(victim, step) for victim in part.victims for step in STEPS])
    chosen = list(itertools.islice(every, part.kills))
    rng.shuffle(chosen)
    return chosen


def run_many(kills: int, seed: int, tell: Callable[[str], None]) -> Counts:
    """Drivers and workers are killed under `local[2]`, executors under `local-cluster`."""
    total = Counts()
    rng = random.Random(seed)
    executors = kills // 3
    for part in (
        Part(LOCAL, ("driver", "worker"), kills - executors),
        Part(CLUSTER, ("executor",), executors),
    ):
        planned = schedule(part, rng)
        # Compared now and then: so a failure is found near to its cause.
        for start in range(0, len(planned), KILLS_OF_A_TRIAL):
            some = planned[start : start + KILLS_OF_A_TRIAL]
            total += run_trial(part.master, some, rng.randrange(10**6), total, tell)
    return total


def run_trial(
    master: str, kills: Sequence[Kill], seed: int, before: Counts, tell: Callable[[str], None]
) -> Counts:
    """A log of its own, a wave for each kill, and everything compared."""
    number = before.kills.total()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-faults-") as directory,
        Trial(Path(directory), seed, master) as trial,
    ):
        for kill in kills:
            began = time.monotonic()
            trial.run_wave(kill)
            number += 1
            tell(
                f"{number:4}  {master}: {kill.victim} killed in '{kill.step}', wave "
                f"{trial.counts.waves} processed after {time.monotonic() - began:.1f} s"
            )
        trial.verify()
        tell(f"      equal: {shown(trial.counts.records)}")
        return trial.counts


def shown(records: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} records of {topic}" for topic, count in records.items())


def report(counts: Counts, seed: int, seconds: float) -> str:
    """What was done, as a page."""
    victims: tuple[Victim, ...] = get_args(Victim)
    rows = [
        f"| {step} | " + " | ".join(
            str(counts.kills[Kill(victim, step)]) for victim in victims
        ) + f" | {sum(counts.kills[Kill(victim, step)] for victim in victims)} |"
        for step in STEPS
    ]
    return "\n".join((
        "# Kills of the engine",
        "",
        "Written by `make faults` (`tests/faults/engine_kills.py`); `exactly-once.md` says what "
        "is killed, and what is compared.",
        "",
        f"{counts.kills.total()} kills with SIGKILL, seed {seed}, {seconds / 60:.0f} minutes. "
        f"{counts.waves} waves of input in {counts.pieces:,} pieces. All outputs and all stores "
        "were equal to those of runs without a crash:",
        f"{shown(counts.records)}.",
        "",
        f"| step | {' | '.join(victims)} | all |",
        "|---|" + "---|" * (len(victims) + 1),
        *rows,
        "",
    ))


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill an application at every step of a batch.")
    parser.add_argument("--kills", type=int, default=210)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--report", type=Path, help="a file to write what was done to")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.kills} kills", flush=True)
    began = time.monotonic()
    counts = run_many(options.kills, options.seed, functools.partial(print, flush=True))
    page = report(counts, options.seed, time.monotonic() - began)
    print(page)
    if options.report is not None:
        options.report.write_text(page)


if __name__ == "__main__":
    main()
