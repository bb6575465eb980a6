"""The open files of this process."""

from __future__ import annotations

import os
from pathlib import Path


def open_files(directory: Path) -> list[str]:
    """Return the open files below a directory, including deleted ones."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            # The descriptor of the listing itself.
            continue
        if target.startswith(f"{os.path.realpath(directory)}/"):
            found.append(target)
    return found
