"""The cut at which stores are read: the committed ends of all their partitions at one time.

In batch mode one transaction commits all tasks; in continuous mode a transaction commits the tasks
of one lane. At a cut, each transaction is visible in all partitions or in none. If partitions of a
Kafka cluster have open transactions all the time, the cut is taken anyway after `_PATIENCE_S`: then
each partition is at the end of a transaction, but not all at the same one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from penstock.engine.spark.sources.store_layout import StoreLayout
from penstock.log.base import Log
from penstock.log.errors import LogBusy
from penstock.log.types import PartitionOffsets, TopicPartition

log = logging.getLogger(__name__)

_PATIENCE_S = 10.0
_ATTEMPTS = 20


def store_ends(source: Log, layouts: Iterable[StoreLayout]) -> dict[str, dict[int, int]]:
    """Return store -> partition -> the offset after its last committed change."""
    layouts = list(layouts)
    partitions = {
        each.name: [
            TopicPartition(each.topic, number)
            for number in range(source.topic(each.topic).partitions)
        ]
        for each in layouts
    }
    # A store that is restored from a source topic ends where the application has processed it.
    fed = {
        each.group: [where for other in layouts if other.group == each.group
                     for where in partitions[other.name]]
        for each in layouts if each.group is not None
    }
    changelogs = {
        where for each in layouts if each.group is None for where in partitions[each.name]
    }
    processed = _processed(source, fed)
    for _ in range(_ATTEMPTS):
        ends = _changelog_ends(source, changelogs)
        before, processed = processed, _processed(source, fed)
        if before == processed:
            break
    bounds = {**source.offsets({where for each in fed.values() for where in each}), **ends}
    return {
        each.name: {
            where.partition: _end(bounds[where], None if each.group is None
                                  else processed.get((each.group, where), 0))
            for where in partitions[each.name]
        }
        for each in layouts
    }


def _changelog_ends(
    source: Log, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionOffsets]:
    wanted = sorted(partitions)
    try:
        return source.settled_offsets(wanted, timeout_s=_PATIENCE_S)
    except LogBusy as error:
        log.warning("The stores are not read at one commit: %s", error)
        return source.offsets(wanted)


def _processed(
    source: Log, fed: Mapping[str, list[TopicPartition]]
) -> dict[tuple[str, TopicPartition], int]:
    return {
        (group, where): found.offset for group, partitions in fed.items()
        for where, found in source.committed(group, partitions).items()
    }


def _end(bounds: PartitionOffsets, processed: int | None) -> int:
    end = bounds.end if processed is None else min(bounds.end, processed)
    return max(end, bounds.start)
