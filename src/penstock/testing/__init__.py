"""Test topologies in plain pytest: the real task and the real stores, no Java, no broker."""

from penstock.testing.driver import TopologyTestDriver
from penstock.testing.topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]
