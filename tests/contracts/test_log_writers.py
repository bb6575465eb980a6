"""The contract of every log: writers on behalf of the holder of a lease."""

from __future__ import annotations

import threading
import time

import pytest

from contracts.conftest import LogUnderTest
from contracts.log_records import numbered, pairs, records
from contracts.test_log_groups import TIMEOUT_S, acquire, wait_until
from penstock.log import CommittedOffset, Lease, Log, TopicPartition
from penstock.log.base import Writer
from penstock.log.errors import Fenced, RecordTooLarge, UnknownTopic

ALSO_WITH_PYTHON_CLIENTS = True
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def acquire_lease(log: Log) -> Lease:
    """Create the topic and acquire the lease of an application."""
    log.create_topic("orders", 2)
    return acquire(log.candidate("app", holder="one"))


def write(writer: Writer, number: int, partition: int = 0, offset: int | None = None) -> int:
    """Commit one record, and an offset of the group of the lease. Returns the next offset."""
    transaction = writer.transaction()
    transaction.append("orders", partition, numbered([number]))
    if offset is not None:
        transaction.commit_offsets("app", {TopicPartition("orders", partition): offset})
    return transaction.commit()[0].next_offset


def assert_readable(log: Log, numbers: list[int], partition: int = 0) -> None:
    """Check the records of a partition. They may become readable after the commit."""
    expected = [(b"k%d" % number, b"%d" % number) for number in numbers]
    wait_until(lambda: pairs(log, "orders", partition) == expected)


def test_writers_commit_records_and_offsets_together(logs: LogUnderTest) -> None:
    log, other = logs.open(), logs.open()
    lease = acquire_lease(log)
    grants = [lease.create_writer(), lease.create_writer()]
    assert [grant[:2] for grant in grants] == [("app", lease.epoch)] * 2
    assert len({grant.serial for grant in grants}) == 2
    writers = [other.open_writer(grant, lease.member_token) for grant in grants]
    for partition, writer in enumerate(writers):
        with writer.transaction() as transaction:
            transaction.append("orders", partition, numbered([1, 2]))
            transaction.append("orders", partition, numbered([3]))
            transaction.commit_offsets(
                "app", {TopicPartition("orders", partition): CommittedOffset(7, "note")}
            )
        assert [result[:4] for result in transaction.appended] == [
            ("orders", partition, 0, 2), ("orders", partition, 2, 3),
        ]
        assert_readable(log, [1, 2, 3], partition)
    wait_until(lambda: log.committed("app") == {P0: (7, "note"), P1: (7, "note")})
    for writer in writers:
        writer.close()


def test_aborted_and_rejected_transactions_of_a_writer_write_nothing(log: Log) -> None:
    lease = acquire_lease(log)
    log.create_topic("small", 1, {"max.message.bytes": 200})
    writer = log.open_writer(lease.create_writer(), lease.member_token)
    aborted = writer.transaction()
    aborted.append("orders", 0, numbered([1]))
    aborted.abort()

    def commit(topic: str, size: int) -> None:
        with writer.transaction() as transaction:
            transaction.append("orders", 0, numbered([2]))
            transaction.append(topic, 0, numbered([3], size=size))
            transaction.commit_offsets("app", {P0: 1})

    with pytest.raises(RecordTooLarge):
        commit("small", 300)
    with pytest.raises(UnknownTopic):
        commit("other", 1)
    write(writer, 4)
    assert_readable(log, [4])
    assert log.committed("app", [P0]) == {}


def test_many_records_fit_into_a_topic_with_small_messages(log: Log) -> None:
    lease = acquire_lease(log)
    log.create_topic("small", 1, {"max.message.bytes": 400})
    writer = log.open_writer(lease.create_writer(), lease.member_token)
    with writer.transaction() as transaction:
        transaction.append("small", 0, numbered(range(50), size=100))
    assert transaction.appended[0][:4] == ("small", 0, 0, 50)
    wait_until(lambda: len(pairs(log, "small")) == 50)


def test_transaction_without_records_commits_offsets(log: Log) -> None:
    lease = acquire_lease(log)
    writer = log.open_writer(lease.create_writer(), lease.member_token)
    with writer.transaction():
        pass
    with writer.transaction() as transaction:
        transaction.append("orders", 0, numbered([]))
        transaction.commit_offsets("app", {P0: 3})
    assert transaction.appended[0][:4] == ("orders", 0, 0, 0)
    wait_until(lambda: log.committed("app", [P0]) == {P0: (3, "")})


def test_fenced_writer_commits_nothing_while_the_other_continues(logs: LogUnderTest) -> None:
    log, other = logs.open(), logs.open()
    lease = acquire_lease(log)
    grants = [lease.create_writer(), lease.create_writer()]
    fenced, alive = (other.open_writer(grant, lease.member_token) for grant in grants)
    assert write(fenced, 1, offset=1) == 1
    write(alive, 2, 1, offset=1)
    lease.fence_writers([grants[0]])
    assert pairs(log, "orders") == [(b"k1", b"1")]
    for _ in range(2):
        with pytest.raises(Fenced):
            write(fenced, 3, offset=2)
    write(alive, 4, 1, offset=2)
    assert_readable(log, [2, 4], 1)
    assert pairs(log, "orders") == [(b"k1", b"1")]
    assert log.committed("app", [P0]) == {P0: (1, "")}
    later = lease.create_writer()
    assert later.serial not in {grant.serial for grant in grants}
    write(log.open_writer(later, lease.member_token), 5, offset=3)
    assert_readable(log, [1, 5])


