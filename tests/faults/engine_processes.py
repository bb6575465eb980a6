"""The processes of a running application, and the failpoints at which they stop.

Every failpoint (`penstock.engine.failpoints`) has a file. While the file exists, the failpoint does
nothing. Removing the file arms the failpoint: the first process that reaches it creates the file
and stops itself (SIGSTOP). So a test knows that a process has stopped at that failpoint, and can
kill it, or another process, and resume the others.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, get_args

from penstock.engine.failpoints import FailpointName

#: The failpoints of a batch.
BATCH_FAILPOINTS: tuple[FailpointName, ...] = (
    "planned", "computing", "before-commit", "in-commit", "after-commit", "applying", "restoring",
)
#: The failpoints of a lane in continuous mode.
LANE_FAILPOINTS: tuple[FailpointName, ...] = (
    "lane-started", "granted", "processed", "before-commit", "in-commit", "after-commit",
    "applying", "restoring", "released",
)
#: The failpoints that a running application reaches only after a lane was lost.
LOSS_FAILPOINTS = frozenset(("lane-started", "granted", "released"))
#: The number of stages of the application.
STAGES = 3
#: The failpoints of workers in batch mode; the others are in the driver.
WORKER_FAILPOINTS: frozenset[FailpointName] = frozenset(("computing", "applying", "restoring"))
Execution = Literal["batch", "continuous"]
Victim = Literal["driver", "worker", "executor"]
#: Long, because the machine may be busy. The tests assert nothing about durations.
DEADLINE_S = 240.0
TESTS = Path(__file__).resolve().parents[1]


class TimedOut(AssertionError):
    """A condition did not become true in time."""


def wait_until(
    what: str, condition: Callable[[], object], *, meanwhile: Callable[[], object] = lambda: None,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimedOut(f"It took more than {deadline_s:.0f} s until {what}.")
        meanwhile()
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Process:
    """A snapshot of a process."""

    pid: int
    parent: int
    session: int
    state: str
    command: str

    @property
    def is_stopped(self) -> bool:
        return self.state in {"T", "t"}


def processes(session: int) -> dict[int, Process]:
    """All running processes of a session."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text(errors="replace")
            command = Path("/proc", entry, "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent, _, sid, *_ = stat[stat.rindex(")") + 2 :].split()
        if int(sid) == session and state not in {"Z", "X"}:
            text = command.replace(b"\0", b" ").decode(errors="replace")
            found[int(entry)] = Process(int(entry), int(parent), int(sid), state, text)
    return found


class FailpointFiles:
    """The files of the failpoints of one driver."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._failpoints = (*get_args(FailpointName), *(
            f"{failpoint}@{stage}"
            for failpoint in ("computing", "applying") for stage in range(STAGES)
        ))
        for failpoint in self._failpoints:
            self._file(failpoint).touch()

    def _file(self, failpoint: str) -> Path:
        return self._directory / failpoint

    @property
    def order(self) -> str:
        """The value of PENSTOCK_STOP_AT."""
        return ",".join(f"{failpoint}:1:{self._file(failpoint)}" for failpoint in self._failpoints)

    def arm(self, failpoint: str) -> None:
        self._file(failpoint).unlink()

    def is_armed(self, failpoint: str) -> bool:
        """Whether no process has reached the failpoint yet."""
        return not self._file(failpoint).exists()

    def disarm(self, failpoint: str) -> None:
        self._file(failpoint).touch()


class Instance:
    """A driver process and all processes that it starts."""

    def __init__(
        self, arguments: Sequence[str], files: FailpointFiles, output: Path,
        environment: Mapping[str, str] | None = None, *, sessions: Sequence[int] = (),
    ) -> None:
        """`sessions` are the process sessions of a cluster that runs the tasks."""
        self.files = files
        self.output = output
        self._sessions = tuple(sessions)
        self._stream: IO[bytes] = output.open("ab")
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "faults.engine_app", *arguments],
            stdin=subprocess.DEVNULL, stdout=self._stream, stderr=subprocess.STDOUT,
            start_new_session=True, cwd=output.parent,
            env={
                **os.environ, "PYTHONPATH": _with_tests(), "PENSTOCK_STOP_AT": files.order,
                "TMPDIR": str(output.parent), "SPARK_LOCAL_DIRS": str(output.parent / "spark"),
                **(environment or {}),
            },
        )
        self.pid = self._popen.pid

    @property
    def is_alive(self) -> bool:
        """Whether the driver is running."""
        return self._popen.poll() is None

    def all(self) -> dict[int, Process]:
        """All running processes, including the driver."""
        return processes(self.pid)

    def stopped(self) -> list[Process]:
        """The processes that are stopped at a failpoint, also those of the cluster."""
        return [
            process for session in (self.pid, *self._sessions)
            for process in processes(session).values() if process.is_stopped
        ]

    def workers(self) -> list[Process]:
        """The Python processes that run tasks. Their parent is a daemon whose parent is a JVM."""
        there = self.all()
        return [
            each for each in there.values()
            if _is_python(each) and _is_python(there.get(each.parent))
            and _is_java(there.get(there[each.parent].parent))
        ]

    def executors(self) -> list[Process]:
        return [
            each for each in self.all().values()
            if _is_java(each) and "CoarseGrainedExecutorBackend" in each.command
        ]

    def executor_of(self, pid: int) -> Process | None:
        """The executor of a worker; None if it has ended."""
        there = self.all()
        process = there.get(pid)
        while process is not None and not (
            "CoarseGrainedExecutorBackend" in process.command and _is_java(process)
        ):
            process = there.get(process.parent)
        return process

    def kill_driver(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self._stream.close()

    def resume(self) -> None:
        """Resume the stopped processes."""
        for process in self.stopped():
            send(process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill all processes and wait for their end."""
        if self.is_alive:
            self.kill_driver()
        for pid in self.all():
            send(pid, signal.SIGKILL)
        wait_until("all processes of an instance had ended", lambda: not self.all())

    def lanes_started(self, pid: int | str = "") -> int:
        """The number of lanes that were ready, of all drivers with this output; or in a process."""
        return self.output.read_text(errors="replace").count(f"{pid}) is ready.")

    def lanes(self) -> list[int]:
        """The processes that are or were lanes of this output and still exist."""
        ready = re.findall(r"\(process (\d+)\) is ready\.", self.output.read_text())
        there = self.all()
        return sorted({int(pid) for pid in ready} & there.keys())

    def output_tail(self) -> str:
        """The last part of the output, for error messages."""
        return self.output.read_text(errors="replace")[-3000:]


def _with_tests() -> str:
    """The PYTHONPATH of drivers and workers."""
    return os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal if the process exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_python(process: Process | None) -> bool:
    return process is not None and "python" in process.command.split(" ", 1)[0]


def _is_java(process: Process | None) -> bool:
    return process is not None and process.command.split(" ", 1)[0].endswith("java")
