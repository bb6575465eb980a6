"""Directories that may be deleted at any time, by anybody, while replicas in them are in use."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.errors import TaskCorruptedException

T = TypeVar("T")

#: How often something is tried again whose directory was deleted under it. Each time it was made
#: anew before, so that only someone who deletes without end comes to this.
MOST_DELETIONS = 100
_DELETED = ".deleted"


class ReplicaDeleted(TaskCorruptedException):
    """Files of a replica were deleted while they were in use."""


def within(directory: Path, work: Callable[[], T]) -> T:
    """Do something in a directory, which is made if need be; again, if it is deleted meanwhile."""
    deletions = 0
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return work()
        except (FileNotFoundError, FileExistsError):
            # What exists may be deleted before it is found to be a directory.
            deletions += 1
            if deletions > MOST_DELETIONS:
                raise


def remove(path: Path) -> None:
    """Delete a file, or a directory with all that is in it.

    A directory goes away at once, under another name: nobody finds only a part of its files.
    """
    with contextlib.suppress(OSError):
        if not path.is_dir():
            path.unlink()
        elif path.suffix != _DELETED:
            path = path.rename(path.with_name(f"{path.name}.{uuid.uuid4().hex}{_DELETED}"))
    shutil.rmtree(path, ignore_errors=True)


def remove_leavings(path: Path) -> None:
    """What is left of earlier deletions of a directory that did not come to their end."""
    for left in path.parent.glob(f"{path.name}.*{_DELETED}"):
        remove(left)
