from __future__ import annotations

import time

import pytest

from penstock.errors import ConfigException, StreamsException
from penstock.record import Headers
from penstock.timestamps import (
    ConsumedRecord,
    FailOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    timestamp_extractor,
)

GOOD = ConsumedRecord("t", 0, 3, 17, "k", "v", Headers())
BAD = GOOD._replace(timestamp=-1)


@pytest.mark.parametrize("name", ["fail_on_invalid", "log_and_skip", "use_partition_time"])
def test_the_records_own_time_is_taken_if_it_is_valid(name: str) -> None:
    assert timestamp_extractor(name)(GOOD, 99) == 17


def test_an_invalid_time_fails_by_default() -> None:
    with pytest.raises(StreamsException, match=r"offset 3 of partition 0 of topic 't'"):
        timestamp_extractor(None)(BAD, 5)


def test_an_invalid_time_can_be_skipped() -> None:
    assert timestamp_extractor("log_and_skip")(BAD, 5) == -1


def test_an_invalid_time_can_be_that_of_the_partition_once_it_is_known() -> None:
    extract = timestamp_extractor(UsePartitionTimeOnInvalidTimestamp)
    assert extract(BAD, 5) == 5
    with pytest.raises(StreamsException, match="not known yet"):
        extract(BAD, -1)


def test_the_wall_clock() -> None:
    before = int(time.time() * 1000) - 1
    assert timestamp_extractor("wallclock")(BAD, -1) >= before


def test_any_callable_is_an_extractor() -> None:
    assert timestamp_extractor(lambda record, partition_time: partition_time + 1)(BAD, 5) == 6
    assert isinstance(
        timestamp_extractor("org.apache.kafka.streams.processor.FailOnInvalidTimestamp"),
        FailOnInvalidTimestamp,
    )
    with pytest.raises(ConfigException, match="not int"):
        timestamp_extractor(5)  # type: ignore[arg-type]
