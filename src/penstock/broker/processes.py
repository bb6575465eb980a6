"""Processes that outlive their parent, identified by process id and command line.

The operating system reuses process ids. A signal is sent only after the command line has confirmed
that the process is the one that was started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_POLL_S = 0.02
#: A new process has an empty command line for a moment.
_EMPTY_COMMAND_LINE_S = 2.0


def is_running(pid: int | None, marker: str) -> bool:
    """Return whether the process is alive and has the marker among its arguments."""
    if pid is None:
        return False
    _reap(pid)
    return marker in _command_line(pid)


def stop(pid: int, marker: str, timeout: float, *, kill: bool = False) -> bool:
    """Terminate the process, and kill it after the timeout. Return False if it was killed."""
    if not kill:
        _send(pid, marker, signal.SIGTERM)
        if _wait_for_exit(pid, marker, timeout):
            return True
    _send(pid, marker, signal.SIGKILL)
    _wait_for_exit(pid, marker, timeout)
    return False


def kill_with_parent(pid: int, marker: str) -> subprocess.Popen[bytes]:
    """Start a watcher that kills the process when this process exits, however it exits."""
    code = (
        "import sys; sys.stdin.read()\n"
        "from penstock.broker import processes\n"
        "processes.stop(int(sys.argv[1]), sys.argv[2], 5, kill=True)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(pid), marker], stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _send(pid: int, marker: str, number: int) -> None:
    if is_running(pid, marker):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


def _wait_for_exit(pid: int, marker: str, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while is_running(pid, marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _reap(pid: int) -> None:
    """Collect the exit status if the process is a child of this one."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _command_line(pid: int) -> list[str]:
    """Return the arguments of a process; empty if it does not exist."""
    if os.path.isdir("/proc/self"):
        return _command_line_from_proc(pid)
    listed = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.split()


def _command_line_from_proc(pid: int) -> list[str]:
    deadline = time.monotonic() + _EMPTY_COMMAND_LINE_S
    directory = Path(f"/proc/{pid}")
    while True:
        try:
            text = (directory / "cmdline").read_bytes()
            # The state follows the name, which ends with a bracket and may contain anything.
            state = (directory / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        if text or state.rpartition(")")[2].split()[0] in "ZX" or time.monotonic() > deadline:
            return text.decode("utf-8", "replace").split("\0")
        time.sleep(_POLL_S)
