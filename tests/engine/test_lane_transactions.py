"""A lane whose tasks are committed in several transactions fails between them, or inside one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.engine.continuous import lane_commit
from penstock.engine.exception_handler import StreamThreadExceptionResponse
from penstock.log import Log, RecordColumns, open_log

PARTITIONS = 4
ROUNDS = 6


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("words", PARTITIONS)
        log.create_topic("counts", PARTITIONS)
        yield log


def word_count() -> Topology:
    builder = StreamsBuilder()
    (builder.stream("words", key=Serdes.string(), value=Serdes.string()).group_by_key()
        .count(store="counts").to_stream().to("counts", value=Serdes.long()))
    return builder.build()


def read(log: Log) -> Counter[tuple[bytes | None, int]]:
    return Counter(
        (key, int.from_bytes(value or b"", "big")) for partition in range(PARTITIONS)
        for batch in log.read("counts", partition, 0) for columns in [batch.columns()]
        for key, value in zip(columns.keys, columns.values, strict=True)
    )


@pytest.mark.parametrize("place", ["before-commit", "in-commit", "after-commit", "applying"])
def test_each_task_counts_once_if_a_lane_fails_between_its_transactions(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The transactions of a commit are independent: a task is in one of them as a whole."""
    passed = failed = 0

    def fail(name: str) -> None:
        # One in five: the first, the second, the third ... transaction of a commit.
        nonlocal passed, failed
        if name == place:
            passed += 1
            if passed % 5 == 0:
                failed += 1
                raise RuntimeError("The lane fails here.")

    monkeypatch.setattr(lane_commit, "MANY_PARTITIONS", 1)
    monkeypatch.setattr(lane_commit, "failpoint", fail)
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=str(tmp_path / "state"),
        execution="continuous", statestore_cache_max_bytes=0,
    )
    streams = Streams(word_count(), config, master="inline")
    streams.set_uncaught_exception_handler(
        lambda error: StreamThreadExceptionResponse.REPLACE_THREAD
    )
    with streams:
        for _ in range(ROUNDS):
            for partition in range(PARTITIONS):
                log.append("words", partition, RecordColumns([b"w%d" % partition], [b""]))
            streams.run_until_caught_up(60)
    assert failed > 1
    assert read(log) == Counter(
        (b"w%d" % partition, number)
        for partition in range(PARTITIONS) for number in range(1, ROUNDS + 1)
    )
