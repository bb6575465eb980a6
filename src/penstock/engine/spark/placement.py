"""Assigns lanes to hosts, so that a task runs where its state is.

The replica of a task stays on the host that ran it. On any other host the task first reads its
changelogs. Spark chooses any free slot for a lane, so the driver gives every lane a preferred host.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.record import TaskId

if TYPE_CHECKING:
    from penstock.engine.packaging.bundle import Bundle

#: How often the executors are read again.
REFRESH_S = 2.0

#: Stage -> lane -> the preferred host.
Hosts = tuple[tuple[str, ...], ...]


class TaskHomes:
    """Which host holds the state of which task. Outlives a `Placement`, not the driver.

    It may be out of date: then a task reads its changelogs and has a new home.
    """

    def __init__(self) -> None:
        self._homes: dict[tuple[str, TaskId], str] = {}

    def of(self, application_id: str, tasks: Sequence[TaskId]) -> str | None:
        """Return the host that holds the state of most of the tasks."""
        found = Counter(
            home for task_id in tasks
            if (home := self._homes.get((application_id, task_id))) is not None
        )
        return max(found, key=lambda host: (found[host], host)) if found else None

    def move(self, application_id: str, tasks: Sequence[TaskId], host: str) -> None:
        """Remember that the tasks run on a host."""
        for task_id in tasks:
            self._homes[application_id, task_id] = host


class Placement:
    """The preferred host of every lane of an application.

    `hosts` changes only if executors have come or gone, or if a lane ran elsewhere. Every host gets
    lanes of a stage in proportion to its slots. Within this limit lanes stay where they are.
    """

    def __init__(
        self, bundle: Bundle, homes: TaskHomes, read_slots: Callable[[], Mapping[str, int]],
        *, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read_slots` returns the slots of each host; nothing if the lanes need no hosts."""
        self._application_id = bundle.config.application_id
        self._lanes = tuple(
            tuple(bundle.tasks(stage, lane) for lane in range(lanes))
            for stage, lanes in enumerate(bundle.lanes)
        )
        self._homes = homes
        self._read_slots = read_slots
        self._clock = clock
        self._read_at: float | None = None
        self._slots: Mapping[str, int] = {}
        #: None if there are no executors to choose from.
        self._hosts: Hosts | None = None

    def hosts(self) -> Hosts | None:
        """Return the preferred hosts for the next job, or None if there is no choice."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= REFRESH_S:
            self._read_at = now
            slots = dict(self._read_slots())
            if slots != self._slots:
                self._slots = slots
                self._assign()
        return self._hosts

    def observe(self, stage: int, lane: int, host: str) -> bool:
        """Move a lane that ran on another host than the preferred one. Returns whether it did."""
        if self._hosts is None or self._hosts[stage][lane] == host:
            return False
        self._homes.move(self._application_id, self._lanes[stage][lane], host)
        lanes = list(self._hosts[stage])
        lanes[lane] = host
        self._hosts = (*self._hosts[:stage], tuple(lanes), *self._hosts[stage + 1:])
        return True

    def _assign(self) -> None:
        if len(self._slots) < 2:
            self._hosts = None
            return
        used: Counter[str] = Counter()
        stages = []
        for lanes in self._lanes:
            homes = [self._homes.of(self._application_id, tasks) for tasks in lanes]
            hosts = assign_lanes(homes, self._slots, used)
            used.update(hosts)
            for tasks, host in zip(lanes, hosts, strict=True):
                self._homes.move(self._application_id, tasks, host)
            stages.append(hosts)
        self._hosts = tuple(stages)


def assign_lanes(
    homes: Sequence[str | None], slots: Mapping[str, int], used: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """Return a host for each lane. `homes`: where the state of each lane is, if it is known.

    `used`: the lanes of other stages on each host. A host with fewer of them is preferred.
    """
    quotas = _quotas(len(homes), slots, Counter(homes), used or {})
    hosts: list[str | None] = []
    for home in homes:
        stays = home is not None and quotas[home] > 0
        hosts.append(home if stays else None)
        if stays:
            quotas[home or ""] -= 1
    free = iter(quotas.elements())
    return tuple(host if host is not None else next(free) for host in hosts)


def _quotas(
    lanes: int, slots: Mapping[str, int], homes: Mapping[str | None, int], used: Mapping[str, int]
) -> Counter[str]:
    """Distribute lanes over hosts in proportion to their slots; where that is a draw, first to
    hosts with state, then to hosts with little other work."""
    quotas: Counter[str] = Counter()
    for _ in range(lanes):
        quotas[max(slots, key=lambda host: (
            slots[host] / (quotas[host] + 1), homes.get(host, 0) - quotas[host] > 0,
            -used.get(host, 0), host,
        ))] += 1
    return quotas
