"""The queries of docs/grafana-dashboard.json use metrics and labels that are really exposed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import (
    ContextualProcessor,
    JoinWindows,
    PunctuationType,
    Record,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
)
from penstock.engine.observe.prometheus import exposition
from penstock.log import open_log
from penstock.record import RecordColumns, TaskId

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
TEXT = Serdes.string()
#: Prometheus adds it to every metric that it reads.
OF_PROMETHEUS = {"job"}


class Ticking(ContextualProcessor[str, str, str, str]):
    """Punctuates."""

    def init(self, context: Any) -> None:
        context.schedule(1, PunctuationType.STREAM_TIME, lambda timestamp: None)

    def process(self, record: Record[str, str]) -> None:
        pass


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The metrics of an application with joins and stores, at DEBUG."""
    place = tmp_path_factory.mktemp("grafana")
    builder = StreamsBuilder()
    left, right = (builder.stream(name, key=TEXT, value=TEXT) for name in ("left", "right"))
    joined = left.outer_join(
        right, lambda one, other: "", JoinWindows.of(timedelta(seconds=1)), key=TEXT, value=TEXT,
        other_value=TEXT,
    )
    joined.to("out", key=TEXT, value=TEXT)
    left.group_by_key().count(store="counts")
    left.process(Ticking)
    left.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=5))).count(store="windows")
    config = StreamsConfig(
        application_id="shop", log=str(place / "log.db"), state_dir=str(place / "state"),
        metrics_recording_level="DEBUG",
    )
    with open_log(str(config.log)) as log:
        for topic in ("left", "right", "out"):
            log.create_topic(topic, 1)
        # Pairs, records of one side only, and one that is too late.
        log.append("left", 0, RecordColumns(
            [b"a", b"b", b"z", b"a"], [b"1"] * 4, [1_000, 2_000, 90_000, 1]
        ))
        log.append("right", 0, RecordColumns(
            [b"a", b"c", b"z"], [b"1"] * 3, [1_000, 3_000, 90_000]
        ))
    with Streams(builder.build(), config, master="inline") as streams:
        # Lanes report their lag about once a second.
        while not streams.is_caught_up(0.1) or not any(
            name.name == "records-lag" for name in streams.metrics()
        ):
            assert streams.failure is None
        metrics = streams._instance.observers.metrics
        metrics.restores.update("0_0", "counts", 0, 1, 2)
        metrics.standby.add(TaskId(0, 0), 1)
        metrics.standby.set_lag(TaskId(0, 0), 1)
        return exposition(streams.metrics())


@pytest.fixture(scope="module")
def exposed(text: str) -> dict[str, set[str]]:
    """Name -> labels of the metrics."""
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text) for sample in family.samples
    }


def expressions(node: Any) -> Iterator[str]:
    """Yield all queries of the dashboard."""
    if isinstance(node, dict):
        yield from (node[name] for name in ("expr", "query") if "penstock_" in node.get(name, ""))
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from expressions(each)


QUERIES = sorted(set(expressions(json.loads(DASHBOARD.read_text(encoding="utf-8")))))


@pytest.mark.parametrize("query", QUERIES)
def test_query_uses_metrics_and_labels_that_exist(
    query: str, exposed: dict[str, set[str]]
) -> None:
    names = re.findall(r"penstock_\w+", query)
    assert names
    for name in names:
        assert name in exposed, f"{name} is not exposed"
        used = set(re.findall(r"(\w+)=~", query))
        for group in re.findall(r"by \(([^)]*)\)", query):
            used |= set(group.split(", "))
        assert used <= exposed[name] | OF_PROMETHEUS


def test_every_metric_has_a_help_text_and_only_counters_are_totals(text: str) -> None:
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        names = {sample.name for sample in family.samples}
        is_total = {name.endswith("_total") for name in names}
        assert is_total == {family.type == "counter"}, names


def test_every_panel_has_a_query_and_its_own_place() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert all(panel["targets"] for panel in panels)
    for name in ("id", "title"):
        assert len({panel[name] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(panels)
    assert len(QUERIES) > 20
