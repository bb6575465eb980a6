"""Consumers of one group in one process. The tests poll each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.clients import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from penstock.log import Log
from penstock.log.types import TopicPartition as LogPartition

Until = Callable[..., None]
Read = Callable[..., list[Message]]


class RecordingConsumer:
    """A consumer of group 'g' that records its callbacks."""

    def __init__(self, clients: Any, **config: Any) -> None:
        self.callbacks: list[tuple[str, list[int]]] = []
        self.messages: list[Message] = []
        self.consumer: Consumer = clients.consumer(group_id="g", **config)
        self.consumer.subscribe(
            ["t"], on_assign=self._recorder("assign"), on_revoke=self._recorder("revoke"),
            on_lost=self._recorder("lost"),
        )

    def _recorder(self, event: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, parts: self.callbacks.append((event, [part.partition for part in parts]))

    def poll(self) -> None:
        message = self.consumer.poll(0)
        if message is not None:
            self.messages.append(message)

    @property
    def partitions(self) -> list[int]:
        return [part.partition for part in self.consumer.assignment()]


def poll_assignments(*members: RecordingConsumer) -> list[list[int]]:
    """Poll each member once and return the partitions of each."""
    for member in members:
        member.poll()
    return [member.partitions for member in members]


def test_spare_member_has_no_partition_and_takes_over(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 2)
    members = [RecordingConsumer(clients) for _ in range(3)]
    until(lambda: sorted(poll_assignments(*members)) == [[], [0], [1]])
    spare = next(member for member in members if not member.partitions)
    worker = next(member for member in members if member.partitions)
    others = [member for member in members if member is not worker]
    worker.consumer.close()
    until(lambda: sorted(poll_assignments(*others)) == [[0], [1]])
    assert spare.partitions


def test_no_two_members_have_the_same_partition_at_once(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 6)
    members: list[RecordingConsumer] = []

    def is_even() -> bool:
        shares = poll_assignments(*members)
        flat = [partition for share in shares for partition in share]
        assert len(flat) == len(set(flat))
        return len(flat) == 6 and max(map(len, shares)) - min(map(len, shares)) <= 1

    for _ in range(4):
        members.append(RecordingConsumer(clients, partition_assignment_strategy="roundrobin"))
        until(is_even)
    while len(members) > 1:
        members.pop().consumer.close()
        until(is_even)


def test_rebalance_callbacks_get_only_changed_partitions(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 4)
    first = RecordingConsumer(clients, partition_assignment_strategy="cooperative-sticky")
    until(lambda: poll_assignments(first) == [[0, 1, 2, 3]])
    second = RecordingConsumer(clients, partition_assignment_strategy="cooperative-sticky")
    until(lambda: [len(share) for share in poll_assignments(first, second)] == [2, 2])
    assert [event for event, _ in first.callbacks] == ["assign", "revoke"]
    assert [event for event, _ in second.callbacks] == ["assign"]
    assert first.callbacks[1][1] == second.callbacks[0][1]
    second.consumer.close()
    assert second.callbacks[-1] == ("revoke", second.callbacks[0][1])
    until(lambda: poll_assignments(first) == [[0, 1, 2, 3]])
    assert first.callbacks[2] == ("assign", second.callbacks[0][1])


def test_revoked_partition_is_committed_before_it_is_reassigned(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 2)
    for partition in range(2):
        clients.fill("t", *map(str, range(10)), partition=partition)
    first = RecordingConsumer(clients, auto_commit_interval_ms=60_000)
    until(lambda: (first.poll(), len(first.messages))[1] == 20)
    second = RecordingConsumer(clients)
    until(lambda: sorted(poll_assignments(first, second)) == [[0], [1]])
    second.poll()
    assert second.messages == []
    (moved,) = second.partitions
    assert log.committed("g")[LogPartition("t", moved)].offset == 10


def test_on_revoke_may_commit(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 1)
    clients.fill("t", "a", "b")
    committed: list[int] = []

    def on_revoke(consumer: Consumer, parts: list[TopicPartition]) -> None:
        committed.extend(part.offset for part in consumer.commit(asynchronous=False) or [])

    consumer = clients.consumer(group_id="g", enable_auto_commit=False)
    consumer.subscribe(["t"], on_revoke=on_revoke)
    assert len(consumer.consume(2, 10)) == 2
    consumer.close()
    assert committed == [2]


def test_on_assign_can_set_the_initial_offset(clients: Any, log: Log, read: Read) -> None:
    log.create_topic("t")
    clients.fill("t", "a", "b", "c")

    def assigning(consumer: Consumer, parts: list[TopicPartition]) -> None:
        for part in parts:
            part.offset = 2
        consumer.assign(parts)

    def seeking(consumer: Consumer, parts: list[TopicPartition]) -> None:
        for part in parts:
            consumer.seek(TopicPartition(part.topic, part.partition, 1))

    for group, on_assign, expected in (("a", assigning, b"c"), ("b", seeking, b"b")):
        consumer = clients.consumer(group_id=group)
        consumer.subscribe(["t"], on_assign=on_assign)
        assert read(consumer, 1)[0].value() == expected


def test_member_without_heartbeats_is_replaced_and_loses_its_partitions(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    clients.fill("t", "a", "b", "c")
    # Heartbeats are too rare to keep the session.
    stuck = RecordingConsumer(
        clients, enable_auto_commit=False, session_timeout_ms=100, heartbeat_interval_ms=99,
        max_poll_interval_ms=50,
    )
    until(lambda: poll_assignments(stuck) == [[0]])
    until(lambda: (stuck.poll(), len(stuck.messages))[1] == 2)
    stuck.consumer.commit(message=stuck.messages[0], asynchronous=False)
    spare = RecordingConsumer(clients, enable_auto_commit=False)
    until(lambda: (spare.poll(), len(spare.messages))[1] == 2)
    assert [message.value() for message in spare.messages] == [b"b", b"c"]
    with pytest.raises(KafkaException) as fenced:
        stuck.consumer.commit(message=stuck.messages[1], asynchronous=False)
    assert fenced.value.error.code() == KafkaError.ILLEGAL_GENERATION
    until(lambda: (poll_assignments(stuck), ("lost", [0]) in stuck.callbacks)[1])
    spare.consumer.close()
    until(lambda: poll_assignments(stuck) == [[0]])


def test_consumer_leaves_its_group_after_max_poll_interval(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    slow = RecordingConsumer(clients, max_poll_interval_ms=60)
    until(lambda: poll_assignments(slow) == [[0]])
    until(lambda: not log.group("g").members)
    until(lambda: (slow.poll(), len(slow.messages))[1] == 1)
    assert slow.messages[0].error() == KafkaError._MAX_POLL_EXCEEDED
    assert slow.callbacks[1] == ("lost", [0])
    until(lambda: poll_assignments(slow) == [[0]])


def test_on_revoke_gets_lost_partitions_without_on_lost(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    callbacks: list[str] = []
    consumer = clients.consumer(group_id="g", max_poll_interval_ms=60)
    consumer.subscribe(["t"], on_revoke=lambda *_: callbacks.append("revoke"))
    until(lambda: (consumer.poll(0), consumer.assignment())[1])
    until(lambda: not log.group("g").members)
    until(lambda: (consumer.poll(0), callbacks)[1])
    assert callbacks == ["revoke"]


def test_heartbeats_continue_while_the_program_does_not_poll(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    sticky = {"partition_assignment_strategy": "cooperative-sticky"}
    busy = RecordingConsumer(clients, session_timeout_ms=150, **sticky)
    until(lambda: poll_assignments(busy) == [[0]])
    spare = RecordingConsumer(clients, **sticky)
    beats: list[int] = []

    def long_enough() -> bool:
        # The busy consumer does not poll for many session timeouts.
        beats.append(1)
        spare.consumer.poll(0.01)
        return len(beats) > 50

    until(long_enough)
    assert spare.partitions == []
    assert poll_assignments(busy) == [[0]]
    assert busy.callbacks == [("assign", [0])]


def test_restarted_static_member_keeps_its_partitions(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 2)
    one = RecordingConsumer(clients, group_instance_id="one")
    two = RecordingConsumer(clients, group_instance_id="two")
    until(lambda: sorted(poll_assignments(one, two)) == [[0], [1]])
    had = one.partitions
    one.consumer.close()
    again = RecordingConsumer(clients, group_instance_id="one")
    until(lambda: sorted(poll_assignments(again, two)) == [[0], [1]])
    assert again.partitions == had
    assert [event for event, _ in two.callbacks].count("revoke") == [
        event for event, _ in two.callbacks].count("assign") - 1


def test_older_consumer_with_the_same_instance_id_is_fenced(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    older = RecordingConsumer(clients, group_instance_id="one")
    until(lambda: poll_assignments(older) == [[0]])
    newer = RecordingConsumer(clients, group_instance_id="one")
    until(lambda: poll_assignments(newer) == [[0]])

    def is_fenced() -> bool:
        try:
            older.poll()
        except KafkaException as error:
            return error.error.code() == KafkaError.FENCED_INSTANCE_ID and error.error.fatal()
        return False

    until(is_fenced)
    assert is_fenced()


def test_commit_before_joining_the_group_fails(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 1)
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(KafkaException, match="Poll first"):
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    until(lambda: (consumer.poll(0), consumer.assignment())[1])
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)


def test_pattern_subscription_includes_new_topics(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("logs-a")
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["^logs-.*"])
    until(lambda: (consumer.poll(0), consumer.assignment())[1])
    log.create_topic("logs-b")
    log.create_topic("other")
    until(lambda: (consumer.poll(0), len(consumer.assignment()))[1] == 2)
    assert [part.topic for part in consumer.assignment()] == ["logs-a", "logs-b"]


def test_new_subscription_replaces_the_previous_one(clients: Any, log: Log, until: Until) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic)
    callbacks: list[tuple[str, str]] = []
    consumer = clients.consumer(group_id="g")
    for topic in ("a", "b"):
        consumer.subscribe(
            [topic],
            on_assign=lambda _, parts: callbacks.append(("assign", parts[0].topic)),
            on_revoke=lambda _, parts: callbacks.append(("revoke", parts[0].topic)),
        )
        until(lambda: (consumer.poll(0), consumer.assignment())[1])
    assert callbacks == [("assign", "a"), ("revoke", "a"), ("assign", "b")]
    consumer.unsubscribe()
    assert consumer.assignment() == []
    assert log.group("g").members == ()
    assert consumer.memberid() == ""


def test_consumer_leaves_the_group_if_a_callback_raises(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["t"], on_revoke=broken)
    until(lambda: (consumer.poll(0), consumer.assignment())[1])
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    assert log.group("g").members == ()


def test_consumers_of_a_group_can_run_in_threads(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 4)
    for partition in range(4):
        clients.fill("t", *[f"{partition}-{n}" for n in range(50)], partition=partition)
    consumers = [clients.consumer(group_id="g") for _ in range(2)]
    seen: list[bytes] = []
    done = threading.Event()

    def work(consumer: Consumer) -> None:
        consumer.subscribe(["t"])
        while not done.is_set():
            for message in consumer.consume(10, 0.02):
                seen.append(message.value())

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    until(lambda: len(set(seen)) == 200)
    done.set()
    for thread in threads:
        thread.join()
    assert len(seen) == 200
