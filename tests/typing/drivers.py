"""The types of test topics; checked by mypy, never run."""

from __future__ import annotations

from typing import Any, assert_type

from penstock import Serdes, StreamsBuilder
from penstock.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

driver = TopologyTestDriver(StreamsBuilder().build())

typed_input = driver.create_input_topic("in", Serdes.string(), Serdes.long(), auto_advance=1)
assert_type(typed_input, TestInputTopic[str, int])
assert_type(driver.create_input_topic("in"), TestInputTopic[Any, Any])

output = driver.create_output_topic("out", Serdes.string(), Serdes.long())
assert_type(output, TestOutputTopic[str, int])
assert_type(output.read_value(), int)
assert_type(driver.create_output_topic("out", value=Serdes.long()), TestOutputTopic[Any, Any])
