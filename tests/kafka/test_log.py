"""Properties of the log on Kafka that the contract does not cover."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.errors import ConfigException
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import Fenced, LogUnavailable, UnknownTopic
from penstock.log.kafka import membership, transactions
from penstock.log.kafka.client.native_io import find_native
from penstock.log.kafka.client.settings import KafkaOptions
from penstock.log.kafka.members import KafkaMember

pytestmark = pytest.mark.kafka

P0 = TopicPartition("orders", 0)
TIMEOUT_S = 60.0


def wait_until(is_done: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, "the condition was never met"
        time.sleep(0.005)


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        yield log


def acquire(log: Log, name: str) -> Lease:
    candidate = log.candidate(name)
    found: list[Lease] = []
    wait_until(lambda: found or found.extend(filter(None, [candidate.try_acquire()])))
    return found[0]


def one(value: bytes) -> RecordColumns:
    return RecordColumns([b"k"], [value])


def values(log: Log, start: int = 0, end: int | None = None) -> list[bytes | None]:
    return [
        value for batch in log.read("orders", 0, start, end) for value in batch.columns().values
    ]


def prefetch(log: Log, ranges: dict[TopicPartition, tuple[int, int]]) -> dict[
    TopicPartition, list[bytes | None]
]:
    """Prefetch until all ranges are complete: a fetch takes a moment."""
    found: dict[TopicPartition, list[bytes | None]] = {}

    def is_done() -> bool:
        missing = {where: range_ for where, range_ in ranges.items() if where not in found}
        for where, batch in log.prefetch(missing).items():
            assert batch.next_offset == ranges[where][1]
            found[where] = list(batch.columns().values)
        return found.keys() == ranges.keys()

    wait_until(is_done)
    return found


def test_one_consumer_prefetches_small_ranges_of_several_partitions(log: Log) -> None:
    log.create_topic("orders", 2)
    p1 = TopicPartition("orders", 1)
    for n in range(4):
        with log.transaction() as transaction:
            transaction.append("orders", n % 2, one(b"%d" % n))
    # Each range ends with a transaction marker.
    assert prefetch(log, {P0: (0, 2), p1: (0, 2)}) == {P0: [b"0"], p1: [b"1"]}
    # Continue in one partition, then read a range with only a marker.
    assert prefetch(log, {P0: (2, 3)}) == {P0: [b"2"]}
    assert prefetch(log, {P0: (3, 4), p1: (2, 4)}) == {P0: [], p1: [b"3"]}
    # Go back, as after a batch was planned again.
    assert prefetch(log, {P0: (0, 4), p1: (2, 4)}) == {P0: [b"0", b"2"], p1: [b"3"]}


def test_prefetch_does_not_wait_for_incomplete_ranges(log: Log) -> None:
    log.create_topic("orders")
    log.append("orders", 0, one(b"0"))
    assert log.prefetch({P0: (0, 5)}) == {}
    assert prefetch(log, {P0: (0, 1)}) == {P0: [b"0"]}


def test_position_skips_transaction_markers(log: Log) -> None:
    log.create_topic("orders")
    for n in range(3):
        with log.transaction() as transaction:
            transaction.append("orders", 0, one(b"%d" % n))
    end = log.offsets([P0])[P0].end
    assert end == 6
    reader = log.read("orders", 0, 0)
    assert [list(batch.columns().offsets) for batch in reader] == [[0, 2, 4]]
    assert reader.position == end
    # A range with only a marker, and one that ends with a marker.
    only_marker = log.read("orders", 0, 1, 2)
    assert list(only_marker) == []
    assert only_marker.position == 2
    assert values(log, 1, 4) == [b"1"]
    assert values(log, end) == []


def test_holder_commits_with_new_metadata_after_a_rebalance(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    log.create_topic("orders")
    lease = acquire(log, "app")
    with open_log(penstock_broker.address) as other:
        # Another candidate changes the generation of the group, but the holder stays.
        assert other.candidate("app").try_acquire() is None
        for n in range(5):
            with log.transaction(lease) as transaction:
                transaction.append("orders", 0, one(b"%d" % n))
                transaction.commit_offsets("app", {P0: n})
            lease.renew()
    assert values(log) == [b"0", b"1", b"2", b"3", b"4"]
    assert log.committed("app") == {P0: (4, "")}


def test_member_commits_revoked_partitions_with_the_new_generation(
    penstock_broker: ClusterStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebalance waits for the transaction, and the transaction needs its generation."""
    # A whole rebalance takes place in one poll.
    monkeypatch.setattr(membership, "_POLL_S", 1.0)
    p1 = TopicPartition("orders", 1)
    address = clear(penstock_broker.address)
    with open_log(address, timeout_ms=10_000) as log, open_log(address) as other:
        log.create_topic("orders", 2)
        lease = log.take_lease("transactional.id")
        member = log.join_group("group", ["orders"])
        assert member.heartbeat([]).partitions == {P0, p1}
        joining = other.join_group("group", ["orders"])
        wait_until(lambda: len(member.heartbeat([P0, p1]).partitions) == 1)
        with log.transaction(lease) as transaction:
            transaction.append("orders", 0, one(b"1"))
            transaction.commit_offsets("group", {P0: 1, p1: 2}, member)
        assert values(log) == [b"1"]
        assert log.committed("group") == {P0: (1, ""), p1: (2, "")}
        member.heartbeat(member.heartbeat([P0, p1]).partitions)
        wait_until(lambda: joining.heartbeat([]).partitions)


