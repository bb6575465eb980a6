"""What a replica is told and asked: stores, changelogs, positions. Plain data, no LMDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from penstock.errors import TaskMigratedException
from penstock.record import Rows
from penstock.stores.bytes.store import OpenInner


@dataclass(frozen=True, slots=True)
class FollowedStore:
    """A store of a task, as a replica sees it."""

    name: str
    #: Whether it has a changelog, or a source topic that serves as one.
    logged: bool
    #: Makes the store, open, over given rows; it logs nothing. None: it keeps no rows of its own,
    #: so the replica keeps its changelog records, the last one for each key.
    build: Callable[[OpenInner], Any] | None
    #: Whether the changelog tells all there is to know of the rows, up to any offset; an LRU map
    #: wants to know in which order they were used, too, and that only a commit tells.
    is_told_by_changelog: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a replica has to stand for a task to run: what the plan says."""

    #: Store -> the changelog offset up to which its rows are wanted; every logged store.
    targets: Mapping[str, int]
    #: The lease's: rows that were written under a later one make the task a zombie. None: whoever
    #: wants it only follows what is committed, and holds no lease.
    epoch: int | None = None
    #: Store -> its clocks at the commit that the targets belong to.
    clocks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: The batch and attempt that last changed the task.
    last: tuple[int, int] = (0, 0)
    #: Not None: the number of the batch that ordered a new directory.
    anew: int | None = None


class ChangelogBatch(Protocol):
    """Consecutive records of a changelog; a `LogBatch` is one."""

    @property
    def next_offset(self) -> int:
        """Where to read on after it."""
        ...

    @property
    def tombstones_removed_to(self) -> int:
        """As it was when the batch was read; see the contract of the log."""
        ...

    def __len__(self) -> int: ...

    def rows(self) -> Rows:
        """The records."""
        ...


class Oldest(NamedTuple):
    """Where a changelog begins, and up to where tombstones may be missing in it."""

    start: int
    tombstones_removed_to: int = 0


class Changelogs(Protocol):
    """The changelogs of a task's stores, by store."""

    def oldest(self, store: str) -> Oldest:
        """How the changelog stands right now."""
        ...

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[ChangelogBatch]:
        """All records from `start` up to, without, `end`.

        `since`: when the reader came to `start`, in epoch milliseconds; None if it has nothing yet.
        Raises `Overtaken`, at once or in a step, if there are no records from `start` any more, or
        if some of them may have been removed that the reader needs.
        """
        ...


class Overtaken(Exception):
    """The log has removed what would have been read next."""


class ReplicaAhead(TaskMigratedException):
    """The replica holds more than the plan knows of: another driver has gone on."""


class Filled(NamedTuple):
    """A store that was filled from nothing: offsets from `start` to `end`."""

    store: str
    start: int
    end: int
    records: int


#: Hears where a replica stands: "restoring" before each part of a store that is filled from
#: nothing is read, "applying" inside every transaction that writes.
Reached = Callable[[Literal["restoring", "applying"]], None]


def unheard(step: str) -> None:
    """Nobody wants to know."""
