"""Processes that outlive the one that started them, known by their id and their command line.

Ids are given again after a while. So no process is asked to end before its command line has shown
that it is still the one that was started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_PAUSE_S = 0.02
_NEW_S = 2.0


def is_running(pid: int | None, marker: str) -> bool:
    """Whether the process lives and has the marker among its arguments."""
    if pid is None:
        return False
    _reap(pid)
    return marker in _arguments(pid)


def end(pid: int, marker: str, timeout: float, *, kill: bool = False) -> bool:
    """Ask the process to end, and wait; kill it if it does not. False: it had to be killed."""
    if kill:
        _signal(pid, marker, signal.SIGKILL)
        _gone(pid, marker, timeout)
        return False
    _signal(pid, marker, signal.SIGTERM)
    if _gone(pid, marker, timeout):
        return True
    _signal(pid, marker, signal.SIGKILL)
    _gone(pid, marker, timeout)
    return False


def kill_with_parent(pid: int, marker: str) -> subprocess.Popen[bytes]:
    """A process that kills another one as soon as this one is gone, however it ended."""
    code = (
        "import sys; sys.stdin.read()\n"
        "from penstock.broker import processes\n"
        "processes.end(int(sys.argv[1]), sys.argv[2], 5, kill=True)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(pid), marker], stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _signal(pid: int, marker: str, number: int) -> None:
    if is_running(pid, marker):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


def _gone(pid: int, marker: str, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while is_running(pid, marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _reap(pid: int) -> None:
    """If it is a child of this process and has ended, let it go."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _arguments(pid: int) -> list[str]:
    """The command line; empty if there is no such process."""
    if os.path.isdir("/proc/self"):
        return _arguments_on_linux(pid)
    shown = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.split()


def _arguments_on_linux(pid: int) -> list[str]:
    """From `/proc`. A process that has just been started has no arguments for a moment."""
    deadline = time.monotonic() + _NEW_S
    place = Path(f"/proc/{pid}")
    while True:
        try:
            text = (place / "cmdline").read_bytes()
            # The state comes after the name, which may hold anything, but ends with a bracket.
            state = (place / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        if text or state.rpartition(")")[2].split()[0] in "ZX" or time.monotonic() > deadline:
            return text.decode("utf-8", "replace").split("\0")
        time.sleep(_PAUSE_S)
