"""The topics, committed offsets and changelogs of a test, in memory."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.record import Headers
from penstock.task.queue import RawRecord
from penstock.task.result import LoggedChange, Output, TaskResult

#: A source partition: the name of its queue (a topic, or a pattern) and a number.
Partition = tuple[str, int]


class InputRecord(NamedTuple):
    """A record of a topic that the topology reads, and its queue."""

    queue: str
    record: RawRecord


class MemoryLog:
    """The state that survives a crash.

    Holds the input records of all topics in their order of arrival, the committed offsets and the
    changelogs. Nothing is deleted, so a store can be restored from the beginning.
    """

    def __init__(self) -> None:
        self.inputs: list[InputRecord] = []
        #: The committed offset of each source partition.
        self.offsets: dict[Partition, int] = {}
        #: (store, partition of the task) -> its changelog.
        self.changelogs: dict[tuple[str, int], list[LoggedChange]] = {}
        #: The output records that the test has not read yet, by topic.
        self.unread: dict[str, deque[Output]] = {}
        self._ends: dict[Partition, int] = {}

    def append(
        self, queue: str, topic: str, partition: int, timestamp: int,
        content: tuple[bytes | None, bytes | None, Headers],
    ) -> RawRecord:
        """Append a record to a source topic, with the next offset of its partition."""
        offset = self._ends.get((queue, partition), 0)
        self._ends[queue, partition] = offset + 1
        record = RawRecord(topic, partition, offset, timestamp, *content)
        self.inputs.append(InputRecord(queue, record))
        return record

    def records(self, queue: str, partition: int) -> list[RawRecord]:
        """Return the records of a source partition below its committed offset."""
        end = self.offsets.get((queue, partition), 0)
        return [
            record for name, record in self.inputs
            if name == queue and record.partition == partition and record.offset < end
        ]

    def commit(self, result: TaskResult, application_id: str) -> list[Output]:
        """Apply the result of a task; return its output records."""
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
        """Return the queue of output records of a topic that were not read yet."""
        return self.unread.setdefault(topic, deque())
