"""Files in a state directory, which other processes may delete at any time."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.errors import TaskCorruptedException

T = TypeVar("T")

#: How often an operation is retried after its directory was deleted. Each retry creates the
#: directory again, so only a process that keeps deleting reaches the limit.
MAX_DELETIONS = 100
_DELETED_SUFFIX = ".deleted"

#: (batch, attempt)
RunId = tuple[int, int]


class ReplicaDeleted(TaskCorruptedException):
    """The files of a replica were deleted while they were in use."""


def retry_in_directory(directory: Path, work: Callable[[], T]) -> T:
    """Create a directory if necessary and run `work`; retry if the directory is deleted."""
    deletions = 0
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return work()
        except (FileNotFoundError, FileExistsError):
            # mkdir raises FileExistsError if the directory is deleted during its own check.
            deletions += 1
            if deletions > MAX_DELETIONS:
                raise


def delete(path: Path) -> None:
    """Delete a file or a directory tree.

    A directory is renamed first, so no process sees only some of its files.
    """
    with contextlib.suppress(OSError):
        if not path.is_dir():
            path.unlink()
        elif path.suffix != _DELETED_SUFFIX:
            path = path.rename(path.with_name(f"{path.name}.{uuid.uuid4().hex}{_DELETED_SUFFIX}"))
    shutil.rmtree(path, ignore_errors=True)


def delete_leftovers(path: Path) -> None:
    """Finish earlier deletions of a directory that were interrupted."""
    for leftover in path.parent.glob(f"{path.name}.*{_DELETED_SUFFIX}"):
        delete(leftover)


class RunFiles:
    """Files that runs of a task leave on their host: `<kind>-<batch>-<attempt>`.

    A file is used only if its run is the one that is committed.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        self._directory = directory
        self._kind = kind

    def write(self, run: RunId, data: bytes) -> None:
        """Write the file of a run atomically."""
        path = self._path(run)
        draft = path.with_name(f"{path.name}.{os.getpid()}.draft")

        def write() -> None:
            draft.write_bytes(data)
            os.replace(draft, path)

        try:
            retry_in_directory(self._directory, write)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def read(self, run: RunId) -> bytes:
        """Read the file of a run; `OSError` if this host does not have it."""
        return self._path(run).read_bytes()

    def delete(self, run: RunId) -> None:
        """Delete the file of a run, if it exists."""
        self._path(run).unlink(missing_ok=True)

    def delete_batches(self, is_finished: Callable[[int], bool]) -> None:
        """Delete the files of all batches for which `is_finished` returns True."""
        try:
            paths = list(self._directory.glob(f"{self._kind}-*"))
        except FileNotFoundError:
            # Another process has just deleted the directory.
            return
        for path in paths:
            batch = path.name.split("-")[1]
            if batch.isdigit() and is_finished(int(batch)):
                path.unlink(missing_ok=True)

    def _path(self, run: RunId) -> Path:
        return self._directory / f"{self._kind}-{run[0]}-{run[1]}"
