"""The generations of files in the directory of a replica.

    <state_dir>/<application>/<sub-topology>_<partition>/
        current             the name of the current generation; replaced atomically
        lock                held while the current generation is replaced
        g<hex>/             a generation: one LMDB environment, and
            unsynced        exists while commits may not be on disk; holds the boot id of the host
        g<hex>.<hex>.deleted/       a generation that is being deleted
        aside-<batch>-<attempt>     staged writes; see `staged`
        changes-<batch>-<attempt>   see `penstock.engine.worker.changelog_cache`

The name of a generation is never reused. A process that has an old generation open keeps a
consistent view of it, and finds the new one by reading `current`.
"""

from __future__ import annotations

import fcntl
import functools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.stores.bytes.lmdb.environment import LmdbEnvironment
from penstock.stores.replica.files import (
    ReplicaDeleted,
    delete,
    delete_leftovers,
    retry_in_directory,
)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """An id that changes with every boot of the host; empty if the host does not provide one."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Generations:
    """The generations in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pointer = directory / "current"

    def current(self) -> str | None:
        """The name of the current generation; None if there is none."""
        try:
            name = self._pointer.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return None
        return name if name.startswith("g") and name.isalnum() else None

    def open(self, name: str, map_size: int) -> LmdbEnvironment:
        """Open the environment of a generation; `FileNotFoundError` if it does not exist."""
        return LmdbEnvironment.open(self.directory / name, map_size=map_size)

    def replace(self, stale: str | None) -> str:
        """Replace the generation `stale` by a new, empty one and return the current name.

        Does nothing if another process has replaced it already. Deletes all other generations.
        """
        return retry_in_directory(self.directory, functools.partial(self._replace, stale))

    def _replace(self, stale: str | None) -> str:
        with self._locked():
            current = self.current()
            if current is not None and current != stale and self._exists(current):
                return current
            name = f"g{uuid.uuid4().hex}"
            LmdbEnvironment.open(self.directory / name, create=True).close()
            draft = self.directory / f"{name}.pointer"
            draft.write_text(name, encoding="ascii")
            os.replace(draft, self._pointer)
            for path in self.directory.iterdir():
                if path.name != name and path.name.startswith("g"):
                    delete(path)
            return name

    def is_sound(self, name: str) -> bool:
        """Whether all commits survived; False if the host rebooted before they were synced."""
        try:
            since = (self.directory / name / "unsynced").read_text(encoding="ascii")
        except FileNotFoundError:
            return True
        except (OSError, UnicodeDecodeError):
            return False
        return since == boot_id()

    def changed_ms(self) -> int | None:
        """When the current generation was last written, in milliseconds since the epoch.

        None if there is none that could be used.
        """
        name = self.current()
        if name is None or not self.is_sound(name):
            return None
        try:
            return (self.directory / name / "data.mdb").stat().st_mtime_ns // 1_000_000
        except OSError:
            return None

    def mark_unsynced(self, name: str) -> None:
        """Record that commits may not be on disk. Called inside every write transaction.

        Raises `ReplicaDeleted` if the generation was deleted: a process that has it open would not
        notice otherwise.
        """
        path = self.directory / name / "unsynced"
        if path.exists():
            return
        try:
            with open(path, "w", encoding="ascii") as file:
                file.write(boot_id())
                file.flush()
                os.fsync(file.fileno())
        except FileNotFoundError as error:
            raise ReplicaDeleted(f"The replica in '{path.parent}' was deleted.") from error

    def mark_synced(self, name: str) -> None:
        """Record that all commits are on disk.

        Called after a sync, inside a write transaction that writes nothing.
        """
        (self.directory / name / "unsynced").unlink(missing_ok=True)

    def _exists(self, name: str) -> bool:
        return (self.directory / name / "data.mdb").exists()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.directory / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def clean_up(state_dir: Path, application: str) -> None:
    """Delete all replicas of an application on this host. They are restored when needed."""
    delete(state_dir / application)
    delete_leftovers(state_dir / application)
