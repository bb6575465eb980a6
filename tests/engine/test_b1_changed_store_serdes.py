"""A store whose inferred serde changes with a function is refused, not read in another format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.errors import TopologyException
from penstock.log import RecordColumns, open_log


def summed(add: Callable[[str, str, Any], Any]) -> Topology:
    builder = StreamsBuilder()
    values = builder.stream("in", key=str, value=str)
    values.group_by_key().aggregate(lambda: 0, add, store="sums")
    return builder.build()


def lengths(key: str, value: str, total: int) -> int:
    return total + len(value)


def halves(key: str, value: str, total: float) -> float:
    return total + len(value) / 2


def doubled(key: str, value: str, total: int) -> int:
    return total + 2 * len(value)


def run(directory: Path, topology: Topology) -> None:
    with open_log(directory / "log.db") as log:
        log.append("in", 0, RecordColumns([b"k"], [b"abc"]))
    config = StreamsConfig(
        application_id="app", log=directory / "log.db", state_dir=directory / "state",
        extra={"auto.offset.reset": "earliest"},
    )
    with Streams(topology, config, master="inline") as streams:
        streams.run_until_caught_up()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in", 1)
    run(tmp_path, summed(lengths))
    return tmp_path


def test_a_function_with_another_result_type_is_refused(directory: Path) -> None:
    with pytest.raises(TopologyException) as refused:
        run(directory, summed(halves))
    assert (
        "The values of store 'sums' were written with the long serde and would be read with the "
        "double serde"
    ) in str(refused.value)


def test_a_function_with_the_same_result_type_continues(directory: Path) -> None:
    run(directory, summed(doubled))
