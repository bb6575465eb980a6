"""The metadata of committed offsets has the format of Kafka Streams."""

from __future__ import annotations

import base64
import struct

import pytest

from penstock.engine.plan.offset_metadata import OffsetMetadata, add_metadata, resume_state
from penstock.log.types import CommittedOffset, TopicPartition
from penstock.task.result import TaskState

IN = TopicPartition("in", 0)
CLOCKS = {"windows/emitted-close-time": "closed"}


@pytest.mark.parametrize("metadata", [
    OffsetMetadata(), OffsetMetadata(1_700_000_000_000),
    OffsetMetadata(5, {"closed": 3, "größte": -1}),
])
def test_metadata_can_be_decoded(metadata: OffsetMetadata) -> None:
    assert OffsetMetadata.decode(metadata.encode()) == metadata


@pytest.mark.parametrize(("text", "expected"), [
    # As TopicPartitionMetadata of Kafka Streams writes it: version 1, version 2 with a map.
    ("AQAAAAAAAAAF", OffsetMetadata(5)),
    ("AgAAAAAAAAAF", OffsetMetadata(5)),
    ("AgAAAAAAAAAFAAAAAQAAAAFhAAAAAAAAAAc=", OffsetMetadata(5, {"a": 7})),
    # An unknown version, and metadata of other clients.
    ("AwAAAAAAAAAF", OffsetMetadata()),
    ("", OffsetMetadata()), ("some text", OffsetMetadata()), ("AgAA", OffsetMetadata()),
    ("Pythagoras", OffsetMetadata()),
    # More characters than were committed.
    ("AgAAAAAAAAAFAAAAAg==", OffsetMetadata(5)), ("AgAAAAAAAAAF1", OffsetMetadata(5)),
    ("AgAAAAAAAAAFAAAAAQAAAAFhAAAAAAAAAAc=1x", OffsetMetadata(5, {"a": 7})),
    ("AgAAAAAAAAAFAAAAAQAAAARmaW5hAAAAAAAAAAc1ABCDEFGH", OffsetMetadata(5, {"fina": 7})),
])
def test_metadata_of_other_clients_is_read(text: str, expected: OffsetMetadata) -> None:
    assert OffsetMetadata.decode(text) == expected


def test_metadata_with_a_negative_length_has_no_close_times() -> None:
    # Each name of this length would begin where the one before began.
    data = struct.pack(">bqiiq", 2, 5, 2**31 - 1, -12, 0)
    text = base64.b64encode(data).decode()
    assert OffsetMetadata.decode(text) == OffsetMetadata(5)


def test_offsets_get_the_times_of_their_task() -> None:
    states = (
        TaskState(9, {("in", 0): 9}, {"windows/emitted-close-time": 7, "other": 1}),
        TaskState(4, {("in", 1): 4}, {"windows/emitted-close-time": -1}),
    )
    offsets = {IN: 3, TopicPartition("in", 1): 5, TopicPartition("new", 0): 0}
    found = add_metadata(offsets, states, CLOCKS)
    assert {at: (each.offset, OffsetMetadata.decode(each.metadata)) for at, each in found.items()
            } == {
        IN: (3, OffsetMetadata(9, {"closed": 7})),
        TopicPartition("in", 1): (5, OffsetMetadata(4)),
        TopicPartition("new", 0): (0, OffsetMetadata()),
    }


def test_later_time_wins() -> None:
    def resumed(state: TaskState, metadata: OffsetMetadata) -> TaskState:
        return resume_state(state, {IN: CommittedOffset(1, metadata.encode())}, CLOCKS)

    record = TaskState(9, {("in", 0): 9, ("too", 0): 8}, {"windows/emitted-close-time": 7})
    assert resumed(record, OffsetMetadata(8, {"closed": 6, "unknown": 70})) is record
    assert resumed(record, OffsetMetadata(12, {"closed": 10})) == TaskState(
        12, {("in", 0): 12, ("too", 0): 8}, {"windows/emitted-close-time": 10}
    )
    assert resumed(TaskState(), OffsetMetadata(3)) == TaskState(3, {("in", 0): 3})
    assert resumed(TaskState(), OffsetMetadata()) == TaskState()
