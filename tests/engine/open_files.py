"""Which files this process has open."""

from __future__ import annotations

import os
from pathlib import Path


def open_files(directory: Path) -> list[str]:
    """Those below a directory, whether they are still there or not."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            # That of the listing itself.
            continue
        if target.startswith(f"{os.path.realpath(directory)}/"):
            found.append(target)
    return found
