"""Writers and tail readers when connections are lost: each result is true."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.kafka_brokers import Brokers
from faults.kafka_proxy import APIS, LOSSES, Api, Loss, Proxy, Rule
from penstock import native
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.base import TailReader, Writer
from penstock.log.errors import LogError, LogUnavailable, OutcomeUnknown

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

P0 = TopicPartition("results", 0)
#: The timeout of the log, and a longer outage.
TIMEOUT_MS, OUTAGE_S, PATIENCE_S = 3_000, 6.5, 60.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("writers")) as brokers:
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


@pytest.fixture(params=["native", "python"])
def log(
    request: pytest.FixtureRequest, plain: Log, brokers: Brokers, proxy: Proxy, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Log]:
    """The log through the proxy."""
    if request.param == "python":
        monkeypatch.setattr(native, "rdkafka", lambda: None)
    with open_log(brokers.proxied, timeout_ms=TIMEOUT_MS, blob_dir=str(tmp_path)) as log:
        yield log


@pytest.fixture
def lease(plain: Log) -> Iterator[Lease]:
    """Held without the proxy, as the driver's connection is another one."""
    lease = plain.candidate("app", timeout_ms=int(1000 * PATIENCE_S)).try_acquire()
    assert lease is not None
    yield lease
    lease.release()


def open_writer(log: Log, lease: Lease) -> Writer:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return log.open_writer(lease.create_writer(), lease.member_token)
        except LogUnavailable:
            if time.monotonic() > deadline:
                raise


def publish(writer: Writer, value: bytes) -> list[int]:
    with writer.transaction() as transaction:
        for partition in range(2):
            transaction.append("results", partition, RecordColumns([b"k"] * 3, [value] * 3))
        transaction.commit_offsets("app", {P0: int(value)})
    return [result.next_offset for result in transaction.appended]


def published(log: Log) -> list[list[bytes | None]]:
    return [
        [value for batch in log.read("results", partition, 0) for value in batch.columns().values]
        for partition in range(2)
    ]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("loss", LOSSES)
def test_result_of_a_commit_is_true_after_a_lost_message(
    log: Log, plain: Log, lease: Lease, proxy: Proxy, api: Api, loss: Loss
) -> None:
    writer = open_writer(log, lease)
    assert publish(writer, b"1") == [3, 3]
    outage_s = OUTAGE_S if loss == "outage" else 0.0
    injection = proxy.inject(Rule(api, loss, outage_s))
    raised: LogError | None = None
    next_offsets: list[int] = []
    try:
        next_offsets = publish(writer, b"2")
    except LogError as error:
        raised = error
    assert injection.finished.wait(PATIENCE_S)
    lease.fence_writers([writer.grant])
    found = published(plain)
    offset = plain.committed("app", [P0])[P0].offset
    assert found in ([[b"1"] * 3] * 2, [[b"1"] * 3 + [b"2"] * 3] * 2)
    assert offset == (1 if len(found[0]) == 3 else 2)
    if raised is None:
        # One offset is that of the marker of the first transaction.
        assert (offset, next_offsets) == (2, [7, 7])
    elif not isinstance(raised, OutcomeUnknown):
        assert offset == 1
    publish(open_writer(log, lease), b"3")
    deadline = time.monotonic() + PATIENCE_S
    while published(plain) != [[*values, *[b"3"] * 3] for values in found]:
        assert time.monotonic() < deadline


def read_until(reader: TailReader, last: bytes) -> list[bytes | None]:
    values: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while last not in values:
        assert time.monotonic() < deadline, values
        for columns in reader.poll(0.2, 100):
            values.extend(columns.values)
    return values


def test_tail_reader_survives_a_short_outage(log: Log, plain: Log, proxy: Proxy) -> None:
    reader = log.tail()
    reader.add({P0: 0})
    plain.append("results", 0, RecordColumns([None], [b"1"]))
    assert read_until(reader, b"1") == [b"1"]
    # The outage starts with a request of the log.
    short = proxy.inject(Rule("ListOffsets", "outage", 1.0))
    log.offsets([P0])
    assert short.finished.wait(PATIENCE_S)
    plain.append("results", 0, RecordColumns([None], [b"2"]))
    assert read_until(reader, b"2") == [b"2"]
    reader.close()


def test_tail_reader_reports_a_dead_broker_and_continues_when_it_restarts(
    log: Log, plain: Log, brokers: Brokers
) -> None:
    with open_log(brokers.address, timeout_ms=TIMEOUT_MS) as direct:
        reader = direct.tail()
        reader.add({P0: 0})
        plain.append("results", 0, RecordColumns([None], [b"1"]))
        assert read_until(reader, b"1") == [b"1"]
        brokers.kill(1)
        killed_at = time.monotonic()
        with pytest.raises(LogUnavailable, match="did not respond within 3 s"):
            read_until(reader, b"never")
        assert time.monotonic() - killed_at > TIMEOUT_MS / 1000
        brokers.start()
        plain.append("results", 0, RecordColumns([None], [b"2"]))
        while True:
            try:
                assert read_until(reader, b"2") == [b"2"]
                break
            except LogUnavailable:
                assert time.monotonic() - killed_at < 2 * PATIENCE_S
        reader.close()
