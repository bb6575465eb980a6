"""Who has lost a lease publishes nothing more, however it was lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka.cluster import swept
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.log import Lease, Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import Fenced
from penstock.log.kafka import leases
from penstock.log.kafka.leases import KafkaLease

pytestmark = pytest.mark.kafka

P0 = TopicPartition("orders", 0)
PATIENCE_S = 60.0


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(swept(penstock_broker.address)) as log:
        log.create_topic("orders")
        yield log


def acquired(try_it: Callable[[], Lease | None]) -> KafkaLease:
    deadline = time.monotonic() + PATIENCE_S
    while (lease := try_it()) is None:
        assert time.monotonic() < deadline, "it was never acquired"
        time.sleep(0.01)
    assert isinstance(lease, KafkaLease)
    return lease


def write(log: Log, lease: Lease, value: bytes) -> None:
    with log.transaction(lease) as transaction:
        transaction.append("orders", 0, RecordColumns([None], [value]))


def values(log: Log) -> list[bytes | None]:
    return [value for batch in log.read("orders", 0, 0) for value in batch.columns().values]


def test_a_holder_is_thrown_out_by_one_that_takes_the_lease_at_once(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    candidate = log.candidate("app", holder="running")
    running = acquired(candidate.try_acquire)
    write(log, running, b"1")
    with open_log(penstock_broker.address) as other:
        thief = other.take_lease("app", holder="thief")
        # It has a place in the group still, and would get a new producer.
        with pytest.raises(Fenced, match="a later holder has taken it"):
            write(log, running, b"no")
        write(other, thief, b"2")
        with pytest.raises(Fenced):
            running.renew()
        assert candidate.try_acquire() is None
        assert candidate.holder == "thief"
        write(other, thief, b"3")
        thief.release()
    again = acquired(candidate.try_acquire)
    assert again.epoch > thief.epoch > running.epoch
    write(log, again, b"4")
    assert values(log) == [b"1", b"2", b"3", b"4"]


def test_one_that_took_it_at_once_and_died_is_not_waited_for_for_ever(
    log: Log, penstock_broker: ClusterStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = log.candidate("app", holder="running")
    running = acquired(candidate.try_acquire)
    with open_log(penstock_broker.address) as other:
        thief = other.take_lease("app", holder="thief")
        with pytest.raises(Fenced):
            running.confirm()
        assert candidate.try_acquire() is None
        monkeypatch.setattr(leases, "AT_ONCE_MS", 0)
        write(log, acquired(candidate.try_acquire), b"1")
        with pytest.raises(Fenced):
            write(other, thief, b"no")
    assert values(log) == [b"1"]


def test_an_older_holder_whose_producer_is_the_newest_gives_way(
    log: Log, penstock_broker: ClusterStatus
) -> None:
    """Both have written their names; the older one makes its producer last."""
    with open_log(penstock_broker.address) as other:
        older = log.take_lease("app", holder="older")
        assert isinstance(older, KafkaLease)
        newer = other.take_lease("app", holder="newer")
        write(other, newer, b"1")
        older._kept.let_go()
        with pytest.raises(Fenced, match="a later holder has taken it"):
            write(log, older, b"no")
        # It was fenced by that, and is still the holder.
        write(other, newer, b"2")
        newer.release()
    assert values(log) == [b"1", b"2"]


def test_what_was_lost_and_given_again_is_another_lease(log: Log) -> None:
    lease = acquired(log.candidate("app").try_acquire)
    place = lease._place
    assert place is not None
    with place.changed:
        # Revoked, another one leads, and has left again: all between two looks.
        place.state.losses += 1
    with pytest.raises(Fenced, match="the group has given it to another"):
        write(log, lease, b"no")
    assert values(log) == []


def test_a_running_application_that_is_reset_by_force_begins_anew(
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
        streams.run_until_caught_up(PATIENCE_S)
        subprocess.run(
            [sys.executable, "-m", "penstock.cli", "reset", "counting", "--force", "--yes",
             "--log", penstock_broker.address, "--state-dir", str(tmp_path / "elsewhere")],
            check=True, timeout=120, stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE_S
        while counts() != [1, 2, 3, 1, 2, 3]:
            assert time.monotonic() < deadline, counts()
            time.sleep(0.05)
        assert streams.failure is None
