"""What every log must do: transactions, committed offsets, members of groups, leases."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from contracts.conftest import LogUnderTest
from contracts.log_records import numbered, pairs, records, values
from penstock.log import Candidate, CommittedOffset, Lease, Log, Member, TopicPartition
from penstock.log.errors import Fenced, GroupNotEmpty, RecordTooLarge, UnknownTopic

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PATIENCE_S = 60.0


def until(done: Callable[[], bool]) -> None:
    """Wait for what must come; only a log that never does it makes this fail."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


# Transactions


def test_a_transaction_appears_whole_at_its_end(logs: LogUnderTest) -> None:
    log, other = logs.open(), logs.open()
    log.create_topic("orders", 2)
    with log.transaction() as transaction:
        transaction.append("orders", 0, numbered([1]))
        transaction.append("orders", 1, numbered([2, 3]))
        transaction.append("orders", 0, numbered([4]))
        transaction.commit_offsets("group", {P0: CommittedOffset(7, "note"), P1: 8})
        assert pairs(other, "orders", 0) == []
        assert other.committed("group") == {}
        # Others can write meanwhile.
        other.append("orders", 1, numbered([9]))
    assert [answer[:4] for answer in transaction.appended] == [
        ("orders", 0, 0, 1), ("orders", 1, 1, 3), ("orders", 0, 1, 2),
    ]
    assert values(other.read("orders", 0, 0)) == [b"1", b"4"]
    assert values(other.read("orders", 1, 0)) == [b"9", b"2", b"3"]
    assert other.committed("group") == {P0: (7, "note"), P1: (8, "")}


def test_a_transaction_that_raises_has_not_happened(log: Log) -> None:
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


def test_a_refused_record_refuses_the_whole_transaction(log: Log) -> None:
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


def test_an_ended_transaction_takes_nothing_more(log: Log) -> None:
    log.create_topic("orders")
    transaction = log.transaction()
    transaction.append("orders", 0, numbered([1]))
    assert len(transaction.commit()) == 1
    transaction.abort()
    assert pairs(log, "orders") == [(b"k1", b"1")]
    with pytest.raises(ValueError, match="over"):
        transaction.append("orders", 0, numbered([1]))


def test_a_large_transaction_is_as_atomic_as_a_small_one(logs: LogUnderTest) -> None:
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


def test_offsets_are_kept_by_group_and_partition(logs: LogUnderTest) -> None:
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


def test_retention_may_overtake_a_committed_offset(log: Log) -> None:
    log.create_topic("orders", 2)
    log.append("orders", 0, numbered(range(10)))
    log.commit_offsets("group", {P0: 3})
    log.delete_records("orders", 0, 5)
    assert log.committed("group") == {P0: (3, "")}
    assert log.offsets([P0])[P0].start == 5


# Members


def beat(member: Member, owned: set[TopicPartition]) -> set[TopicPartition]:
    """What the member owns after a heartbeat; what it is to give up, it has given up."""
    wanted = set(member.heartbeat(owned).partitions)
    return wanted if wanted >= owned else set(member.heartbeat(wanted).partitions)


def settle(
    members: dict[str, Member], owned: dict[str, set[TopicPartition]], shares: list[int]
) -> None:
    """Heartbeats until the members own so many partitions each; no two ever own the same."""

    def has_settled() -> bool:
        for name, member in members.items():
            owned[name] = beat(member, owned[name])
            taken = [partition for other in members for partition in owned[other]]
            assert len(taken) == len(set(taken)), "two members own the same partition"
        return sorted(map(len, owned.values())) == shares and not any(
            member.needs_heartbeat() for member in members.values()
        )

    until(has_settled)


