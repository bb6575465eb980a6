"""Fixtures of the engine's unit tests: a log, and a function that builds topologies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder, Topology
from penstock.log import Log, open_log

TEXT = Serdes.string()

Define = Callable[[StreamsBuilder], Any]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as opened:
        yield opened


@pytest.fixture
def built() -> Callable[[Define], Topology]:
    """A function that builds a topology from a function of the builder."""

    def build(define: Define) -> Topology:
        builder = StreamsBuilder()
        define(builder)
        return builder.build()

    return build
