"""How much of the files that it has mapped a process holds in memory."""

from __future__ import annotations

import os
from pathlib import Path

#: Pages of replicas that a worker keeps mapped from one batch to the next.
_MOST_BYTES = 64 << 20
_STATM = Path("/proc/self/statm")


class ResidentMemory:
    """Tells when a process has seen so much of its replicas that it should let go of them.

    Every page of a mapped file that was ever touched counts as the process's memory until the file
    is closed, though the kernel would keep it anyway. Without a limit a worker seems to grow with
    its stores, and is killed where its memory is limited. To touch a page again that the kernel
    still has costs a microsecond.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._before = _mapped_bytes()

    def are_many(self) -> bool:
        """Whether there are more than a worker should keep; never where nobody can tell."""
        return _mapped_bytes() - self._before > self._most_bytes


def _mapped_bytes() -> int:
    """Resident pages of files, code among them; 0 where the system does not tell."""
    try:
        _, _, shared, *_ = _STATM.read_text().split()
    except OSError:
        return 0
    return int(shared) * os.sysconf("SC_PAGESIZE")
