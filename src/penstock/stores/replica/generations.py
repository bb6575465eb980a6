"""The directory of a replica: which generation of files is the current one.

    <state_dir>/<application>/<sub-topology>_<partition>/
        current             the name of the current generation, replaced atomically
        lock                held while the current generation is chosen
        g<hex>/             a generation: one LMDB environment, and
            unsynced        since when (boot of the host) there are writes that need not be on disk
        g<hex>.<hex>.deleted/       what is left of a generation while it is deleted
        aside-<batch>-<attempt>     see `replica_aside`
        changes-<batch>-<attempt>   see `penstock.engine.worker.changelog_cache`

The name of a generation is never used twice, so whoever has an old one open keeps a consistent
view of it and finds the new one by reading `current`.
"""

from __future__ import annotations

import fcntl
import functools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.stores.bytes.lmdb import Environment
from penstock.stores.replica.directory import ReplicaDeleted, remove, remove_leavings, within

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """Differs whenever the host was started anew; empty if the host does not tell."""
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
        """The name of the current generation, None if there is none."""
        try:
            name = self._pointer.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return None
        return name if name.startswith("g") and name.isalnum() else None

    def open(self, name: str, map_size: int) -> Environment:
        """The environment of a generation; `FileNotFoundError` if it is gone."""
        return Environment.open(self.directory / name, map_size=map_size)

    def renew(self, seen: str | None) -> str:
        """Make a new, empty generation the current one, unless another took the place of `seen`.

        Answers the current one. The files of all others are removed.
        """
        return within(self.directory, functools.partial(self._renew, seen))

    def _renew(self, seen: str | None) -> str:
        with self._locked():
            current = self.current()
            if current is not None and current != seen and self._is_there(current):
                return current
            name = f"g{uuid.uuid4().hex}"
            Environment.open(self.directory / name, create=True).close()
            draft = self.directory / f"{name}.pointer"
            draft.write_text(name, encoding="ascii")
            os.replace(draft, self._pointer)
            for path in self.directory.iterdir():
                if path.name != name and path.name.startswith("g"):
                    remove(path)
            return name

    def is_sound(self, name: str) -> bool:
        """False if the host was started anew while there were writes that need not be on disk."""
        try:
            since = (self.directory / name / "unsynced").read_text(encoding="ascii")
        except FileNotFoundError:
            return True
        except (OSError, UnicodeDecodeError):
            return False
        return since == boot_id()

    def mark_unsynced(self, name: str) -> None:
        """To be called inside of every transaction that writes: the disk lags behind from there.

        `ReplicaDeleted` if the generation is gone: whoever has it open could go on with it.
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
        """To be called inside of a transaction that writes nothing, after everything was synced."""
        (self.directory / name / "unsynced").unlink(missing_ok=True)

    def _is_there(self, name: str) -> bool:
        return (self.directory / name / "data.mdb").exists()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.directory / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def clean_up(state_dir: Path, application: str) -> None:
    """Delete all replicas of an application on this host; they are restored when needed."""
    remove(state_dir / application)
    remove_leavings(state_dir / application)