@pytest.mark.parametrize("strategy", ["sticky", "range", "roundrobin"])
def test_partitions_are_divided_and_a_spare_takes_over(
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


def test_a_partition_moves_only_when_its_owner_has_let_go(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    one = log.join_group("group", ["orders"], client_id="one")
    assert one.heartbeat([]).partitions == {P0, P1}
    two = logs.open().join_group("group", ["orders"], client_id="two")
    assert two.heartbeat([]).partitions == frozenset()
    until(lambda: len(one.heartbeat([P0, P1]).partitions) == 1)
    wanted = one.heartbeat([P0, P1]).partitions
    (lost,) = {P0, P1} - wanted
    assert two.heartbeat([]).partitions == frozenset()
    # What is to be given up may still be committed; what was given up may not.
    log.commit_offsets("group", {lost: 5}, one)
    assert one.heartbeat(wanted).partitions == wanted
    with pytest.raises(Fenced):
        log.commit_offsets("group", {lost: 6}, one)
    until(lambda: two.heartbeat([]).partitions == {lost})
    with log.transaction() as transaction:
        transaction.commit_offsets("group", {lost: 7}, two)
    assert log.committed("group", [lost]) == {lost: (7, "")}


def test_a_silent_member_is_thrown_out_and_fenced(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    silent = log.join_group("group", ["orders"], session_timeout_ms=50)
    assert silent.heartbeat([]).partitions == {P0, P1}
    alive = logs.open().join_group("group", ["orders"])
    owned: set[TopicPartition] = set()

    def takes_all() -> bool:
        nonlocal owned
        owned = beat(alive, owned)
        return owned == {P0, P1}

    until(takes_all)
    with pytest.raises(Fenced, match="Join again"):
        silent.heartbeat([P0, P1])
    with pytest.raises(Fenced):
        log.commit_offsets("group", {P0: 1}, silent)
    silent.leave()
    assert not alive.needs_heartbeat()


def test_a_member_takes_the_place_of_one_with_the_same_id(logs: LogUnderTest) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    old = log.join_group("group", ["orders"], member_id="me", session_timeout_ms=6_000)
    old.heartbeat([])
    new = logs.open().join_group("group", ["orders"], member_id="me", session_timeout_ms=6_000)
    assert new.heartbeat([]).partitions == {P0, P1}
    until(old.needs_heartbeat)
    with pytest.raises(Fenced):
        old.heartbeat([P0, P1])


def test_new_partitions_and_topics_of_a_pattern_are_divided_too(log: Log) -> None:
    log.create_topic("orders")
    member = log.join_group("group", ["^ord.*", "stores"])
    assert member.heartbeat([]).partitions == {P0}
    log.add_partitions("orders", 2)
    log.create_topic("stores")
    log.create_topic("words")
    stores = TopicPartition("stores", 0)
    until(lambda: member.heartbeat([P0]).partitions == {P0, P1, stores})
    before = member.heartbeat([P0, P1, stores]).generation
    log.delete_topic("orders")
    until(lambda: member.heartbeat([stores]).partitions == {stores})
    assert member.heartbeat([stores]).generation > before


def test_a_group_with_members_is_described_and_not_deleted(log: Log) -> None:
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


def acquired(candidate: Candidate) -> Lease:
    """The lease, as soon as its holder is known to be gone."""
    found: list[Lease] = []

    def try_acquire() -> bool:
        found.extend(filter(None, [candidate.try_acquire()]))
        return bool(found)

    until(try_acquire)
    return found[0]


def test_a_lease_has_one_holder(logs: LogUnderTest) -> None:
    one = logs.open().candidate("app", holder="one")
    two = logs.open().candidate("app", holder="two")
    lease = one.try_acquire()
    assert lease is not None
    assert two.try_acquire() is None
    lease.renew()
    assert two.try_acquire() is None
    lease.release()
    taken = acquired(two)
    assert taken.epoch > lease.epoch
    lease.release()
    taken.renew()


def test_the_lease_of_a_silent_holder_is_taken_and_its_transactions_are_fenced(
    logs: LogUnderTest,
) -> None:
    log = logs.open()
    log.create_topic("orders", 2)
    # On Kafka it is the holder's timeout that counts, in the embedded log that of who waits.
    old = log.candidate("app", timeout_ms=500).try_acquire()
    assert old is not None
    standby = logs.open().candidate("app", timeout_ms=500)
    transaction = log.transaction(old)
    transaction.append("orders", 0, numbered([1]))
    transaction.commit_offsets("group", {P0: 1})
    taken = acquired(standby)
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


def test_a_lease_can_be_taken_at_once(log: Log) -> None:
    log.create_topic("orders")
    first = log.take_lease("producer")
    second = log.take_lease("producer")
    assert second.epoch > first.epoch
    with pytest.raises(Fenced), log.transaction(first) as transaction:
        transaction.append("orders", 0, numbered([1]))
    with log.transaction(second) as transaction:
        transaction.append("orders", 0, numbered([2]))
    assert pairs(log, "orders") == [(b"k2", b"2")]
