"""Consumers ask for the leaders of the topics that are new to them.

librdkafka looks for them once a second, and fetches nothing before: the first records of a task
came up to a second late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.client import consumers
from penstock.log.kafka.client.consumers import METADATA_S, PartitionConsumer, PythonConsumer
from penstock.log.kafka.client.native_io import NativeConsumer
from penstock.log.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Client:
    """Records the calls of both kinds of consumers, without a broker."""

    Error = ValueError

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.responds = True

    def Consumer(self, settings: object) -> Client:  # noqa: N802
        return self

    def take_logs(self) -> list[tuple[int, str]]:
        return []

    def _assign(self, partitions: list[Any]) -> None:
        self.calls.append(("assign", len(partitions)))

    assign = replace = incremental_assign = _assign

    def ping(self, timeout_ms: int, topic: None) -> None:
        assert timeout_ms == METADATA_S * 1000
        self.calls.append(("find", topic))
        if not self.responds:
            raise self.Error(KafkaError._TIMED_OUT)

    def list_topics(self, topic: str, timeout: float) -> None:
        assert timeout == METADATA_S
        self.calls.append(("find", topic))
        if not self.responds:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def native(client: Client, monkeypatch: pytest.MonkeyPatch) -> PartitionConsumer:
    return NativeConsumer(cast(Any, client), {})


def python(client: Client, monkeypatch: pytest.MonkeyPatch) -> PartitionConsumer:
    monkeypatch.setattr(consumers, "Consumer", client.Consumer)
    return PythonConsumer({})


#: The first one asks for all assigned topics afterwards, the second one for each before.
NATIVE = [("assign", 2), ("find", None), ("assign", 1), ("assign", 2), ("find", None)]
PYTHON = [("find", "a"), ("assign", 2), ("assign", 1), ("find", "b"), ("assign", 2)]


@pytest.mark.parametrize("responds", [True, False])
@pytest.mark.parametrize(("create", "expected"), [(native, NATIVE), (python, PYTHON)])
def test_leaders_of_new_topics_are_found_at_once(
    create: Callable[[Client, pytest.MonkeyPatch], PartitionConsumer],
    expected: list[tuple[str, object]], responds: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    client.responds = responds
    consumer = create(client, monkeypatch)
    consumer.assign({A0: 0, A1: 0})
    consumer.replace({A1: 5})
    consumer.assign({A0: 0, B0: 0})
    assert client.calls == expected
