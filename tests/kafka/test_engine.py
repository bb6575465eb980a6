"""The engine on a real broker: the application of the crash tests gives what it gives elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from faults.engine_app import (
    PIECES,
    Input,
    Row,
    append,
    config,
    is_drained,
    make_topics,
    run_undisturbed,
    start_inline,
    topology,
    verify,
)
from kafka.cluster import swept
from penstock import Streams
from penstock.broker.cluster import Status
from penstock.log import Log, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PATIENCE_S = 240.0


@pytest.fixture
def address(penstock_broker: Status) -> str:
    return swept(penstock_broker.address)


@pytest.fixture
def log(address: str) -> Iterator[Log]:
    with open_log(address) as log:
        make_topics(log)
        yield log


def waves(count: int) -> list[list[list[Row]]]:
    source = Input(seed=5)
    made = [list(islice(source.wave(number), PIECES)) for number in range(1, count + 1)]
    return [[source.first()], *made, [source.every_key(count + 1)]]


def compare(log: Log, given: list[list[list[Row]]], directory: Path) -> None:
    with open_log(run_undisturbed(directory / "undisturbed", given)) as right:
        verify(log, right, given)


@pytest.mark.parametrize(
    ("master", "guarantee"),
    [
        ("inline", "exactly_once"), ("inline", "at_least_once"),
        pytest.param(
            "local[2]", "exactly_once", marks=[pytest.mark.spark, pytest.mark.soak]
        ),
    ],
)
def test_on_kafka_the_application_answers_as_on_the_embedded_log(
    log: Log, address: str, tmp_path: Path, master: str, guarantee: str
) -> None:
    given = waves(1)
    settings = config(address, str(tmp_path / "state"), processing_guarantee=guarantee)
    streams = (
        Streams(topology(), settings, compute=start_inline) if master == "inline"
        else Streams(topology(), settings, master=master)
    )
    with streams:
        for wave in given:
            for rows in wave:
                append(log, rows)
            deadline = time.monotonic() + PATIENCE_S
            while not is_drained(log):
                assert time.monotonic() < deadline
                streams.run_until_caught_up(timeout=PATIENCE_S)
    compare(log, given, tmp_path)
