"""The LMDB environment of a replica: opens the current generation, verifies and rebuilds it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.errors import TaskCorruptedException
from penstock.stores.bytes.lmdb.environment import (
    MAP_SIZE,
    EnvironmentClosed,
    LmdbEnvironment,
    LmdbTransaction,
)
from penstock.stores.replica.files import MAX_DELETIONS, ReplicaDeleted
from penstock.stores.replica.generations import Generations
from penstock.stores.replica.protocol import ReplicaAhead
from penstock.stores.replica.state import (
    FORMAT,
    META,
    ReplicaState,
    read_state,
    require_state,
    write_state,
)

T = TypeVar("T")


class ReplicaEnvironment:
    """The environment of the current generation, as one process uses it.

    Every use reads `current` again. An environment is used only if it belongs to the expected log,
    has the current format, and lost no commits in a crash of the host. Otherwise a new generation
    replaces it.
    """

    def __init__(
        self, directory: Path, log_id: str, databases: list[str], map_size: int = MAP_SIZE
    ) -> None:
        self.directory = directory
        self._log_id = log_id
        self._databases = [META, *databases]
        self._map_size = map_size
        self._generations = Generations(directory)
        #: The generation in use, its environment, and the process that opened it.
        self._current: tuple[str, LmdbEnvironment, int] | None = None

    def run(self, work: Callable[[str, LmdbEnvironment], T]) -> T:
        """Run `work` on the current generation: its name and environment.

        If the generation is corrupt, `work` runs once more on a new one. If the files are deleted,
        it runs again, up to `MAX_DELETIONS` times.
        """
        replaced, deletions = False, 0
        while True:
            name = self._generations.current()
            try:
                name, environment = self._open_current()
                return work(name, environment)
            except EnvironmentClosed:
                # Another thread has closed the environment or found a new generation.
                self._current = None
            except ReplicaDeleted:
                deletions += 1
                if deletions > MAX_DELETIONS:
                    raise
                self.close()
                self._generations.replace(name)
            except TaskCorruptedException:
                if replaced:
                    raise
                self.close()
                self._generations.replace(name)
                replaced = True

    def run_on_last(self, work: Callable[[LmdbEnvironment], T]) -> T:
        """Run `work` on the generation that was used last, even if its files were deleted.

        A caller that has caught up this generation finds its rows there.
        """
        if self._current is not None and self._current[2] == os.getpid():
            try:
                return work(self._current[1])
            except (EnvironmentClosed, TaskCorruptedException):
                # `run` handles both.
                pass
        return self.run(lambda name, environment: work(environment))

    def state(self) -> ReplicaState:
        """Read the state of the replica."""

        def read(name: str, environment: LmdbEnvironment) -> ReplicaState:
            with environment.reading() as transaction:
                return require_state(transaction)

        return self.run(read)

    def write(
        self, generation: str, environment: LmdbEnvironment, work: Callable[[LmdbTransaction], T]
    ) -> T:
        """Run `work` in one write transaction; see `LmdbEnvironment.write`."""

        def mark_and_write(transaction: LmdbTransaction) -> T:
            self._generations.mark_unsynced(generation)
            return work(transaction)

        return environment.write(self._databases, mark_and_write)

    def write_last(self, work: Callable[[LmdbTransaction], T]) -> T:
        """Run `work` in a write transaction of the generation that was used last.

        Raises `ReplicaDeleted` or `TaskCorruptedException` if the files are not usable any more.
        """
        if self._current is None or self._current[2] != os.getpid():
            raise TaskCorruptedException(f"The replica in '{self.directory}' is closed.")
        name, environment, _ = self._current
        return self.write(name, environment, work)

    def rebuild(self, batch: int) -> None:
        """Start a new generation on the order of a batch, unless that was done already.

        The lease holder gives the order. An order of a former lease holder only causes an
        unnecessary restore.
        """

        def stale_generation(name: str, environment: LmdbEnvironment) -> str | None:
            with environment.reading() as transaction:
                state = require_state(transaction)
            return name if state.rebuild_batch < batch else None

        stale = self.run(stale_generation)
        if stale is None:
            return
        self._generations.replace(stale)

        def record_order(name: str, environment: LmdbEnvironment) -> None:
            def work(transaction: LmdbTransaction) -> None:
                state = require_state(transaction)
                state.rebuild_batch = max(state.rebuild_batch, batch)
                write_state(transaction, state)

            self.write(name, environment, work)

        self.run(record_order)

    def sync(self) -> None:
        """Sync the rows to disk, so that they are valid after a reboot of the host."""

        def sync(name: str, environment: LmdbEnvironment) -> None:
            environment.sync()

            def work(transaction: LmdbTransaction) -> None:
                # No other process writes during this transaction, so this sync covers all commits.
                environment.sync()
                self._generations.mark_synced(name)

            environment.write((), work)

        self.run(sync)

    def close(self) -> None:
        """Close the environment once this process has no transaction on it."""
        current, self._current = self._current, None
        if current is not None and current[2] == os.getpid():
            current[1].close()

    def _open_current(self) -> tuple[str, LmdbEnvironment]:
        while True:
            name = self._generations.current()
            if self._current is not None:
                known, environment, process = self._current
                if known == name and process == os.getpid():
                    return known, environment
                self.close()
            if name is None or not self._generations.is_sound(name):
                self._generations.replace(name)
                continue
            try:
                environment = self._generations.open(name, self._map_size)
            except FileNotFoundError:
                self._generations.replace(name)
                continue
            try:
                environment.prepare(self._databases)
                state = self._read_or_create_state(name, environment)
            except BaseException:
                environment.close()
                raise
            if (state.format, state.log_id) == (FORMAT, self._log_id):
                self._current = (name, environment, os.getpid())
            else:
                environment.close()
                self._generations.replace(name)

    def _read_or_create_state(self, name: str, environment: LmdbEnvironment) -> ReplicaState:
        with environment.reading() as transaction:
            state = read_state(transaction)
        if state is not None:
            return state

        def work(transaction: LmdbTransaction) -> ReplicaState:
            state = read_state(transaction)
            if state is None:
                state = ReplicaState(FORMAT, self._log_id)
                write_state(transaction, state)
            return state

        return self.write(name, environment, work)


def replica_ahead(reason: str, directory: Path) -> ReplicaAhead:
    """The error for a replica that is ahead of the plan."""
    return ReplicaAhead(
        f"The replica in '{directory}' is ahead of the plan: {reason}. Either another driver has "
        "continued this application, or the log was set back to an earlier state."
    )
