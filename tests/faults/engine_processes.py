"""The processes of a running application, as the kernel shows them, and how they are stopped.

Every step of a batch (`penstock.engine.failpoints`) looks for a file of its name. While the file is
there nothing happens; a step is *armed* by removing it. The first process that reaches an armed
step makes the file again and stops itself (SIGSTOP). So whoever watches knows that a process stands
in that very step, and may kill it, or another one, and let the rest go on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, get_args

from penstock.engine.failpoints import Step

STEPS: tuple[Step, ...] = get_args(Step)
#: Of the application's job.
STAGES = 3
#: Steps that are reached where tasks run; the others are the driver's.
WORKER_STEPS = frozenset(("computing", "applying", "restoring"))
Victim = Literal["driver", "worker", "executor"]
#: Generous: the machine may be busy, and nothing is asserted about how long anything takes.
DEADLINE_S = 240.0
TESTS = Path(__file__).resolve().parents[1]


class TookTooLong(AssertionError):
    """Something that had to happen did not."""


def wait_until(
    what: str, condition: Callable[[], object], *, meanwhile: Callable[[], object] = lambda: None,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Look again and again until the condition holds."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TookTooLong(f"It took more than {deadline_s:.0f} s until {what}.")
        meanwhile()
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it was when it was looked at."""

    pid: int
    parent: int
    session: int
    state: str
    command: str

    @property
    def is_stopped(self) -> bool:
        return self.state in {"T", "t"}


def processes(session: int) -> dict[int, Process]:
    """All live processes of a session."""
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


class StepFiles:
    """The files that say which steps are armed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._steps = (*STEPS, *(
            f"{step}@{stage}" for step in ("computing", "applying") for stage in range(STAGES)
        ))
        for step in self._steps:
            self._file(step).touch()

    def _file(self, step: str) -> Path:
        return self._directory / step

    @property
    def order(self) -> str:
        """What PENSTOCK_STOP_AT is to be."""
        return ",".join(f"{step}:1:{self._file(step)}" for step in self._steps)

    def arm(self, step: str) -> None:
        self._file(step).unlink()

    def is_armed(self, step: str) -> bool:
        """Whether nobody has come to the step yet."""
        return not self._file(step).exists()

    def disarm(self, step: str) -> None:
        self._file(step).touch()


class Instance:
    """A driver that was started as a process of its own, with everything that it starts."""

    def __init__(
        self, arguments: Sequence[str], files: StepFiles, output: Path,
        environment: Mapping[str, str] | None = None, *, sessions: Sequence[int] = (),
    ) -> None:
        """`sessions`: of a cluster, whose processes work for it but are not its own."""
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
        """Whether the driver is."""
        return self._popen.poll() is None

    def all(self) -> dict[int, Process]:
        """All live processes, the driver among them."""
        return processes(self.pid)

    def stopped(self) -> list[Process]:
        """Those that stand in a step, here or in the cluster."""
        return [
            process for session in (self.pid, *self._sessions)
            for process in processes(session).values() if process.is_stopped
        ]

    def workers(self) -> list[Process]:
        """Python processes that run tasks: forked by a daemon, which a JVM has started."""
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

    def executor_of(self, pid: int) -> Process:
        """The executor above a worker."""
        there = self.all()
        process = there[pid]
        while "CoarseGrainedExecutorBackend" not in process.command or not _is_java(process):
            process = there[process.parent]
        return process

    def kill_driver(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self._stream.close()

    def go_on(self) -> None:
        """Let those that stand in a step run on."""
        for process in self.stopped():
            send(process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill whatever is left of it, and wait until nothing is."""
        if self.is_alive:
            self.kill_driver()
        for pid in self.all():
            send(pid, signal.SIGKILL)
        wait_until("all processes of an instance had ended", lambda: not self.all())

    def told(self) -> str:
        """The end of what it has written, for people."""
        return self.output.read_text(errors="replace")[-3000:]


def _with_tests() -> str:
    """Where the application is imported from, in the driver and in its workers."""
    return os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


def send(pid: int, number: signal.Signals) -> None:
    """A signal; nothing if the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_python(process: Process | None) -> bool:
    return process is not None and "python" in process.command.split(" ", 1)[0]


def _is_java(process: Process | None) -> bool:
    return process is not None and process.command.split(" ", 1)[0].endswith("java")
