"""Tests of topologies with the real tasks and stores, without Java or a broker.

    driver          TopologyTestDriver
    topics          TestInputTopic, TestOutputTopic, TestRecord
    store_access    the driver's methods for stores
    query_source    the driver's stores for `store` and `query`
    task_layout     which tasks exist and what they read
    task_runner     runs, commits, restarts and crashes tasks
    memory_log      the topics, offsets and changelogs of a test
    mock_context    MockProcessorContext, for tests of a single processor
"""

from penstock.record import fixed_key_record
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
    "fixed_key_record",
]
