"""The contract of every log: transactions, committed offsets, group members, leases."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from contracts.conftest import LogUnderTest
from contracts.log_records import numbered, pairs, records, values
from penstock.log import Candidate, CommittedOffset, Lease, Log, Member, TopicPartition
from penstock.log.errors import Fenced, GroupNotEmpty, RecordTooLarge, UnknownTopic

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TIMEOUT_S = 60.0


def wait_until(is_done: Callable[[], bool]) -> None:
    """Wait for a condition that every correct log fulfills in time."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, "the condition was never met"
        time.sleep(0.005)


# Transactions


def test_transaction_becomes_visible_as_a_whole(logs: LogUnderTest) -> None:
    log, other = logs.open(), logs.open()
    log.create_topic("orders", 2)
    with log.transaction() as transaction:
        transaction.append("orders", 0, numbered([1]))
        transaction.append("orders", 1, numbered([2, 3]))
        transaction.append("orders", 0, numbered([4]))
        transaction.commit_offsets("group", {P0: CommittedOffset(7, "note"), P1: 8})
        assert pairs(other, "orders", 0) == []
        assert other.committed("group") == {}
        # Other handles can write in the meantime.
        other.append("orders", 1, numbered([9]))
    assert [result[:4] for result in transaction.appended] == [
        ("orders", 0, 0, 1), ("orders", 1, 1, 3), ("orders", 0, 1, 2),
    ]
    assert values(other.read("orders", 0, 0)) == [b"1", b"4"]
    assert values(other.read("orders", 1, 0)) == [b"9", b"2", b"3"]
    assert other.committed("group") == {P0: (7, "note"), P1: (8, "")}


def test_transaction_that_raises_writes_nothing(log: Log) -> None:
    log.create_topic("orders", 2)

    def fail() -> None:
        with log.transaction() as transaction:
            transaction.append("orders", 0, numbered([1]))
            transaction.commit_offsets("group", {P0: 1})
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert pairs(log, "orders") == []
    assert log.committed("group") == {}


def test_rejected_record_rejects_the_whole_transaction(log: Log) -> None:
    log.create_topic("orders", 2, {"max.message.bytes": 100})

    def commit(size: int, offset_of: TopicPartition) -> None:
        with log.transaction() as transaction:
            transaction.append("orders", 0, numbered([1]))
            transaction.append("orders", 1, numbered([2], size=size))
            transaction.commit_offsets("group", {offset_of: 1})

    with pytest.raises(RecordTooLarge):
        commit(200, P0)
    with pytest.raises(UnknownTopic):
        commit(20, TopicPartition("other", 0))
    assert pairs(log, "orders", 0) == pairs(log, "orders", 1) == []
    assert log.committed("group") == {}
    commit(20, P0)
    assert pairs(log, "orders", 0) == [(b"k1", b"1")]


def test_finished_transaction_rejects_appends(log: Log) -> None:
    log.create_topic("orders")
    transaction = log.transaction()
    transaction.append("orders", 0, numbered([1]))
    assert len(transaction.commit()) == 1
    transaction.abort()
    assert pairs(log, "orders") == [(b"k1", b"1")]
    with pytest.raises(ValueError, match="over"):
        transaction.append("orders", 0, numbered([1]))


def test_large_transaction_is_atomic(logs: LogUnderTest) -> None:
    log, other = logs.open(), logs.open()
    log.create_topic("orders", 2)
    noise = [bytes([n % 251]) + (n * 2654435761 % 2**64).to_bytes(8, "big") * 64
             for n in range(1000)]
    batch = records(*((b"k", value) for value in noise))

    def write(commit: bool) -> None:
        transaction = log.transaction()
        for number in range(160):
            transaction.append("orders", number % 2, batch)
        assert pairs(other, "orders") == []
        if commit:
            transaction.commit()
        else:
            transaction.abort()

    write(commit=False)
    write(commit=True)
    for partition in (0, 1):
        assert values(other.read("orders", partition, 0)) == noise * 80


# Committed offsets


