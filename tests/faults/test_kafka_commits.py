"""Transactions of the log when connections are lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.kafka_brokers import Brokers
from faults.kafka_proxy import LOSSES, Loss, Proxy, Rule
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import LogUnavailable, OutcomeUnknown
from penstock.log.kafka.client import connection

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

P0 = TopicPartition("results", 0)
#: The timeout of the log, and a longer outage.
TIMEOUT_MS, OUTAGE_S, PATIENCE_S = 3_000, 6.5, 60.0


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
    """The log without the proxy, with an empty topic."""
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
    """Retry: a broker that has just started may exceed the short timeout of the log."""
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


@pytest.mark.parametrize("loss", ["response", "request"])
def test_no_call_hangs_after_a_lost_connection(
    log: Log, plain: Log, lease: Lease, proxy: Proxy, loss: Loss
) -> None:
    """A producer whose only connection was lost may forget the known brokers and then wait without
    limit. The log abandons such a producer."""
    publish(log, lease, b"1")
    left_behind = len(connection._ABANDONED)
    injection = proxy.inject(Rule("Produce", loss))
    publish(log, lease, b"2")
    assert injection.finished.wait(PATIENCE_S)
    publish(log, lease, b"3")
    assert published(plain) == [[b"1", b"2", b"3"]] * 2
    assert plain.committed("group") == {P0: (3, "")}
    assert len(connection._ABANDONED) == left_behind


@pytest.mark.parametrize("loss", LOSSES)
def test_unknown_outcome_of_a_commit_is_looked_up(
    log: Log, plain: Log, lease: Lease, proxy: Proxy, loss: Loss
) -> None:
    publish(log, lease, b"1")
    injection = proxy.inject(Rule("EndTxn", loss, OUTAGE_S))
    publish(log, lease, b"2")
    assert injection.finished.wait(PATIENCE_S)
    assert published(plain) == [[b"1", b"2"]] * 2
    assert plain.committed("group") == {P0: (2, "")}


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "AddOffsetsToTxn", "AddPartitionsToTxn"])
def test_rejected_transaction_is_not_published(
    log: Log, plain: Log, lease: Lease, proxy: Proxy, api: str
) -> None:
    publish(log, lease, b"1")
    injection = proxy.inject(Rule(api, "outage", OUTAGE_S))  # type: ignore[arg-type]
    refused: LogUnavailable | None = None
    try:
        publish(log, lease, b"2")
    except LogUnavailable as error:
        refused = error
    assert not isinstance(refused, OutcomeUnknown)
    assert injection.finished.wait(PATIENCE_S)
    # The client may wait for the end of the outage or not; its result must be true.
    expected = [b"1", b"2"] if refused is None else [b"1"]
    assert published(plain) == [expected] * 2
    publish(log, lease, b"3")
    assert published(plain) == [[*expected, b"3"]] * 2


def test_transaction_that_the_broker_timed_out_is_published_again(
    plain: Log, brokers: Brokers, proxy: Proxy
) -> None:
    """The broker aborts the transaction before the commit and rejects its producer; the log looks
    up that the transaction was not committed."""
    with open_log(brokers.proxied, transaction_timeout_ms=1_000) as log:
        candidate = log.candidate("patient", timeout_ms=int(1000 * PATIENCE_S))
        lease = candidate.try_acquire()
        assert lease is not None
        publish(log, lease, b"1", group="patient")
        injection = proxy.inject(Rule("EndTxn", "request", OUTAGE_S))
        publish(log, lease, b"2", group="patient")
        assert injection.finished.wait(PATIENCE_S)
        assert published(plain) == [[b"1", b"2"]] * 2
        assert plain.committed("patient") == {P0: (2, "")}
        publish(log, lease, b"3", group="patient")
        assert published(plain) == [[b"1", b"2", b"3"]] * 2


def test_error_names_the_record_that_timed_out(
    plain: Log, brokers: Brokers, proxy: Proxy
) -> None:
    """Later records are purged when the transaction is aborted; that is not the cause."""
    with open_log(brokers.proxied, transaction_timeout_ms=1_000) as log:
        lease = log.take_lease("app")
        publish(log, lease, b"1")
        injection = proxy.inject(Rule("Produce", "request", OUTAGE_S))
        with pytest.raises(LogUnavailable, match="Message timed out"):
            publish(log, lease, b"2")
        assert injection.finished.wait(PATIENCE_S)
        publish(log, lease, b"3")
        assert published(plain) == [[b"1", b"3"]] * 2


def test_commit_that_is_not_visible_yet_has_an_unknown_outcome(
    log: Log, plain: Log, lease: Lease, proxy: Proxy
) -> None:
    """After a commit the engine plans from the end offsets of partitions."""
    publish(log, lease, b"1")
    injection = proxy.inject(Rule("ListOffsets", "outage", OUTAGE_S))
    with pytest.raises(OutcomeUnknown):
        publish(log, lease, b"2")
    assert injection.finished.wait(PATIENCE_S)
    lease.settle()
    assert published(log) == [[b"1", b"2"]] * 2
    publish(log, lease, b"3")
    assert published(plain) == [[b"1", b"2", b"3"]] * 2
