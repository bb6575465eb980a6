"""The data that callers and replicas exchange: stores, changelogs, positions. No LMDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from penstock.errors import TaskMigratedException
from penstock.record import PartitionColumns
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.replica.layouts import StoreLayout


@dataclass(frozen=True, slots=True)
class ReplicaStore:
    """A store of a task, as its replica sees it."""

    name: str
    #: Whether the store has a changelog, or a source topic that serves as one.
    logged: bool
    #: Builds the opened store over given rows, with logging off. None for a store that manages its
    #: own state: the replica then keeps the last changelog record of each key.
    build: Callable[[OpenBytesStore], Any] | None
    #: Whether the changelog alone determines the rows. False for an LRU map, whose order of use is
    #: known only to the commit.
    restores_from_changelog: bool = True
    #: How its rows are stored; None for a store that manages its own state.
    layout: StoreLayout | None = None


def layouts_of(stores: Mapping[str, ReplicaStore]) -> dict[str, StoreLayout]:
    """Return store -> its layout, for the stores that have one."""
    return {name: store.layout for name, store in stores.items() if store.layout is not None}


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """The position that a replica must have before the task can run. Taken from the plan."""

    #: Store -> changelog offset (exclusive), for every logged store.
    offsets: Mapping[str, int]
    #: The epoch of the lease. Rows written under a later epoch make the task a zombie. None for a
    #: standby, which follows committed changelogs without a lease.
    epoch: int | None = None
    #: Store -> its clocks at the commit that the offsets belong to.
    clocks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: The batch and attempt that last changed the task.
    last_run: tuple[int, int] = (0, 0)
    #: The number of the batch that ordered a rebuild of the replica, if one did.
    rebuild_batch: int | None = None


class ChangelogBatch(Protocol):
    """Consecutive records of a changelog. `LogBatch` satisfies it."""

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch starts."""
        ...

    @property
    def tombstones_removed_to(self) -> int:
        """The value at the time of the read; see the contract of the log."""
        ...

    def __len__(self) -> int: ...

    def columns(self) -> PartitionColumns:
        """The records."""
        ...


class ChangelogStart(NamedTuple):
    """The first offset of a changelog, and the offset below which tombstones may be missing."""

    offset: int
    tombstones_removed_to: int = 0


class Changelogs(Protocol):
    """The changelogs of a task's stores, by store name."""

    def start(self, store: str) -> ChangelogStart:
        """The current start of the changelog."""
        ...

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[ChangelogBatch]:
        """Read the records from `start` (inclusive) to `end` (exclusive).

        `since` is the time at which the reader reached `start`, in epoch milliseconds; None if the
        reader holds no rows yet. Raises `ChangelogTruncated`, at once or while iterating, if the
        log has removed records from `start` on that the reader needs.
        """
        ...


class ChangelogTruncated(Exception):
    """The log has removed records that the reader still needs."""


class ReplicaAhead(TaskMigratedException):
    """The replica is ahead of the plan: another driver has continued the application."""


class StoreRestore(NamedTuple):
    """The complete restore of a store: `records` records from offset `start` to `end`."""

    store: str
    start: int
    end: int
    records: int


class StoreProgress(NamedTuple):
    """The restore of a store from offset `start` to `end`, which has reached `position`."""

    store: str
    start: int
    position: int
    end: int


#: Called after each chunk of a restore that is not complete, with all stores that are restored.
ProgressListener = Callable[[list[StoreProgress]], object]


def ignore_progress(stores: list[StoreProgress]) -> None:
    """A `ProgressListener` that does nothing."""


#: Called at each step of catching up: "restoring" before each chunk of a complete restore is read,
#: "applying" inside each write transaction. It may raise to stop the replica.
StepListener = Callable[[Literal["restoring", "applying"]], None]


def ignore_step(step: str) -> None:
    """A `StepListener` that does nothing."""
