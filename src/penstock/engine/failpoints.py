"""The named steps of a batch, where the crash tests end a process.

`reached` does nothing, unless PENSTOCK_CRASH_AT says `step:count:file`: then the process that gets
there for the `count`-th time kills itself, once: whoever makes the file first. Several of them are
separated by commas. `PENSTOCK_STOP_AT`, of the same form, stops the process (SIGSTOP) instead.
A step of a worker may be narrowed to tasks of one stage: `computing@1`.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

Step = Literal[
    "planned", "computing", "before-commit", "in-commit", "after-commit", "applying", "restoring"
]

_SIGNALS = {"PENSTOCK_CRASH_AT": signal.SIGKILL, "PENSTOCK_STOP_AT": signal.SIGSTOP}
_counts: dict[str, int] = {}


def failpoint(step: Step, stage: int | None = None) -> None:
    """A step begins; `stage` is that of the tasks, if it is a step of some."""
    for variable, number in _SIGNALS.items():
        orders = os.environ.get(variable)
        if orders:
            _obey(orders, (step, f"{step}@{stage}"), number)


def _obey(orders: str, names: tuple[str, ...], number: signal.Signals) -> None:
    for order in orders.split(","):
        name, count, path = order.split(":", 2)
        if name not in names:
            continue
        _counts[order] = _counts.get(order, 0) + 1
        if _counts[order] >= int(count) and _is_first(path):
            os.kill(os.getpid(), number)


def _is_first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
