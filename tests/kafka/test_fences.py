"""A process that has lost a lease commits nothing more, however it lost it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import Fenced
from penstock.log.kafka import lease_records
from penstock.log.kafka.leases import KafkaLease

pytestmark = pytest.mark.kafka

P0 = TopicPartition("orders", 0)
TIMEOUT_S = 240.0


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("orders")
        yield log


def acquire(try_acquire: Callable[[], Lease | None]) -> KafkaLease:
    deadline = time.monotonic() + TIMEOUT_S
    while (lease := try_acquire()) is None:
        assert time.monotonic() < deadline, "the lease was not acquired"
        time.sleep(0.01)
    assert isinstance(lease, KafkaLease)
    return lease


def write(log: Log, lease: Lease, value: bytes) -> None:
    with log.transaction(lease) as transaction:
        transaction.append("orders", 0, RecordColumns([None], [value]))


def values(log: Log) -> list[bytes | None]:
    return [value for batch in log.read("orders", 0, 0) for value in batch.columns().values]


def test_holder_is_fenced_when_another_process_takes_the_lease_directly(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    candidate = log.candidate("app", holder="running")
    running = acquire(candidate.try_acquire)
    write(log, running, b"1")
    with open_log(penstock_broker.address) as other:
        taker = other.take_lease("app", holder="taker")
        # The running holder is still in the group, and could get a new producer.
        with pytest.raises(Fenced, match="a later holder has taken it"):
            write(log, running, b"no")
        write(other, taker, b"2")
        with pytest.raises(Fenced):
            running.renew()
        assert candidate.try_acquire() is None
        assert candidate.holder == "taker"
        write(other, taker, b"3")
        taker.release()
    again = acquire(candidate.try_acquire)
    assert again.epoch > taker.epoch > running.epoch
    write(log, again, b"4")
    assert values(log) == [b"1", b"2", b"3", b"4"]


def test_lease_that_was_taken_directly_expires(
    log: Log, penstock_broker: ClusterStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = log.candidate("app", holder="running")
    running = acquire(candidate.try_acquire)
    with open_log(penstock_broker.address) as other:
        taker = other.take_lease("app", holder="taker")
        with pytest.raises(Fenced):
            running.confirm()
        assert candidate.try_acquire() is None
        monkeypatch.setattr(lease_records, "DIRECT_LEASE_MS", 0)
        write(log, acquire(candidate.try_acquire), b"1")
        with pytest.raises(Fenced):
            write(other, taker, b"no")
    assert values(log) == [b"1"]


def test_older_holder_with_the_newest_producer_gives_up(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    """Both holders are recorded; the older one creates its producer last."""
    with open_log(penstock_broker.address) as other:
        older = log.take_lease("app", holder="older")
        assert isinstance(older, KafkaLease)
        newer = other.take_lease("app", holder="newer")
        write(other, newer, b"1")
        older._producer.discard()
        with pytest.raises(Fenced, match="a later holder has taken it"):
            write(log, older, b"no")
        # That fenced the newer producer, but the newer holder still has the lease.
        write(other, newer, b"2")
        newer.release()
    assert values(log) == [b"1", b"2"]


def test_revoked_lease_stays_lost_when_the_partition_returns(log: Log) -> None:
    lease = acquire(log.candidate("app").try_acquire)
    membership = lease._membership
    assert membership is not None
    with membership.changed:
        # Revoked, held by another candidate, and returned, all between two checks.
        membership.state.revocations += 1
    with pytest.raises(Fenced, match="the group has assigned it to another candidate"):
        write(log, lease, b"no")
    assert values(log) == []


def test_forced_reset_of_a_running_application_reprocesses_its_input(
    log: Log, penstock_broker: ClusterStatus, tmp_path: Path
) -> None:
    log.create_topic("counts")
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=Serdes.string(), value=Serdes.string())
    orders.group_by_key().count(store="n").to_stream().to("counts", value=Serdes.long())
    config = StreamsConfig(
        application_id="counting", log=penstock_broker.address, state_dir=str(tmp_path / "state"),
        statestore_cache_max_bytes=0,
    )
    log.append("orders", 0, RecordColumns([b"a"] * 3, [b"x"] * 3))

    def counts() -> list[int]:
        return [
            int.from_bytes(value or b"") for batch in log.read("counts", 0, 0)
            for value in batch.columns().values
        ]

    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(TIMEOUT_S)
        subprocess.run(
            [sys.executable, "-m", "penstock.cli", "reset", "counting", "--force", "--yes",
             "--log", penstock_broker.address, "--state-dir", str(tmp_path / "elsewhere")],
            check=True, timeout=120, stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while counts() != [1, 2, 3, 1, 2, 3]:
            assert time.monotonic() < deadline, counts()
            time.sleep(0.05)
        assert streams.failure is None
