"""Several consumers of one group in one process; each is polled by the test."""

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


class Watched:
    """A consumer of group 'g' that remembers what it was told."""

    def __init__(self, clients: Any, **config: Any) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.messages: list[Message] = []
        self.consumer: Consumer = clients.consumer(group_id="g", **config)
        self.consumer.subscribe(
            ["t"], on_assign=self._teller("assign"), on_revoke=self._teller("revoke"),
            on_lost=self._teller("lost"),
        )

    def _teller(self, what: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, parts: self.told.append((what, [part.partition for part in parts]))

    def poll(self) -> None:
        message = self.consumer.poll(0)
        if message is not None:
            self.messages.append(message)

    @property
    def partitions(self) -> list[int]:
        return [part.partition for part in self.consumer.assignment()]


def divided(*members: Watched) -> list[list[int]]:
    """Let all have a turn; what each of them has then."""
    for member in members:
        member.poll()
    return [member.partitions for member in members]


def test_partitions_are_divided_and_a_spare_has_none(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 2)
    members = [Watched(clients) for _ in range(3)]
    until(lambda: sorted(divided(*members)) == [[], [0], [1]])
    spare = next(member for member in members if not member.partitions)
    worker = next(member for member in members if member.partitions)
    others = [member for member in members if member is not worker]
    worker.consumer.close()
    until(lambda: sorted(divided(*others)) == [[0], [1]])
    assert spare.partitions


def test_no_two_members_ever_have_the_same_partition(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 6)
    members: list[Watched] = []

    def is_even() -> bool:
        shares = divided(*members)
        flat = [partition for share in shares for partition in share]
        assert len(flat) == len(set(flat))
        return len(flat) == 6 and max(map(len, shares)) - min(map(len, shares)) <= 1

    for _ in range(4):
        members.append(Watched(clients, partition_assignment_strategy="roundrobin"))
        until(is_even)
    while len(members) > 1:
        members.pop().consumer.close()
        until(is_even)


def test_a_rebalance_tells_only_what_changes(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 4)
    first = Watched(clients, partition_assignment_strategy="cooperative-sticky")
    until(lambda: divided(first) == [[0, 1, 2, 3]])
    second = Watched(clients, partition_assignment_strategy="cooperative-sticky")
    until(lambda: [len(share) for share in divided(first, second)] == [2, 2])
    assert [what for what, _ in first.told] == ["assign", "revoke"]
    assert [what for what, _ in second.told] == ["assign"]
    assert first.told[1][1] == second.told[0][1]
    second.consumer.close()
    assert second.told[-1] == ("revoke", second.told[0][1])
    until(lambda: divided(first) == [[0, 1, 2, 3]])
    assert first.told[2] == ("assign", second.told[0][1])


def test_what_is_revoked_is_committed_before_another_gets_it(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 2)
    for partition in range(2):
        clients.fill("t", *map(str, range(10)), partition=partition)
    first = Watched(clients, auto_commit_interval_ms=60_000)
    until(lambda: (first.poll(), len(first.messages))[1] == 20)
    second = Watched(clients)
    until(lambda: sorted(divided(first, second)) == [[0], [1]])
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


def test_on_assign_may_say_where_to_begin(clients: Any, log: Log, read: Read) -> None:
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


def test_a_member_that_gives_no_sign_is_replaced_and_told_so(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    clients.fill("t", "a", "b", "c")
    # Its heartbeats are too rare to count.
    stuck = Watched(
        clients, enable_auto_commit=False, session_timeout_ms=100, heartbeat_interval_ms=99,
        max_poll_interval_ms=50,
    )
    until(lambda: divided(stuck) == [[0]])
    until(lambda: (stuck.poll(), len(stuck.messages))[1] == 2)
    stuck.consumer.commit(message=stuck.messages[0], asynchronous=False)
    spare = Watched(clients, enable_auto_commit=False)
    until(lambda: (spare.poll(), len(spare.messages))[1] == 2)
    assert [message.value() for message in spare.messages] == [b"b", b"c"]
    with pytest.raises(KafkaException) as fenced:
        stuck.consumer.commit(message=stuck.messages[1], asynchronous=False)
    assert fenced.value.error.code() == KafkaError.ILLEGAL_GENERATION
    until(lambda: (divided(stuck), ("lost", [0]) in stuck.told)[1])
    spare.consumer.close()
    until(lambda: divided(stuck) == [[0]])


def test_a_program_that_does_not_poll_leaves_its_group(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    slow = Watched(clients, max_poll_interval_ms=60)
    until(lambda: divided(slow) == [[0]])
    until(lambda: not log.group("g").members)
    until(lambda: (slow.poll(), len(slow.messages))[1] == 1)
    assert slow.messages[0].error() == KafkaError._MAX_POLL_EXCEEDED
    assert slow.told[1] == ("lost", [0])
    until(lambda: divided(slow) == [[0]])


def test_without_on_lost_on_revoke_is_told(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 1)
    told: list[str] = []
    consumer = clients.consumer(group_id="g", max_poll_interval_ms=60)
    consumer.subscribe(["t"], on_revoke=lambda *_: told.append("revoke"))
    until(lambda: (consumer.poll(0), consumer.assignment())[1])
    until(lambda: not log.group("g").members)
    until(lambda: (consumer.poll(0), told)[1])
    assert told == ["revoke"]


def test_heartbeats_go_on_while_the_program_works(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 1)
    sticky = {"partition_assignment_strategy": "cooperative-sticky"}
    busy = Watched(clients, session_timeout_ms=150, **sticky)
    until(lambda: divided(busy) == [[0]])
    spare = Watched(clients, **sticky)
    beats: list[int] = []

    def long_enough() -> bool:
        # The busy one does not poll for many session timeouts.
        beats.append(1)
        spare.consumer.poll(0.01)
        return len(beats) > 50

    until(long_enough)
    assert spare.partitions == []
    assert divided(busy) == [[0]]
    assert busy.told == [("assign", [0])]


def test_a_static_member_takes_its_former_place(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 2)
    one = Watched(clients, group_instance_id="one")
    two = Watched(clients, group_instance_id="two")
    until(lambda: sorted(divided(one, two)) == [[0], [1]])
    had = one.partitions
    one.consumer.close()
    again = Watched(clients, group_instance_id="one")
    until(lambda: sorted(divided(again, two)) == [[0], [1]])
    assert again.partitions == had
    assert [what for what, _ in two.told].count("revoke") == [
        what for what, _ in two.told].count("assign") - 1


def test_the_elder_of_two_with_the_same_instance_id_is_fenced(
    clients: Any, log: Log, until: Until
) -> None:
    log.create_topic("t", 1)
    elder = Watched(clients, group_instance_id="one")
    until(lambda: divided(elder) == [[0]])
    younger = Watched(clients, group_instance_id="one")
    until(lambda: divided(younger) == [[0]])

    def is_fenced() -> bool:
        try:
            elder.poll()
        except KafkaException as error:
            return error.error.code() == KafkaError.FENCED_INSTANCE_ID and error.error.fatal()
        return False

    until(is_fenced)
    assert is_fenced()


def test_a_member_commits_only_once_it_has_joined(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("t", 1)
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["t"])
    with pytest.raises(KafkaException, match="Poll first"):
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    until(lambda: (consumer.poll(0), consumer.assignment())[1])
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)


def test_a_pattern_finds_topics_that_come_later(clients: Any, log: Log, until: Until) -> None:
    log.create_topic("logs-a")
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["^logs-.*"])
    until(lambda: (consumer.poll(0), consumer.assignment())[1])
    log.create_topic("logs-b")
    log.create_topic("other")
    until(lambda: (consumer.poll(0), len(consumer.assignment()))[1] == 2)
    assert [part.topic for part in consumer.assignment()] == ["logs-a", "logs-b"]


def test_a_new_subscription_replaces_the_old_one(clients: Any, log: Log, until: Until) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic)
    told: list[tuple[str, str]] = []
    consumer = clients.consumer(group_id="g")
    for topic in ("a", "b"):
        consumer.subscribe(
            [topic],
            on_assign=lambda _, parts: told.append(("assign", parts[0].topic)),
            on_revoke=lambda _, parts: told.append(("revoke", parts[0].topic)),
        )
        until(lambda: (consumer.poll(0), consumer.assignment())[1])
    assert told == [("assign", "a"), ("revoke", "a"), ("assign", "b")]
    consumer.unsubscribe()
    assert consumer.assignment() == []
    assert log.group("g").members == ()
    assert consumer.memberid() == ""


def test_a_callback_that_raises_does_not_leave_the_group_hanging(
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


def test_a_group_is_served_by_threads_too(clients: Any, log: Log, until: Until) -> None:
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
