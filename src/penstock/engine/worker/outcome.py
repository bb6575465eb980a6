"""What a task answers at the end of a batch: all it wants to happen, as bytes for the driver.

Small appends are in it. Large ones were put aside in the log by the worker and are only named, so
that they do not travel through Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.engine.packaging.escaping import encodable
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.task_records import TaskRecord, decode_task, encode_task
from penstock.engine.worker.blocks import OUTCOME, Consumed, framed, unframed
from penstock.engine.worker.columns import layout_of, schema_of
from penstock.log.types import Append, StagedRecords
from penstock.record import TaskId


class LogLine(NamedTuple):
    """Something that was logged while a task ran."""

    level: int
    logger: str
    text: str

    def encodable(self) -> LogLine:
        """The line with texts that can be written."""
        return LogLine(self.level, encodable(self.logger), encodable(self.text))


class Restored(NamedTuple):
    """A store that was filled from its topic before the task ran: offsets from start to end."""

    store: str
    topic: str
    partition: int
    start: int
    end: int
    records: int


class Sent(NamedTuple):
    """Records that a task handed to another one of the same batch."""

    target: TaskId
    topic: str
    rows: int


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One task in one batch: what it consumed, and what is to be written for it."""

    task_id: TaskId
    #: What the task is left with; names the batch, and the attempt of the lane that ran the task.
    record: TaskRecord
    #: Records for topics, and for changelogs, in order; one for each partition, or several.
    outputs: tuple[Append, ...] = ()
    changes: tuple[Append, ...] = ()
    #: (topic, partition) -> where to go on in the log.
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()
    consumed: tuple[Consumed, ...] = ()
    #: Records taken from the log and from other tasks.
    taken: int = 0
    #: Topic -> how many of its records were read from the log, taken or not, and their bytes.
    read: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    printed: tuple[tuple[str | None, str], ...] = ()
    logged: tuple[LogLine, ...] = ()
    restored: tuple[Restored, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    commit_requested: bool = False
    #: How many outputs the worker has published by itself, which it does when at least once is
    #: enough; they are not among the appends.
    published: int = 0
    #: Then nothing else counts.
    failure: Failure | None = None

    @property
    def written(self) -> tuple[int, int]:
        """How many outputs and changes there are in all."""
        return self.published + records_in(self.outputs), records_in(self.changes)

    def blobs(self) -> list[StagedRecords]:
        """What was put aside for it."""
        return [
            append.records for append in (*self.outputs, *self.changes)
            if isinstance(append.records, StagedRecords)
        ]


def records_in(appends: Iterable[Append]) -> int:
    """How many records there are to append."""
    total = 0
    for _, _, records in appends:
        total += records.records if isinstance(records, StagedRecords) else len(records)
    return total


def encode_outcome(outcome: TaskOutcome) -> bytes:
    """The outcome as bytes. What users have written in it is made encodable first."""
    payload: list[pa.Buffer] = []
    header = _Header(
        outcome.task_id, msgspec.Raw(encode_task(outcome.record)),
        [_append_form(append, payload) for append in outcome.outputs],
        [_append_form(append, payload) for append in outcome.changes],
        [(topic, partition, at) for (topic, partition), at in outcome.offsets.items()],
        outcome.sent, outcome.consumed, outcome.taken, dict(outcome.read),
        tuple((file and encodable(file), encodable(line)) for file, line in outcome.printed),
        tuple(line.encodable() for line in outcome.logged),
        outcome.restored, dict(outcome.counters), outcome.commit_requested, outcome.published,
        outcome.failure and outcome.failure.encodable(),
    )
    return framed(OUTCOME, header, payload)


def decode_outcome(data: bytes) -> TaskOutcome:
    """The outcome that was encoded."""
    header, payload = unframed(data, _Header)
    at = 0
    appends: tuple[list[Append], list[Append]] = ([], [])
    for forms, taken in zip((header.outputs, header.changes), appends, strict=True):
        for form in forms:
            taken.append(form.append(payload.slice(at, form.size)))
            at += form.size
    return TaskOutcome(
        header.task_id, decode_task(header.record), tuple(appends[0]), tuple(appends[1]),
        {(topic, partition): offset for topic, partition, offset in header.offsets},
        header.sent, header.consumed, header.taken, header.read, header.printed,
        header.logged, header.restored, header.counters, header.commit_requested,
        header.published, header.failure,
    )


def decode_outcomes(blocks: Iterable[bytes]) -> list[TaskOutcome]:
    """All outcomes of a batch, in the order of their tasks."""
    return sorted(map(decode_outcome, blocks), key=lambda outcome: outcome.task_id)


class _AppendForm(NamedTuple):
    """An append in the header; `size` bytes of the payload are its records."""

    topic: str
    partition: int
    layout: int
    size: int
    blob: StagedRecords | None

    def append(self, payload: pa.Buffer) -> Append:
        if self.blob is not None:
            return Append(self.topic, self.partition, self.blob)
        records = pa.ipc.read_record_batch(payload, schema_of(self.layout))
        return Append(self.topic, self.partition, records)


def _append_form(append: Append, payload: list[pa.Buffer]) -> _AppendForm:
    topic, partition, records = append
    if isinstance(records, StagedRecords):
        return _AppendForm(topic, partition, 0, 0, records)
    assert isinstance(records, pa.RecordBatch)
    payload.append(records.serialize())
    return _AppendForm(topic, partition, layout_of(records), payload[-1].size, None)


class _Header(msgspec.Struct, array_like=True):
    """Everything but the records; the fields are those of `TaskOutcome`."""

    task_id: TaskId
    record: msgspec.Raw
    outputs: list[_AppendForm]
    changes: list[_AppendForm]
    offsets: list[tuple[str, int, int]]
    sent: tuple[Sent, ...]
    consumed: tuple[Consumed, ...]
    taken: int
    read: dict[str, tuple[int, int]]
    printed: tuple[tuple[str | None, str], ...]
    logged: tuple[LogLine, ...]
    restored: tuple[Restored, ...]
    counters: dict[str, int]
    commit_requested: bool
    published: int
    failure: Failure | None
