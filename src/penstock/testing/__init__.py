"""Test topologies in plain pytest: the real task and the real stores, no Java, no broker.

Read `driver` (what a test calls) and `topics`, then what is behind it: `placement` (which tasks
there are), `cluster` (how they run, commit and crash), `log` (what survives), `stores` (how a test
looks at stores). `mock_context` is for a processor alone.
"""

from penstock.testing.driver import TopologyTestDriver
from penstock.testing.mock_context import (
    CapturedForward,
    CapturedPunctuator,
    MockFixedKeyProcessorContext,
    MockProcessorContext,
)
from penstock.testing.topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = [
    "CapturedForward",
    "CapturedPunctuator",
    "MockFixedKeyProcessorContext",
    "MockProcessorContext",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
]