def test_member_without_an_id_on_the_broker_is_fenced(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    """librdkafka discards the id of a removed member before it reports the lost partitions."""
    log.create_topic("orders")
    with open_log(penstock_broker.address) as other:
        member = other.join_group("group", ["orders"])
        assert isinstance(member, KafkaMember)
        assert member.heartbeat([]).partitions == {P0}
        member._membership._consumer = RemovedConsumer(member._membership._consumer)
        wait_until(member.needs_heartbeat)
        with pytest.raises(Fenced, match="the broker received no heartbeat"):
            member.heartbeat([P0])
        with pytest.raises(Fenced), other.transaction() as transaction:
            transaction.commit_offsets("group", {P0: 1}, member)
    assert log.committed("group") == {}


class RemovedConsumer:
    """A consumer that the broker has removed from its group."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def memberid(self) -> str:
        return ""


@pytest.mark.parametrize("is_committed", [True, False])
def test_commit_without_a_response_is_looked_up(
    log: Log, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """The connection is lost during the commit: after the broker has committed, or before."""
    from confluent_kafka import KafkaError, KafkaException

    log.create_topic("orders")
    lease = log.take_lease("direct")
    original = transactions.retry_producer_call

    def lose_connection(call: Callable[[float], object], timeout: float) -> None:
        if getattr(call, "__name__", "") != "commit_transaction":
            original(call, timeout)
            return
        producer = call.__self__  # type: ignore[attr-defined]
        if is_committed:
            original(call, timeout)
        else:
            producer.flush(timeout)
            original(producer.abort_transaction, timeout)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "The connection is lost"))

    monkeypatch.setattr(transactions, "retry_producer_call", lose_connection)
    transaction = log.transaction(lease)
    transaction.append("orders", 0, one(b"1"))
    if is_committed:
        assert transaction.commit()[0][2:4] == (0, 1)
    else:
        with pytest.raises(LogUnavailable):
            transaction.commit()
    monkeypatch.undo()
    assert values(log) == ([b"1"] if is_committed else [])
    # The lease continues with a new producer.
    with log.transaction(lease) as transaction:
        transaction.append("orders", 0, one(b"2"))
    assert values(log)[-1:] == [b"2"]


def test_timestamp_zero_is_restored(log: Log) -> None:
    log.create_topic("orders")
    log.append("orders", 0, RecordColumns([b"a", b"b"], [b"1", b"2"], [0, 1], [[("h", b"x")], []]))
    (batch,) = log.read("orders", 0, 0)
    columns = batch.columns()
    assert columns.timestamps == [0, 1]
    assert columns.headers == [(("h", b"x"),), ()]


def test_forked_child_continues_with_its_copy_of_the_log(log: Log) -> None:
    log.create_topic("orders")
    log.append("orders", 0, one(b"parent"))
    assert values(log) == [b"parent"]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = values(log)
            if found == [b"parent"]:
                log.append("orders", 0, one(b"child"))
                code = 0
            else:
                os.write(2, f"found {found}".encode())
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert values(log) == [b"parent", b"child"]
    log.append("orders", 0, one(b"parent again"))
    assert values(log, 2) == [b"parent again"]


def test_forked_child_does_not_deallocate_clients_of_its_parent(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    """The threads of a client do not exist in the child: deallocating it would crash."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    log.create_topic("orders")
    gc.disable()
    try:
        consumer = Consumer({
            "bootstrap.servers": penstock_broker.bootstrap_servers, "group.id": "garbage"
        })
        consumer.assign([KafkaPartition("orders", 0, 0)])
        consumer.poll(1.0)
        garbage: list[object] = [consumer]
        garbage.append(garbage)
        del consumer, garbage
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        gc.enable()
        gc.collect()


def test_threads_read_independently(log: Log) -> None:
    log.create_topic("orders")
    log.append("orders", 0, RecordColumns([None] * 5000, [b"%d" % n for n in range(5000)]))
    found: dict[int, list[bytes | None]] = {}

    def read(start: int) -> None:
        found[start] = values(log, start)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 5000, 700)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {
        start: [b"%d" % n for n in range(start, 5000)] for start in range(0, 5000, 700)
    }


