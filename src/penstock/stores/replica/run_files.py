"""Files that a run of a task leaves on its host, for the case that it is the one committed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from penstock.stores.replica.directory import within

#: (batch, attempt)
Run = tuple[int, int]


class RunFiles:
    """The files of one kind in the directory of a task: `<kind>-<batch>-<attempt>`."""

    def __init__(self, directory: Path, kind: str) -> None:
        self._directory = directory
        self._kind = kind

    def write(self, run: Run, data: bytes) -> None:
        """Write the file of a run; it is there as a whole or not at all."""
        path = self._path(run)
        draft = path.with_name(f"{path.name}.{os.getpid()}.draft")

        def write() -> None:
            draft.write_bytes(data)
            os.replace(draft, path)

        try:
            within(self._directory, write)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def read(self, run: Run) -> bytes:
        """What a run has left on this host; `OSError` if it has not."""
        return self._path(run).read_bytes()

    def remove(self, run: Run) -> None:
        """Nothing is left of a run."""
        self._path(run).unlink(missing_ok=True)

    def sweep(self, is_over: Callable[[int], bool]) -> None:
        """Remove what runs of batches that are over have left."""
        try:
            left = list(self._directory.glob(f"{self._kind}-*"))
        except FileNotFoundError:
            # Somebody has deleted everything in this very moment.
            return
        for path in left:
            batch = path.name.split("-")[1]
            if batch.isdigit() and is_over(int(batch)):
                path.unlink(missing_ok=True)

    def _path(self, run: Run) -> Path:
        return self._directory / f"{self._kind}-{run[0]}-{run[1]}"
