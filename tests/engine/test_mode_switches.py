"""An application changes its execution mode while records are in flight, on every log.

A run fails behind a repartition, or inside a foreign-key join, so the next run, in whichever mode,
finds records in the topics between the sub-topologies. Each of them counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafka.cluster import clear
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, StreamsException, Topology
from penstock.log import Log, RecordColumns, open_log
from penstock.log.types import TopicPartition
from penstock.partitioning import partition_of

TEXT, LONG = Serdes.string(), Serdes.long()
PARTITIONS = 2
DEADLINE_S = 120.0
WORDS = [f"w{number}" for number in range(8)]


class Run(NamedTuple):
    """A run of the application."""

    execution: str
    fails: bool = False


CONTINUOUS, BATCH = Run("continuous"), Run("batch")
FAILED_CONTINUOUS, FAILED_BATCH = Run("continuous", fails=True), Run("batch", fails=True)
#: While it is not empty, the applications fail. Functions refer to this module.
FAILS: list[bool] = []


def checked(value: Any) -> Any:
    if FAILS:
        raise ValueError("This run ends here.")
    return value


@pytest.fixture(autouse=True)
def no_failures() -> None:
    FAILS.clear()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    address = str(tmp_path / "log.db")
    if request.param == "kafka":
        address = clear(request.getfixturevalue("penstock_broker").address)
    with open_log(address) as log:
        for topic in ("lines", "words", "counts"):
            log.create_topic(topic, PARTITIONS)
        yield log


def word_count() -> Topology:
    """Counts words behind a repartition."""
    builder = StreamsBuilder()
    lines: Any = builder.stream("lines")
    (lines.flat_map_values(str.split).select_key(lambda key, word: word)
        .repartition(name="by-word").map_values(checked).group_by_key().count(store="counts")
        .to_stream().to("counts", value=LONG))
    return builder.build()


def foreign_key_join() -> Topology:
    """Joins each line with its word. In batch mode, too, the records pass through the log."""
    builder = StreamsBuilder()
    lines: Any = builder.table("lines")
    words: Any = builder.table("words")
    (lines.join(words, lambda line: line, lambda line, word: checked(f"{line}: {word}"))
        .to_stream().to("counts"))
    return builder.build()


def run(log: Log, topology: Topology, directory: Path, each: Run) -> None:
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=str(directory), execution=each.execution,
        default_key_serde=TEXT, default_value_serde=TEXT, statestore_cache_max_bytes=0,
    )
    ends: AbstractContextManager[object] = nullcontext()
    if each.fails:
        FAILS.append(True)
        ends = pytest.raises(StreamsException, match="This run ends here")
    with ends, Streams(topology, config, master="inline") as streams:
        streams.run_until_caught_up(DEADLINE_S)
    FAILS.clear()


def write(log: Log, topic: str, rows: list[tuple[str, str]]) -> None:
    for key, value in rows:
        partition = partition_of(key.encode(), PARTITIONS)
        log.append(topic, partition, RecordColumns([key.encode()], [value.encode()]))


def read(log: Log) -> list[tuple[bytes, bytes]]:
    return [
        (key, value) for partition in range(PARTITIONS)
        for batch in log.read("counts", partition, 0) for columns in [batch.columns()]
        for key, value in zip(columns.keys, columns.values, strict=True)
        if key is not None and value is not None
    ]


def in_flight(log: Log) -> int:
    """The number of unread records between the sub-topologies."""
    partitions = [
        TopicPartition(topic.name, number) for topic in log.topics()
        if topic.name.startswith("app-") and topic.name.endswith(("-repartition", "-topic"))
        for number in range(topic.partitions)
    ]
    committed = log.committed("app", partitions)
    starts = {at: bounds.start for at, bounds in log.offsets(partitions).items()}
    return sum(
        len(batch.columns().keys) for at in partitions for batch in log.read(
            *at, max(starts[at], committed[at].offset if at in committed else 0)
        )
    )


@pytest.mark.parametrize("runs", [
    (BATCH, FAILED_CONTINUOUS, BATCH),
    (CONTINUOUS, FAILED_CONTINUOUS, FAILED_BATCH, CONTINUOUS, BATCH),
], ids=lambda runs: "-".join(f"{'failed_' * each.fails}{each.execution}" for each in runs))
def test_records_behind_a_repartition_are_counted_once(
    log: Log, tmp_path: Path, runs: tuple[Run, ...]
) -> None:
    """A failed run of batch mode leaves the records that it was to consume first."""
    for each in runs:
        write(log, "lines", [(word, f"{word} all") for word in WORDS])
        run(log, word_count(), tmp_path / "state", each)
        assert (in_flight(log) > 0) == each.fails
    found = Counter((key, int.from_bytes(value, "big")) for key, value in read(log))
    assert found == {
        **{(word.encode(), count): 1 for word in WORDS for count in range(1, len(runs) + 1)},
        **{(b"all", count): 1 for count in range(1, len(WORDS) * len(runs) + 1)},
    }


def test_batch_mode_deletes_the_consumed_records_of_a_repartition(
    log: Log, tmp_path: Path
) -> None:
    """Otherwise continuous mode would count them again once the broker has dropped the offsets."""
    write(log, "lines", [(word, f"{word} all") for word in WORDS])
    run(log, word_count(), tmp_path / "state", CONTINUOUS)
    topic = "app-by-word-repartition"
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    assert any(bounds.start < bounds.end for bounds in log.offsets(partitions).values())
    run(log, word_count(), tmp_path / "state", BATCH)
    assert [
        batch for at, bounds in log.offsets(partitions).items()
        for batch in log.read(*at, bounds.start)
    ] == []


@pytest.mark.parametrize("runs", [
    (BATCH, FAILED_CONTINUOUS, BATCH), (CONTINUOUS, FAILED_BATCH, CONTINUOUS),
], ids=lambda runs: "-".join(f"{'failed_' * each.fails}{each.execution}" for each in runs))
def test_records_inside_a_foreign_key_join_are_joined_once(
    log: Log, tmp_path: Path, runs: tuple[Run, ...]
) -> None:
    write(log, "words", [(word, word.upper()) for word in WORDS])
    for number, each in enumerate(runs, 1):
        write(log, "lines", [(f"{number}-{word}", word) for word in WORDS])
        run(log, foreign_key_join(), tmp_path / "state", each)
        assert (in_flight(log) > 0) == each.fails
    assert Counter(read(log)) == {
        (f"{number}-{word}".encode(), f"{word}: {word.upper()}".encode()): 1
        for number in range(1, len(runs) + 1) for word in WORDS
    }
