"""Wakeups and errors of the log during a poll."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.clients import KafkaException, Message, TopicPartition, WakeupException
from penstock.log import Log
from penstock.log.errors import LogUnavailable

P0 = TopicPartition("t", 0)


def values(messages: list[Message]) -> list[Any]:
    return [message.value() for message in messages]


def test_wakeup_interrupts_a_poll_in_another_thread(
    clients: Any, log: Log, until: Callable[..., None]
) -> None:
    log.create_topic("t")
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["t"])
    ended: list[BaseException] = []

    def run() -> None:
        try:
            while True:
                consumer.poll()
        except WakeupException as woken:
            ended.append(woken)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: log.group("g").members)
    consumer.wakeup()
    thread.join(180)
    assert len(ended) == 1
    assert consumer.poll(0) is None
    consumer.wakeup()
    with pytest.raises(WakeupException):
        consumer.poll(0)


def test_wakeup_loses_no_records_that_consume_has_taken(
    clients: Any, log: Log, until: Callable[..., None]
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b")
    consumer = clients.consumer()
    consumer.assign([P0])
    returned: list[Any] = []

    def run() -> None:
        try:
            returned.extend(values(consumer.consume(10, 120)))
        except WakeupException as woken:
            returned.append(woken)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: consumer.position([P0])[0].offset == 2)
    consumer.wakeup()
    thread.join(180)
    assert returned == [b"a", b"b"]
    with pytest.raises(WakeupException):
        consumer.poll(0)


def test_error_of_the_log_loses_no_records_that_consume_has_taken(
    clients: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b")
    consumer = clients.consumer()
    consumer.assign([P0])

    def fail(timeout: float) -> bool:
        raise LogUnavailable("The disk is gone.")

    monkeypatch.setattr(consumer._log, "wait_for_change", fail)
    assert values(consumer.consume(10, 120)) == [b"a", b"b"]
    with pytest.raises(KafkaException, match="The disk is gone"):
        consumer.consume(10, 120)