def test_offsets_are_stored_per_group_and_partition(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    log.commit_offsets("a", {P0: 1, P1: CommittedOffset(2, "x")})
    log.commit_offsets("b", {P0: 5})
    log.commit_offsets("a", {P0: 0})
    other = logs.open()
    assert other.committed("a") == {P0: (0, ""), P1: (2, "x")}
    assert other.committed("b", [P0, P1]) == {P0: (5, "")}
    assert other.committed("c") == {}
    assert other.groups() == ["a", "b"]
    log.delete_group("a")
    assert other.groups() == ["b"]
    assert other.committed("a") == {}


def test_committed_offset_survives_deleted_records(log: Log) -> None:
    log.create_topic("orders", 2)
    log.append("orders", 0, numbered(range(10)))
    log.commit_offsets("group", {P0: 3})
    log.delete_records("orders", 0, 5)
    assert log.committed("group") == {P0: (3, "")}
    assert log.offsets([P0])[P0].start == 5


# Members


def send_heartbeat(member: Member, owned: set[TopicPartition]) -> set[TopicPartition]:
    """Return what the member owns after a heartbeat. It gives up revoked partitions at once."""
    assigned = set(member.heartbeat(owned).partitions)
    if assigned >= owned:
        return assigned
    return set(member.heartbeat(assigned).partitions)


def settle(
    members: dict[str, Member], owned: dict[str, set[TopicPartition]], shares: list[int]
) -> None:
    """Send heartbeats until each member owns its share. No two members ever own the same."""

    def has_settled() -> bool:
        for name, member in members.items():
            owned[name] = send_heartbeat(member, owned[name])
            taken = [partition for other in members for partition in owned[other]]
            assert len(taken) == len(set(taken)), "two members own the same partition"
        return sorted(map(len, owned.values())) == shares and not any(
            member.needs_heartbeat() for member in members.values()
        )

    wait_until(has_settled)


@pytest.mark.parametrize("strategy", ["sticky", "range", "roundrobin"])
def test_idle_member_takes_over_from_one_that_leaves(
    logs: LogUnderTest, strategy: str
) -> None:
    logs.open().create_topic("orders", 2)
    members = {
        name: logs.open().join_group("group", ["orders"], client_id=name, strategy=strategy)
        for name in ("a", "b", "c")
    }
    owned: dict[str, set[TopicPartition]] = {name: set() for name in members}
    settle(members, owned, [0, 1, 1])
    leaver = next(name for name in members if owned[name])
    members.pop(leaver).leave()
    owned.pop(leaver)
    settle(members, owned, [1, 1])
    assert sorted(owned.values(), key=sorted) == [{P0}, {P1}]


def test_partition_moves_only_after_its_owner_gave_it_up(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    one = log.join_group("group", ["orders"], client_id="one")
    assert one.heartbeat([]).partitions == {P0, P1}
    two = logs.open().join_group("group", ["orders"], client_id="two")
    assert two.heartbeat([]).partitions == frozenset()
    wait_until(lambda: len(one.heartbeat([P0, P1]).partitions) == 1)
    assigned = one.heartbeat([P0, P1]).partitions
    (lost,) = {P0, P1} - assigned
    assert two.heartbeat([]).partitions == frozenset()
    # The offset of a revoked partition can be committed until the member releases it.
    log.commit_offsets("group", {lost: 4}, one)
    with log.transaction() as transaction:
        transaction.commit_offsets("group", {lost: 5}, one)
    assert one.heartbeat(assigned).partitions == assigned
    with pytest.raises(Fenced):
        log.commit_offsets("group", {lost: 6}, one)
    wait_until(lambda: two.heartbeat([]).partitions == {lost})
    with log.transaction() as transaction:
        transaction.commit_offsets("group", {lost: 7}, two)
    assert log.committed("group", [lost]) == {lost: (7, "")}


def test_silent_member_is_removed_and_fenced(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    silent = log.join_group("group", ["orders"], session_timeout_ms=50)
    assert silent.heartbeat([]).partitions == {P0, P1}
    alive = logs.open().join_group("group", ["orders"])
    owned: set[TopicPartition] = set()

    def owns_all() -> bool:
        nonlocal owned
        owned = send_heartbeat(alive, owned)
        return owned == {P0, P1}

    wait_until(owns_all)
    with pytest.raises(Fenced, match="Join again"):
        silent.heartbeat([P0, P1])
    with pytest.raises(Fenced):
        log.commit_offsets("group", {P0: 1}, silent)
    silent.leave()
    assert not alive.needs_heartbeat()


def test_member_replaces_one_with_the_same_id(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    old = log.join_group("group", ["orders"], member_id="me", session_timeout_ms=6_000)
    old.heartbeat([])
    new = logs.open().join_group("group", ["orders"], member_id="me", session_timeout_ms=6_000)
    assert new.heartbeat([]).partitions == {P0, P1}
    wait_until(old.needs_heartbeat)
    with pytest.raises(Fenced):
        old.heartbeat([P0, P1])


def test_new_partitions_and_matching_topics_are_assigned(log: Log) -> None:
    log.create_topic("orders")
    member = log.join_group("group", ["^ord.*", "stores"])
    assert member.heartbeat([]).partitions == {P0}
    log.add_partitions("orders", 2)
    log.create_topic("stores")
    log.create_topic("words")
    stores = TopicPartition("stores", 0)
    wait_until(lambda: member.heartbeat([P0]).partitions == {P0, P1, stores})
    before = member.heartbeat([P0, P1, stores]).generation
    log.delete_topic("orders")
    wait_until(lambda: member.heartbeat([stores]).partitions == {stores})
    assert member.heartbeat([stores]).generation > before


def test_group_with_members_is_described_and_cannot_be_deleted(log: Log) -> None:
    log.create_topic("orders", 2)
    member = log.join_group("group", ["orders"], client_id="shop")
    member.heartbeat([])
    log.commit_offsets("group", {P0: 4}, member)
    described = log.group("group")
    assert [(m.client_id, m.partitions) for m in described.members] == [("shop", (P0, P1))]
    assert described.offsets == {P0: (4, "")}
    with pytest.raises(GroupNotEmpty, match=f"'{described.members[0].member_id}'"):
        log.delete_group("group")
    member.leave()
    log.delete_group("group")
    assert log.groups() == []
    assert log.group("group").members == ()


# Leases


def acquire(candidate: Candidate) -> Lease:
    """Wait for the lease."""
    found: list[Lease] = []

    def try_acquire() -> bool:
        found.extend(filter(None, [candidate.try_acquire()]))
        return bool(found)

    wait_until(try_acquire)
    return found[0]


def test_lease_has_one_holder(logs: LogUnderTest) -> None:
    one = logs.open().candidate("app", holder="one")
    two = logs.open().candidate("app", holder="two")
    lease = one.try_acquire()
    assert lease is not None
    assert two.try_acquire() is None
    lease.renew()
    assert two.try_acquire() is None
    lease.release()
    taken = acquire(two)
    assert taken.epoch > lease.epoch
    lease.release()
    taken.renew()


def test_silent_holder_loses_the_lease_and_is_fenced(
    logs: LogUnderTest,
) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    # On Kafka the holder's timeout counts, in the embedded log the candidate's.
    old = log.candidate("app", timeout_ms=500).try_acquire()
    assert old is not None
    standby = logs.open().candidate("app", timeout_ms=500)
    transaction = log.transaction(old)
    transaction.append("orders", 0, numbered([1]))
    transaction.commit_offsets("group", {P0: 1})
    taken = acquire(standby)
    taken.renew()
    with pytest.raises(Fenced, match="lease 'app'"):
        transaction.commit()
    with pytest.raises(Fenced):
        old.renew()
    assert pairs(log, "orders") == []
    assert log.committed("group") == {}
    with log.transaction(taken) as later:
        later.append("orders", 0, numbered([2]))
    assert pairs(log, "orders") == [(b"k2", b"2")]


def test_lease_can_be_taken_directly(log: Log) -> None:
    log.create_topic("orders")
    first = log.take_lease("producer")
    second = log.take_lease("producer")
    assert second.epoch > first.epoch
    with pytest.raises(Fenced), log.transaction(first) as transaction:
        transaction.append("orders", 0, numbered([1]))
    with log.transaction(second) as transaction:
        transaction.append("orders", 0, numbered([2]))
    assert pairs(log, "orders") == [(b"k2", b"2")]
