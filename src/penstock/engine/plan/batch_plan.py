"""`BatchPlan`: the work of one batch, as plain data that the driver sends to the workers.

A plan contains everything that a task depends on: the offsets it reads, the wall clock, the
positions of its stores, and its state at the last commit. A task that runs twice from the same plan
has the same result, on any host.
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
    """Records of one partition, from offset `start` (inclusive) to `end` (exclusive).

    `cut`: more records may follow, so the task must stop where it has exhausted the range.
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
    #: commit. The replica must be at exactly this position.
    positions: Mapping[str, int] = field(default_factory=dict)
    #: Topic that the shuffle carries -> how many of its records the task has consumed. The next
    #: records get the offsets from there on.
    shuffled_offsets: Mapping[str, int] = field(default_factory=dict)
    #: The batch and attempt that last changed the task. A replica may use what they have staged.
    last_batch: int = 0
    last_attempt: int = 0
    #: A wall-clock punctuation is due, so the task runs even without input.
    punctuate: bool = False
    #: For each range its records, if they are few and the driver has them. Otherwise empty.
    prefetched: tuple[PartitionColumns | None, ...] = ()
    #: The size limit of all ranges together. Ranges that hold more are cut. None: no limit.
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch. Tasks that are not in it have nothing to do and receive no records."""

    #: Counts the batches of the application from 1. A rerun keeps the number.
    number: int
    #: The epoch of the lease. A replica with a later epoch stops the worker.
    epoch: int
    #: The wall clock of the whole batch: epoch milliseconds. It never goes back.
    now: int
    tasks: Mapping[TaskId, TaskPlan]
    #: (global topic, partition) -> the end offset that the batch sees.
    global_positions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    #: Tasks whose replicas are not reliable. They are restored into a new directory.
    discard_replicas: frozenset[TaskId] = frozenset()
    #: Identifies the time between two resets of the application. The positions of a replica are
    #: valid in one incarnation only.
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
    encoding = _PLAIN
    if len(data) >= _COMPRESSION_THRESHOLD_BYTES:
        data, encoding = zlib.compress(data, 1), _COMPRESSED
    return encoding + base64.b64encode(data).decode("ascii")


def decode_plan(text: str) -> BatchPlan:
    """Decode a plan that `encode_plan` has encoded."""
    data = base64.b64decode(text[1:])
    if text[0] == _COMPRESSED:
        data = zlib.decompress(data)
    return _decode(data)
