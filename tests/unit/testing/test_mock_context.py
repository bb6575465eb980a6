"""Tests of a single processor with `MockProcessorContext`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    PunctuationType,
    Record,
    RecordMetadata,
    Serdes,
    Stores,
    StreamsConfig,
    TaskId,
)
from penstock.testing import (
    CapturedForward,
    MockFixedKeyProcessorContext,
    MockProcessorContext,
    fixed_key_record,
)


class Busy(Processor[str, str]):
    def init(self, context: Any) -> None:
        super().init(context)
        self.schedule = context.schedule(
            timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, self.tick, start=500
        )

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)
        self.context.forward(record.with_value("left"), "left")
        if record.value == "stop":
            self.schedule.cancel()
            self.context.commit()

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(now), now))


def started() -> tuple[Busy, MockProcessorContext]:
    processor, context = Busy(), MockProcessorContext()
    processor.init(context)
    return processor, context


def test_forwarded_records_are_captured_with_the_child() -> None:
    processor, context = started()
    record = Record("k", "v", 1)
    processor.process(record)
    left = CapturedForward(record.with_value("left"), "left")
    assert context.forwarded() == [CapturedForward(record), left]
    assert context.forwarded("left") == [CapturedForward(record), left]
    assert context.forwarded("right") == [(record, None)]
    context.reset_forwards()
    assert context.forwarded() == []


def test_schedules_are_captured_and_called_by_the_test() -> None:
    processor, context = started()
    (scheduled,) = context.scheduled_punctuators
    assert (scheduled.interval_ms, scheduled.start) == (1_000, 500)
    assert scheduled.type is PunctuationType.WALL_CLOCK_TIME
    scheduled.punctuator(7)
    assert context.forwarded() == [(Record("tick", "7", 7), None)]
    processor.process(Record("k", "stop", 1))
    assert scheduled.cancelled


def test_requested_commit_is_captured() -> None:
    processor, context = started()
    processor.process(Record("k", "v", 1))
    assert not context.committed
    processor.process(Record("k", "stop", 1))
    assert context.committed
    context.reset_commit()
    assert not context.committed


def test_processor_sees_the_values_set_by_the_test() -> None:
    config = StreamsConfig(
        application_id="app", default_key_serde=Serdes.string(), extra={"my.limit": "3"}
    )
    context = MockProcessorContext(config, TaskId(1, 2), "somewhere")
    assert (context.application_id, str(context.task_id), context.state_dir) == (
        "app", "1_2", "somewhere",
    )
    assert context.key_serde is config.default_key_serde
    assert context.value_serde is None
    assert context.app_configs()["my.limit"] == "3"
    assert context.app_configs_with_prefix("my.") == {"limit": "3"}
    assert context.record_metadata is None
    context.set_record_metadata("topic", 1, 42)
    assert context.record_metadata == RecordMetadata("topic", 1, 42)
    for clock in ("current_system_time_ms", "current_stream_time_ms"):
        with pytest.raises(RuntimeError, match=f"Call set_{clock} first"):
            getattr(context, clock)
    context.set_current_system_time_ms(5)
    context.set_current_stream_time_ms(6)
    assert (context.current_system_time_ms, context.current_stream_time_ms) == (5, 6)
    assert context.resource("r", list) is context.resource("r", list)


def test_real_store_can_be_used() -> None:
    context = MockProcessorContext()
    store = Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("seen"), Serdes.string(), Serdes.long()
    ).build()
    store.init(context.state_store_context)
    context.add_state_store(store)
    context.get_state_store("seen").put("a", 1)
    assert store["a"] == 1
    with pytest.raises(KeyError, match="Store 'other' does not exist"):
        context.get_state_store("other")


def test_fixed_key_processor_forwards_fixed_key_records() -> None:
    class Loud(FixedKeyProcessor[str, str]):
        def process(self, record: FixedKeyRecord[str, str]) -> None:
            self.context.forward(record.with_value(record.value.upper()))

    context = MockFixedKeyProcessorContext()
    processor = Loud()
    processor.init(context)
    processor.process(fixed_key_record("k", "v", 1))
    assert context.forwarded() == [(fixed_key_record("k", "V", 1), None)]
    with pytest.raises(TypeError, match="forwards a FixedKeyRecord, not a Record"):
        context.forward(Record("other", "v", 1))
