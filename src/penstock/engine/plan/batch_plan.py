"""What one batch is to do: plain data, made by the driver, read by the workers.

A plan names everything that a task depends on: where it reads from and up to, what time it is,
which rows its stores hold, what it knew when it was last committed. A task that is run twice from
the same plan answers the same, wherever it runs.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock.record import NO_HEADERS, Headers, PartitionColumns, TaskId
from penstock.task.result import TaskState


class Range(NamedTuple):
    """Records of one partition: offsets from `start` up to, without, `end`.

    `cut`: the partition holds more behind it, so a task must not take its end for the end.
    """

    topic: str
    partition: int
    start: int
    end: int
    cut: bool


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task in one batch."""

    task_id: TaskId
    ranges: tuple[Range, ...] = ()
    state: TaskState = field(default_factory=TaskState)
    #: Store -> the end of its changelog (or of the source topic that serves as one) at the last
    #: commit: the replica must hold the rows up to there, no more and no less.
    positions: Mapping[str, int] = field(default_factory=dict)
    #: Topic that the shuffle carries -> how many of its records the task has taken so far; they
    #: are numbered on from there.
    shuffled_offsets: Mapping[str, int] = field(default_factory=dict)
    #: The batch and attempt that last changed the task: what a replica kept aside of it counts.
    last_batch: int = 0
    last_attempt: int = 0
    #: A wall-clock punctuation is due, so the task runs even without input.
    punctuate: bool = False
    #: For each range its records, if they are few and the driver has them. Otherwise empty.
    prefetched: tuple[PartitionColumns | None, ...] = ()
    #: What the ranges may hold together; those that hold more are cut. None: there is no limit.
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch. Tasks that are not in it have nothing to do and get no rows from others."""

    #: Counts the batches of the application from 1; a batch that is run again keeps its number.
    number: int
    #: The lease's: a replica that was written under a later one makes a worker stop.
    epoch: int
    #: The wall clock of the whole batch, epoch milliseconds; never goes back.
    now: int
    tasks: Mapping[TaskId, TaskPlan]
    #: (global topic, partition) -> the offset that the batch sees of it.
    global_positions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    #: Tasks whose replicas are not to be trusted: restored into a new directory.
    discard_replicas: frozenset[TaskId] = frozenset()
    #: Differs before and after a reset of the application: what a host has kept of an earlier life
    #: stands at offsets that mean something else.
    incarnation: str = ""


# ---- encoding --------------------------------------------------------------------------------

#: Smaller plans are not worth the time to compress them.
_COMPRESSION_THRESHOLD_BYTES = 16 * 1024
_PLAIN, _COMPRESSED = "p", "z"

_encode = msgspec.msgpack.Encoder().encode


def _decode_headers(kind: type, pairs: list[list[Any]]) -> Headers:
    """Decode `Headers`, the only type in a plan that msgspec does not know."""
    assert kind is Headers
    return Headers((name, value) for name, value in pairs) if pairs else NO_HEADERS


_decode = msgspec.msgpack.Decoder(BatchPlan, dec_hook=_decode_headers).decode


def encode_plan(plan: BatchPlan) -> str:
    """Encode a plan as ASCII, so that it fits into a Java property.

    The format has no version: a plan never outlives its batch.
    """
    data = _encode(plan)
    form = _PLAIN
    if len(data) >= _COMPRESSION_THRESHOLD_BYTES:
        data, form = zlib.compress(data, 1), _COMPRESSED
    return form + base64.b64encode(data).decode("ascii")


def decode_plan(text: str) -> BatchPlan:
    """Decode a plan that `encode_plan` has encoded."""
    data = base64.b64decode(text[1:])
    if text[0] == _COMPRESSED:
        data = zlib.decompress(data)
    return _decode(data)
