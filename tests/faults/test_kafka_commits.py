"""What a transaction of the log makes of connections that are lost at the wrong moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.kafka_brokers import Brokers
from faults.kafka_proxy import LOSSES, Loss, Order, Proxy
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import LogUnavailable, OutcomeUnknown
from penstock.log.kafka.client import connection

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

P0 = TopicPartition("results", 0)
#: What the log is told to wait, and a darkness that is longer.
TIMEOUT_MS, DARK_S, PATIENCE_S = 3_000, 6.5, 60.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("commits")) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def proxy(brokers: Brokers) -> Iterator[Proxy]:
    with Proxy(brokers.listener, brokers.proxy_port) as proxy:
        yield proxy


@pytest.fixture
def plain(brokers: Brokers) -> Iterator[Log]:
    """The log, not through the proxy, with an empty topic."""
    with open_log(brokers.address) as log:
        for topic in log.topics():
            log.delete_topic(topic.name)
        log.create_topic("results", 2)
        yield log


@pytest.fixture
def log(plain: Log, brokers: Brokers, proxy: Proxy, tmp_path: Path) -> Iterator[Log]:
    """The log through the proxy."""
    with open_log(brokers.proxied, timeout_ms=TIMEOUT_MS, blob_dir=str(tmp_path)) as log:
        yield log


@pytest.fixture
def lease(log: Log) -> Lease:
    """Taken in spite of the log's short patience: a broker that has just started is slow."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return log.take_lease("app")
        except LogUnavailable:
            if time.monotonic() > deadline:
                raise


def publish(log: Log, lease: Lease, value: bytes, *, group: str = "group") -> None:
    with log.transaction(lease) as transaction:
        for partition in range(2):
            transaction.append("results", partition, RecordColumns([None], [value]))
        transaction.commit_offsets(group, {P0: int(value)})


def published(log: Log) -> list[list[bytes | None]]:
    return [
        [value for batch in log.read("results", partition, 0) for value in batch.columns().values]
        for partition in range(2)
    ]


@pytest.mark.parametrize("loss", ["answer", "request"])
def test_no_call_hangs_behind_a_lost_connection(
    log: Log, plain: Log, lease: Lease, proxy: Proxy, loss: Loss
) -> None:
    """A producer whose only connection was lost may forget the brokers that it knew, and then wait
    for one of them for ever. Such a producer is left behind."""
    publish(log, lease, b"1")
    left_behind = len(connection._LEFT_BEHIND)
    strike = proxy.order(Order("Produce", loss))
    publish(log, lease, b"2")
    assert strike.over.wait(PATIENCE_S)
    publish(log, lease, b"3")
    assert published(plain) == [[b"1", b"2", b"3"]] * 2
    assert plain.committed("group") == {P0: (3, "")}
    assert len(connection._LEFT_BEHIND) == left_behind


@pytest.mark.parametrize("loss", LOSSES)
def test_the_outcome_of_a_commit_is_looked_up(
    log: Log, plain: Log, lease: Lease, proxy: Proxy, loss: Loss
) -> None:
    publish(log, lease, b"1")
    strike = proxy.order(Order("EndTxn", loss, DARK_S))
    publish(log, lease, b"2")
    assert strike.over.wait(PATIENCE_S)
    assert published(plain) == [[b"1", b"2"]] * 2
    assert plain.committed("group") == {P0: (2, "")}


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "AddOffsetsToTxn", "AddPartitionsToTxn"])
def test_what_is_refused_before_the_commit_has_not_happened(
    log: Log, plain: Log, lease: Lease, proxy: Proxy, api: str
) -> None:
    publish(log, lease, b"1")
    strike = proxy.order(Order(api, "dark", DARK_S))  # type: ignore[arg-type]
    refused: LogUnavailable | None = None
    try:
        publish(log, lease, b"2")
    except LogUnavailable as error:
        refused = error
    assert not isinstance(refused, OutcomeUnknown)
    assert strike.over.wait(PATIENCE_S)
    # Whether the darkness was waited for is up to the client; what it says is true.
    expected = [b"1", b"2"] if refused is None else [b"1"]
    assert published(plain) == [expected] * 2
    publish(log, lease, b"3")
    assert published(plain) == [[*expected, b"3"]] * 2


def test_a_transaction_that_lasts_longer_than_the_broker_allows_is_published_again(
    plain: Log, brokers: Brokers, proxy: Proxy
) -> None:
    """The broker gives it up when all but the commit has come, and takes nothing more of its
    producer; that nothing was committed is looked up."""
    with open_log(brokers.proxied, transaction_timeout_ms=1_000) as log:
        candidate = log.candidate("patient", timeout_ms=int(1000 * PATIENCE_S))
        lease = candidate.try_acquire()
        assert lease is not None
        publish(log, lease, b"1", group="patient")
        strike = proxy.order(Order("EndTxn", "request", DARK_S))
        publish(log, lease, b"2", group="patient")
        assert strike.over.wait(PATIENCE_S)
        assert published(plain) == [[b"1", b"2"]] * 2
        assert plain.committed("patient") == {P0: (2, "")}
        publish(log, lease, b"3", group="patient")
        assert published(plain) == [[b"1", b"2", b"3"]] * 2


def test_records_that_nobody_takes_in_time_are_the_reason_that_is_told(
    plain: Log, brokers: Brokers, proxy: Proxy
) -> None:
    """Those behind them are purged when the transaction is aborted; that is no reason."""
    with open_log(brokers.proxied, transaction_timeout_ms=1_000) as log:
        lease = log.take_lease("app")
        publish(log, lease, b"1")
        strike = proxy.order(Order("Produce", "request", DARK_S))
        with pytest.raises(LogUnavailable, match="Message timed out"):
            publish(log, lease, b"2")
        assert strike.over.wait(PATIENCE_S)
        publish(log, lease, b"3")
        assert published(plain) == [[b"1", b"3"]] * 2


def test_a_commit_that_cannot_be_seen_yet_is_not_called_done(
    log: Log, plain: Log, lease: Lease, proxy: Proxy
) -> None:
    """Whoever is told of a commit goes on from the ends of partitions."""
    publish(log, lease, b"1")
    strike = proxy.order(Order("ListOffsets", "dark", DARK_S))
    with pytest.raises(OutcomeUnknown):
        publish(log, lease, b"2")
    assert strike.over.wait(PATIENCE_S)
    lease.settle()
    assert published(log) == [[b"1", b"2"]] * 2
    publish(log, lease, b"3")
    assert published(plain) == [[b"1", b"2", b"3"]] * 2
