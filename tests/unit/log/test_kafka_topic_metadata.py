"""Metadata of topics that not all brokers know yet."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from penstock.log.errors import UnknownTopic
from penstock.log.kafka.client import topic_metadata
from penstock.log.kafka.client.topic_metadata import TopicInfo, TopicMetadataCache
from penstock.log.topic_config import TopicSettings
from penstock.log.types import TopicDescription, TopicPartition

ORDERS = TopicInfo(
    TopicDescription("orders", "id", 2, {}, {}), TopicSettings.of({}), valid_until=0.0
)


class Brokers(TopicMetadataCache):
    """Each request goes to the next broker: one that knows the topic, or one that does not."""

    def __init__(self, described: list[bool], listed: list[bool]) -> None:
        connection: Any = SimpleNamespace(timeout=30.0)
        super().__init__(connection)
        self._described = described
        self._listed = listed

    def _describe(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {"orders": ORDERS} if self._described.pop(0) else {}

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 0)] if self._listed.pop(0) else []


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_metadata, "_PAUSE_S", 0.0)


def test_topic_is_found_that_another_broker_lists() -> None:
    brokers = Brokers(described=[False, False, True], listed=[True, True])
    assert brokers.find("orders") is ORDERS


def test_topic_that_no_broker_lists_does_not_exist() -> None:
    with pytest.raises(UnknownTopic):
        Brokers(described=[False], listed=[False]).find("orders")


def test_deleted_topic_that_a_broker_still_lists_does_not_exist() -> None:
    with pytest.raises(UnknownTopic):
        Brokers(described=[False, False], listed=[True, False]).find("orders")


def test_created_topic_is_awaited_although_no_broker_lists_it_yet() -> None:
    brokers = Brokers(described=[False, False, True], listed=[False, False])
    brokers.expect("orders")
    assert brokers.find("orders") is ORDERS


def test_deleted_topic_is_not_awaited() -> None:
    brokers = Brokers(described=[False], listed=[False])
    brokers.expect("orders")
    brokers.expect_none("orders")
    with pytest.raises(UnknownTopic):
        brokers.find("orders")
