"""The outcome of a task in a batch, encoded for the driver.

Small appends travel inside the outcome. Large ones are staged in the log by the worker and only
referred to, so that they do not travel through Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.engine.packaging.escaping import escape_surrogates
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.blocks import (
    OUTCOME,
    ConsumedBlock,
    SentBlock,
    decode_frame,
    encode_frame,
)
from penstock.engine.worker.log_lines import LogLine
from penstock.engine.worker.record_groups import layout_of, schema_of
from penstock.log.types import Append, StagedRecords
from penstock.metric_catalogue import Reading
from penstock.metrics import SensorReading
from penstock.record import TaskId
from penstock.task.drops import DropNote


class RestoredStore(NamedTuple):
    """A store that was restored before the task ran, from offset `start` to `end`."""

    store: str
    topic: str
    partition: int
    start: int
    end: int
    records: int
    #: None for a global store.
    task_id: TaskId | None = None


class RestoringStore(NamedTuple):
    """A store whose restore from offset `start` to `end` has reached `position`."""

    store: str
    topic: str
    partition: int
    start: int
    position: int
    end: int


#: Called from time to time while the stores of a task are restored.
OnRestoring = Callable[[tuple[RestoringStore, ...]], object]


class Preparation(NamedTuple):
    """The work before a task could run, besides the usual work of a batch."""

    #: The lane's seconds up to this task, for the start of the worker and for stores that were not
    #: at the last batch. The outcomes of a lane count them up.
    seconds: float = 0.0
    #: Whether the worker has run no lane before.
    is_cold: bool = False
    #: How many stores read changes from the log, and from the changelog cache of the host.
    from_log: int = 0
    from_host: int = 0


class _OutcomeFields(msgspec.Struct, frozen=True):
    """Every field of an outcome except the records to append."""

    task_id: TaskId
    #: The state after the batch. Names the batch and the attempt of the lane.
    record: TaskRecord
    #: (topic, partition) -> the next offset to read from the log.
    offsets: Mapping[tuple[str, int], int] = {}
    sent: tuple[SentBlock, ...] = ()
    consumed: tuple[ConsumedBlock, ...] = ()
    #: Records taken from the log and from other tasks.
    records_consumed: int = 0
    #: Topic -> the records read from the log and their bytes, whether consumed or not.
    read: Mapping[str, tuple[int, int]] = {}
    #: (file or None for standard output, line)
    printed: tuple[tuple[str | None, str], ...] = ()
    logged: tuple[LogLine, ...] = ()
    restored: tuple[RestoredStore, ...] = ()
    counters: Mapping[str, int] = {}
    #: The records that were dropped.
    drops: tuple[DropNote, ...] = ()
    #: The values that the sensors of processors recorded.
    sensors: tuple[SensorReading, ...] = ()
    #: The measurements of the task, for its metrics.
    readings: tuple[Reading, ...] = ()
    #: Records of global topics that were dropped when this run updated the global stores.
    global_dropped: int = 0
    preparation: Preparation = Preparation()
    #: Facts about the worker's host that users should know. The driver logs each once.
    notices: tuple[str, ...] = ()
    commit_requested: bool = False
    #: Outputs that the worker has written itself. They are not among the appends.
    published: int = 0
    #: Changelog records that the worker has written itself. They are not among the appends.
    logged_changes: int = 0
    #: If set, nothing is committed. The outputs are then the dead letters of the failed record.
    failure: Failure | None = None


class TaskOutcome(_OutcomeFields, frozen=True, kw_only=True):
    """One task in one batch: what it consumed, and what to write for it."""

    #: Records for topics and for changelogs, in order. A partition may occur several times.
    outputs: tuple[Append, ...] = ()
    changes: tuple[Append, ...] = ()

    @property
    def input_records(self) -> int:
        """The number of records consumed from the log, without those of other tasks."""
        return self.records_consumed - sum(block.records for block in self.consumed)

    @property
    def written(self) -> tuple[int, int]:
        """The number of output records and of changelog records."""
        return (
            self.published + count_records(self.outputs),
            self.logged_changes + count_records(self.changes),
        )

    def staged_records(self) -> list[StagedRecords]:
        """The appends that are staged in the log."""
        return [
            append.records for append in (*self.outputs, *self.changes)
            if isinstance(append.records, StagedRecords)
        ]


def count_records(appends: Iterable[Append]) -> int:
    """Return the number of records to append."""
    total = 0
    for _, _, records in appends:
        total += records.records if isinstance(records, StagedRecords) else len(records)
    return total


class _AppendHeader(NamedTuple):
    """An append inside an encoded outcome; its records take `size` bytes of the payload."""

    topic: str
    partition: int
    layout: int
    size: int
    staged: StagedRecords | None

    def decode(self, payload: pa.Buffer) -> Append:
        if self.staged is not None:
            return Append(self.topic, self.partition, self.staged)
        records = pa.ipc.read_record_batch(payload, schema_of(self.layout))
        return Append(self.topic, self.partition, records)


class _EncodedOutcome(_OutcomeFields, frozen=True, kw_only=True):
    outputs: tuple[_AppendHeader, ...]
    changes: tuple[_AppendHeader, ...]


def encode_outcome(outcome: TaskOutcome) -> bytes:
    """Encode an outcome. Text from user code is escaped where UTF-8 cannot represent it."""
    payload: list[pa.Buffer] = []
    fields = _fields(outcome)
    fields["printed"] = tuple(
        (file and escape_surrogates(file), escape_surrogates(line))
        for file, line in outcome.printed
    )
    fields["failure"] = outcome.failure and outcome.failure.escape_surrogates()
    encoded = _EncodedOutcome(
        **fields,
        outputs=tuple(_encode_append(append, payload) for append in outcome.outputs),
        changes=tuple(_encode_append(append, payload) for append in outcome.changes),
    )
    return encode_frame(OUTCOME, encoded, payload)


def decode_outcome(data: bytes) -> TaskOutcome:
    """Decode an outcome that `encode_outcome` has encoded."""
    encoded, payload = decode_frame(data, _EncodedOutcome)
    at = 0
    appends: list[Append] = []
    for append in (*encoded.outputs, *encoded.changes):
        appends.append(append.decode(payload.slice(at, append.size)))
        at += append.size
    outputs = len(encoded.outputs)
    return TaskOutcome(
        **_fields(encoded), outputs=tuple(appends[:outputs]), changes=tuple(appends[outputs:])
    )


def decode_outcomes(blocks: Iterable[bytes]) -> list[TaskOutcome]:
    """Decode all outcomes of a batch, in the order of their tasks."""
    return sorted(map(decode_outcome, blocks), key=lambda outcome: outcome.task_id)


def _fields(outcome: _OutcomeFields) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in _OutcomeFields.__struct_fields__}


def _encode_append(append: Append, payload: list[pa.Buffer]) -> _AppendHeader:
    topic, partition, records = append
    if isinstance(records, StagedRecords):
        return _AppendHeader(topic, partition, 0, 0, records)
    assert isinstance(records, pa.RecordBatch)
    payload.append(records.serialize())
    return _AppendHeader(topic, partition, layout_of(records), payload[-1].size, None)
