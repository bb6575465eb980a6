"""The topics of a test, in memory: what a log is to an application, less the disk."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.record import Headers
from penstock.task.queue import RawRecord
from penstock.task.result import LoggedChange, Output, TaskResult

#: A source partition: the name of its queue (a topic, or the text of a pattern) and a number.
Partition = tuple[str, int]


class InputRecord(NamedTuple):
    """A record that came to a topic which the topology reads."""

    queue: str
    record: RawRecord


class MemoryLog:
    """All that has been written, and how far it has been read.

    The truth about what a crash leaves behind: records in the order in which they came, over all
    topics; committed offsets; changelogs. Nothing is forgotten, so a store can be restored from the
    beginning.
    """

    def __init__(self) -> None:
        self.arrivals: list[InputRecord] = []
        #: Where each source partition is to be read on after a crash.
        self.offsets: dict[Partition, int] = {}
        #: (store, task's partition) -> its changelog.
        self.changelogs: dict[tuple[str, int], list[LoggedChange]] = {}
        #: What the test has not read yet, by topic.
        self.unread: dict[str, deque[Output]] = {}
        self._ends: dict[Partition, int] = {}

    def append(
        self, queue: str, topic: str, partition: int, timestamp: int,
        content: tuple[bytes | None, bytes | None, Headers],
    ) -> RawRecord:
        """A record of a topic that is read; it gets the next offset of its partition."""
        offset = self._ends.get((queue, partition), 0)
        self._ends[queue, partition] = offset + 1
        record = RawRecord(topic, partition, offset, timestamp, *content)
        self.arrivals.append(InputRecord(queue, record))
        return record

    def records(self, queue: str, partition: int) -> list[RawRecord]:
        """The records of a source partition that are committed as read."""
        end = self.offsets.get((queue, partition), 0)
        return [
            record for name, record in self.arrivals
            if name == queue and record.partition == partition and record.offset < end
        ]

    def commit(self, result: TaskResult, application_id: str) -> list[Output]:
        """Take what a task wants to happen; answers the records it wrote."""
        self.offsets.update(result.offsets)
        partition = result.task_id.partition
        for change in map(LoggedChange._make, result.changelog):
            topic = f"{application_id}-{change.store}-changelog"
            self.changelogs.setdefault((change.store, partition), []).append(change)
            self.queue_of(topic).append(
                Output(topic, partition, change.key, change.value, change.timestamp, change.headers)
            )
        outputs = list(map(Output._make, result.outputs))
        for output in outputs:
            self.queue_of(output.topic).append(output)
        return outputs

    def queue_of(self, topic: str) -> deque[Output]:
        """The records of a topic that were not read yet, to be taken from the left."""
        return self.unread.setdefault(topic, deque())
