from __future__ import annotations

import time

import pytest

from penstock.errors import ConfigException, StreamsException
from penstock.record import Headers
from penstock.timestamps import (
    ConsumedRecord,
    FailOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    make_timestamp_extractor,
)

GOOD = ConsumedRecord("t", 0, 3, 17, "k", "v", Headers())
BAD = GOOD._replace(timestamp=-1)


@pytest.mark.parametrize("name", ["fail_on_invalid", "log_and_skip", "use_partition_time"])
def test_valid_timestamp_is_returned(name: str) -> None:
    assert make_timestamp_extractor(name)(GOOD, 99) == 17


def test_invalid_timestamp_fails_by_default() -> None:
    with pytest.raises(StreamsException, match=r"offset 3 of partition 0 of topic 't'"):
        make_timestamp_extractor(None)(BAD, 5)


def test_invalid_timestamp_can_be_skipped() -> None:
    assert make_timestamp_extractor("log_and_skip")(BAD, 5) == -1


def test_invalid_timestamp_can_be_replaced_by_the_partition_time() -> None:
    extract = make_timestamp_extractor(UsePartitionTimeOnInvalidTimestamp)
    assert extract(BAD, 5) == 5
    with pytest.raises(StreamsException, match="not known yet"):
        extract(BAD, -1)


def test_wall_clock_extractor() -> None:
    before = int(time.time() * 1000) - 1
    assert make_timestamp_extractor("wallclock")(BAD, -1) >= before


def test_extractor_can_be_a_function_or_a_name() -> None:
    assert make_timestamp_extractor(lambda record, partition_time: partition_time + 1)(BAD, 5) == 6
    assert isinstance(
        make_timestamp_extractor("org.apache.kafka.streams.processor.FailOnInvalidTimestamp"),
        FailOnInvalidTimestamp,
    )
    with pytest.raises(ConfigException, match="not int"):
        make_timestamp_extractor(5)  # type: ignore[arg-type]
