"""`penstock upgrade` on a real broker: topics are copied, deleted and created again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.cluster import clear
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.broker.cluster import ClusterStatus
from penstock.engine.upgrade import apply_upgrade, plan_upgrade
from penstock.errors import TopologyException
from penstock.log import Log, RecordColumns, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TEXT = Serdes.string()
TIMEOUT_S = 120.0


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        for topic in ("in", "out"):
            log.create_topic(topic, 2)
        yield log


@pytest.fixture
def config(penstock_broker: ClusterStatus, tmp_path: Path) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", log=penstock_broker.address, state_dir=str(tmp_path / "state"),
        statestore_cache_max_bytes=0,
    )


def counts(steps: int) -> Topology:
    """Count the words twice, after some other steps."""
    builder = StreamsBuilder()
    words = builder.stream("in", key=TEXT, value=TEXT)
    for _ in range(steps):
        words.filter(lambda value: True)
    for label in "xy":
        words.group_by_key().count().to_stream(_prefixed(label)).to(
            "out", key=TEXT, value=Serdes.long()
        )
    return builder.build()


def _prefixed(label: str) -> Callable[[Any, Any], str]:
    return lambda key, _: label + key


def run(log: Log, config: StreamsConfig, topology: Topology) -> list[tuple[bytes | None, int]]:
    """Count two words and return all results."""
    for number, word in enumerate((b"a", b"b")):
        log.append("in", number, RecordColumns([word], [b"v"]))
    with Streams(topology, config, master="inline") as streams:
        streams.run_until_caught_up(TIMEOUT_S)
    return sorted(
        (key, int.from_bytes(value or b""))
        for number in range(2) for batch in log.read("out", number, 0)
        for rows in [batch.columns()] for key, value in zip(rows.keys, rows.values, strict=True)
    )


def test_rows_move_to_names_that_other_stores_had(log: Log, config: StreamsConfig) -> None:
    expected = [(f"{label}{word}".encode(), 1) for label in "xy" for word in "ab"]
    assert run(log, config, counts(0)) == expected
    new = counts(5)
    with pytest.raises(TopologyException, match="is now named"):
        run(log, config, new)
    plan = plan_upgrade(log, new, config)
    assert len(plan.moves) == 2
    assert not plan.moves.keys().isdisjoint(plan.moves.values())
    apply_upgrade(log, new, config, plan)
    found = run(log, config, new)
    # The refused start has left its two words.
    assert found == sorted((key, count) for key, _ in expected for count in (1, 2, 3))
    plan = plan_upgrade(log, new, config, drop=list(plan.moves.values())[:1])
    apply_upgrade(log, new, config, plan)
    assert len(run(log, config, new)) == len(found) + 4
