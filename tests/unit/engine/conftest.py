"""A log of one's own, and what engine tests say again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder, Topology
from penstock.log import Log, open_log

TEXT = Serdes.string()

Say = Callable[[StreamsBuilder], Any]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as opened:
        yield opened


@pytest.fixture
def built() -> Callable[[Say], Topology]:
    """A topology of what is said to a builder; texts are the default serdes of its sources."""

    def build(say: Say) -> Topology:
        builder = StreamsBuilder()
        say(builder)
        return builder.build()

    return build
