"""Failpoints: named places in batches and lanes at which the crash tests kill or stop a process.

`failpoint` does nothing unless `PENSTOCK_CRASH_AT` is set to `name:count:file`. The process that
reaches the failpoint for the `count`-th time and is the first to create the file kills itself.
Several entries are separated by commas. `PENSTOCK_STOP_AT` has the same format and stops the
process (SIGSTOP) instead. `computing@1` limits a failpoint of a worker to the tasks of stage 1.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

FailpointName = Literal[
    "planned", "computing", "before-commit", "in-commit", "after-commit", "applying", "restoring",
    "lane-started", "granted", "processed", "released",
]

_SIGNALS = {"PENSTOCK_CRASH_AT": signal.SIGKILL, "PENSTOCK_STOP_AT": signal.SIGSTOP}
#: Entry of the environment variable -> how often this process has reached it.
_counts: dict[str, int] = {}


def failpoint(name: FailpointName, stage: int | None = None) -> None:
    """Kill or stop this process if an environment variable names this failpoint.

    `stage`: the stage of the running tasks, in a worker.
    """
    for variable, number in _SIGNALS.items():
        entries = os.environ.get(variable)
        if entries:
            _trigger(entries, (name, f"{name}@{stage}"), number)


def _trigger(entries: str, names: tuple[str, ...], number: signal.Signals) -> None:
    for entry in entries.split(","):
        name, count, path = entry.split(":", 2)
        if name not in names:
            continue
        _counts[entry] = _counts.get(entry, 0) + 1
        if _counts[entry] >= int(count) and _create(path):
            os.kill(os.getpid(), number)


def _create(path: str) -> bool:
    """Create a file. Return False if it exists."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