def test_another_handle_sees_a_recreated_topic(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    with open_log(penstock_broker.address) as other:
        for value in (b"first", b"second"):
            log.create_topic("orders")
            log.append("orders", 0, one(value))
            assert values(other) == [value]
            log.delete_topic("orders")
            with pytest.raises(UnknownTopic):
                other.read("orders", 0, 0)


def test_error_names_an_unreachable_broker() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(LogUnavailable, match=f"127.0.0.1:{port}"):
        open_log(f"kafka://127.0.0.1:{port}", timeout_ms=500)


def test_partitions_that_arrive_in_turns_keep_their_timestamps(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    """The consumer fetches ahead, so one call returns records of three fetches."""
    extension = find_native()
    if extension is None:
        pytest.skip("The extension for Kafka is not built.")
    log.create_topic("orders", 2)
    consumer = extension.Consumer({
        "bootstrap.servers": penstock_broker.address.removeprefix("kafka://"), "group.id": "none",
    })
    try:
        consumer.assign([("orders", 0, 0), ("orders", 1, 0)])
        for partition, time_ms, end in ((0, 10, 1), (1, 5, 1), (0, 5, 2)):
            log.append("orders", partition, RecordColumns([b"k"], [b"v"], [time_ms]))
            wait_until(
                lambda at=partition, end=end: consumer.high_watermark("orders", at) >= end
            )
        found: dict[int, list[int]] = {0: [], 1: []}

        def is_complete() -> bool:
            for _, partition, columns, *_ in consumer.consume(1000, 100):
                found[partition] += columns[1] if columns is not None else []
            return sum(map(len, found.values())) == 3

        wait_until(is_complete)
        assert found == {0: [10, 5], 1: [5]}
    finally:
        consumer.close()


def test_unknown_librdkafka_setting_is_rejected(penstock_broker: ClusterStatus) -> None:
    with pytest.raises(ConfigException, match=r"no\.such\.setting"):
        open_log(penstock_broker.address, no_such_setting="1")


def test_repr_hides_settings(penstock_broker: ClusterStatus) -> None:
    options = KafkaOptions.of({"sasl.password": "hush", "timeout_ms": 7})
    assert options.timeout_ms == 7
    assert options.clients == {"sasl.password": "hush"}
    assert "hush" not in repr(options)
    with open_log(penstock_broker.address, client_id="me") as log:
        assert repr(log) == f"KafkaLog('{penstock_broker.address}')"