def test_writer_that_was_fenced_before_it_was_opened_commits_nothing(
    logs: LogUnderTest,
) -> None:
    log = logs.open()
    lease = acquire_lease(log)
    grant = lease.create_writer()
    lease.fence_writers([grant])
    with pytest.raises(Fenced):
        write(logs.open().open_writer(grant, lease.member_token), 1)
    assert pairs(log, "orders") == []


def test_settling_a_lease_fences_all_its_writers(logs: LogUnderTest) -> None:
    """A holder that starts again under the same lease must not meet its own old writers."""
    log = logs.open()
    lease = acquire_lease(log)
    old = [logs.open().open_writer(lease.create_writer(), lease.member_token) for _ in range(2)]
    assert write(old[0], 1) == 1
    lease.settle()
    for writer in old:
        with pytest.raises(Fenced):
            write(writer, 2)
    new = logs.open().open_writer(lease.create_writer(), lease.member_token)
    write(new, 3)
    lease.settle()
    assert [value for _, value in pairs(log, "orders")] == [b"1", b"3"]


def test_new_holder_fences_all_writers_of_earlier_holders(logs: LogUnderTest) -> None:
    log = logs.open()
    old = acquire_lease(log)
    grants = [old.create_writer() for _ in range(3)]
    token = old.member_token()
    writers = [logs.open().open_writer(grant, lambda: token) for grant in grants[:2]]
    write(writers[0], 1, offset=1)
    old.release()
    new = acquire(logs.open().candidate("app", holder="two"))
    assert new.epoch > old.epoch
    assert pairs(log, "orders") == [(b"k1", b"1")]
    for writer in writers:
        with pytest.raises(Fenced):
            write(writer, 2)
    with pytest.raises(Fenced):
        write(log.open_writer(grants[2], lambda: token), 3)
    for lost in (old.create_writer, old.member_token):
        with pytest.raises(Fenced):
            lost()
    write(log.open_writer(new.create_writer(), new.member_token), 4, offset=2)
    assert_readable(log, [1, 4])
    assert log.committed("app", [P0]) == {P0: (2, "")}


def test_directly_taken_lease_fences_writers_and_has_its_own(logs: LogUnderTest) -> None:
    log = logs.open()
    old = acquire_lease(log)
    writer = log.open_writer(old.create_writer(), old.member_token)
    old.release()
    taken = logs.open().take_lease("app")
    with pytest.raises(Fenced):
        write(writer, 1)
    own = log.open_writer(taken.create_writer(), taken.member_token)
    write(own, 2, offset=1)
    assert_readable(log, [2])
    wait_until(lambda: log.committed("app", [P0]) == {P0: (1, "")})
    taken.release()


def test_writer_fetches_the_token_again_after_another_candidate_joined(
    logs: LogUnderTest,
) -> None:
    log = logs.open()
    lease = acquire_lease(log)
    writer = log.open_writer(lease.create_writer(), lease.member_token)
    write(writer, 1, offset=1)
    standby = logs.open().candidate("app", holder="standby")
    assert standby.try_acquire() is None
    write(writer, 2, offset=2)
    assert_readable(log, [1, 2])
    wait_until(lambda: log.committed("app", [P0]) == {P0: (2, "")})


def test_lost_lease_ends_a_writer_that_needs_a_token(log: Log) -> None:
    lease = acquire_lease(log)
    writer = log.open_writer(lease.create_writer(), lease.member_token)
    lease.release()
    with pytest.raises(Fenced):
        write(writer, 1, offset=1)
    assert pairs(log, "orders") == []


def test_fencing_during_transactions_leaves_whole_transactions(logs: LogUnderTest) -> None:
    """A writer commits without a pause until it is fenced. Its last transaction is decided."""
    log, other = logs.open(), logs.open()
    lease = acquire_lease(log)
    grant = lease.create_writer()
    writer = other.open_writer(grant, lease.member_token)
    payload = records(*((b"k", b"x" * 100) for _ in range(500)))
    committed = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for number in range(10**6):
                with writer.transaction() as transaction:
                    transaction.append("orders", 0, payload)
                    transaction.append("orders", 1, payload)
                    transaction.commit_offsets("app", {P0: number + 1})
                committed.set()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert committed.wait(TIMEOUT_S)
    started = time.monotonic()
    lease.fence_writers([grant])
    assert time.monotonic() - started < 10
    # Nothing of the writer becomes visible from now on.
    counts = [len(pairs(log, "orders", partition)) for partition in (0, 1)]
    offset = log.committed("app", [P0])[P0].offset
    thread.join(TIMEOUT_S)
    assert len(errors) == 1
    assert counts == [500 * offset] * 2
    assert [len(pairs(log, "orders", partition)) for partition in (0, 1)] == counts
    assert log.committed("app", [P0])[P0].offset == offset
