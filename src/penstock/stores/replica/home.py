"""A replica's files as one process uses them: the current generation, opened, checked, replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.errors import TaskCorruptedException
from penstock.stores.bytes.lmdb import MAP_SIZE, Environment, EnvironmentClosed, Transaction
from penstock.stores.replica.directory import MOST_DELETIONS, ReplicaDeleted
from penstock.stores.replica.generations import Generations
from penstock.stores.replica.protocol import ReplicaAhead
from penstock.stores.replica.state import (
    FORMAT,
    META,
    ReplicaState,
    known_state,
    read_state,
    write_state,
)

T = TypeVar("T")


class ReplicaHome:
    """The way to the current generation, which is looked for at every use.

    What is handed out belongs to the wanted log, has the format of this penstock, and was not
    written before a crash of the host; else a new generation has taken its place.
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
        self._current: tuple[str, Environment, int] | None = None

    def guarded(self, work: Callable[[str, Environment], T]) -> T:
        """Do something with the current generation, and once again with a new one if it is bad.

        If the files are deleted meanwhile, which anybody may do as often as he likes, it is done
        again as often.
        """
        renewed, deletions = False, 0
        while True:
            name = self._generations.current()
            try:
                name, environment = self._opened()
                return work(name, environment)
            except EnvironmentClosed:
                # By another thread, which has found a new generation or let go of this one.
                self._current = None
            except ReplicaDeleted:
                deletions += 1
                if deletions > MOST_DELETIONS:
                    raise
                self.close()
                self._generations.renew(name)
            except TaskCorruptedException:
                if renewed:
                    raise
                self.close()
                self._generations.renew(name)
                renewed = True

    def as_it_was(self, work: Callable[[Environment], T]) -> T:
        """Do something with the generation that was used last, though it may be gone by now.

        Whoever has caught up with it finds there what he has brought to it.
        """
        if self._current is not None and self._current[2] == os.getpid():
            try:
                return work(self._current[1])
            except (EnvironmentClosed, TaskCorruptedException):
                # What to do then is known below.
                pass
        return self.guarded(lambda name, environment: work(environment))

    def state(self) -> ReplicaState:
        """How the replica stands."""

        def read(name: str, environment: Environment) -> ReplicaState:
            with environment.reading() as transaction:
                return known_state(transaction)

        return self.guarded(read)

    def write(
        self, generation: str, environment: Environment, work: Callable[[Transaction], T]
    ) -> T:
        """Let `work` write in one transaction; see `Environment.write`."""

        def marked(transaction: Transaction) -> T:
            self._generations.mark_unsynced(generation)
            return work(transaction)

        return environment.write(self._databases, marked)

    def begin_anew(self, batch: int) -> None:
        """A new generation on the order of a batch, unless that was carried out already.

        Whoever gives the order holds the lease. If it is an old order of somebody who did, rows
        are restored that need not have been.
        """

        def order(name: str, environment: Environment) -> str | None:
            with environment.reading() as transaction:
                state = known_state(transaction)
            return name if state.anew < batch else None

        stale = self.guarded(order)
        if stale is None:
            return
        self._generations.renew(stale)

        def mark(name: str, environment: Environment) -> None:
            def work(transaction: Transaction) -> None:
                state = known_state(transaction)
                state.anew = max(state.anew, batch)
                write_state(transaction, state)

            self.write(name, environment, work)

        self.guarded(mark)

    def settle(self) -> None:
        """Bring the rows to the disk, so that they are good after the host was started anew."""

        def settle(name: str, environment: Environment) -> None:
            environment.sync()

            def work(transaction: Transaction) -> None:
                # Nobody else writes meanwhile, so what is synced is all there is.
                environment.sync()
                self._generations.mark_synced(name)

            environment.write((), work)

        self.guarded(settle)

    def close(self) -> None:
        """Let go of the files, as soon as no transaction of this process is open."""
        current, self._current = self._current, None
        if current is not None and current[2] == os.getpid():
            current[1].close()

    def _opened(self) -> tuple[str, Environment]:
        while True:
            name = self._generations.current()
            if self._current is not None:
                known, environment, process = self._current
                if known == name and process == os.getpid():
                    return known, environment
                self.close()
            if name is None or not self._generations.is_sound(name):
                self._generations.renew(name)
                continue
            try:
                environment = self._generations.open(name, self._map_size)
            except FileNotFoundError:
                self._generations.renew(name)
                continue
            try:
                environment.prepare(self._databases)
                state = self._introduced(name, environment)
            except BaseException:
                environment.close()
                raise
            if (state.format, state.log_id) == (FORMAT, self._log_id):
                self._current = (name, environment, os.getpid())
            else:
                environment.close()
                self._generations.renew(name)

    def _introduced(self, name: str, environment: Environment) -> ReplicaState:
        """The state of a generation; a new one gets its first."""
        with environment.reading() as transaction:
            state = read_state(transaction)
        if state is not None:
            return state

        def work(transaction: Transaction) -> ReplicaState:
            state = read_state(transaction)
            if state is None:
                state = ReplicaState(FORMAT, self._log_id)
                write_state(transaction, state)
            return state

        return self.write(name, environment, work)


def zombie(why: str, directory: Path) -> ReplicaAhead:
    """The error for a replica that is ahead of the plan."""
    return ReplicaAhead(
        f"The replica in '{directory}' is ahead of the plan: {why}. Either another driver has gone "
        "on with this application, or the log was put back to an earlier state."
    )
