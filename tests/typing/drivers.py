"""The types of test topics; checked by mypy, never run."""

from __future__ import annotations

from typing import Any, assert_type

from penstock import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    Serdes,
    SessionStore,
    StreamsBuilder,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    WindowStore,
)
from penstock.testing import (
    MockProcessorContext,
    TestInputTopic,
    TestOutputTopic,
    TopologyTestDriver,
)

driver = TopologyTestDriver(StreamsBuilder().build())

typed_input = driver.create_input_topic("in", Serdes.string(), Serdes.long(), auto_advance=1)
assert_type(typed_input, TestInputTopic[str, int])
assert_type(driver.create_input_topic("in"), TestInputTopic[Any, Any])

output = driver.create_output_topic("out", Serdes.string(), Serdes.long())
assert_type(output, TestOutputTopic[str, int])
assert_type(output.read_value(), int)
assert_type(driver.create_output_topic("out", value=Serdes.long()), TestOutputTopic[Any, Any])

counts = driver.get_state_store("counts", TimestampedKeyValueStore[str, int])
assert_type(counts, TimestampedKeyValueStore[str, int])
assert_type(counts.get("k"), ValueAndTimestamp[int] | None)
assert_type(driver.get_state_store("counts"), Any)
assert_type(driver.get_window_store("windows"), WindowStore[Any, Any])
assert_type(driver.get_session_store("sessions", partition=0), SessionStore[Any, Any])


class Count(Processor[str, str]):
    def init(self, context: ProcessorContext) -> None:
        self.counts = context.get_state_store("counts", KeyValueStore[str, int])
        assert_type(self.counts, KeyValueStore[str, int])
        assert_type(self.counts.get("k"), int | None)
        assert_type(context.get_state_store("counts"), Any)


mocked = MockProcessorContext().get_state_store("counts", VersionedKeyValueStore[str, int])
assert_type(mocked, VersionedKeyValueStore[str, int])
