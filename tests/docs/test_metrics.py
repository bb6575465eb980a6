"""docs/metrics.md lists exactly the metrics that exist, with their groups and levels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from penstock import StreamsConfig
from penstock.engine.batch_report import BatchReport
from penstock.engine.continuous.messages import PartitionLag
from penstock.engine.observe.metrics import JOIN_COUNTERS, Metrics
from penstock.metric_catalogue import JOIN, NODE, SENSORS, TASK
from penstock.record import TaskId

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
#: Only a running instance knows them.
OF_INSTANCE = {
    ("stream-metrics", name) for name in (
        "state", "client-state", "topology-description", "alive-stream-threads",
        "failed-stream-threads",
    )
} | {("stream-thread-metrics", name) for name in ("thread-start-time", "state", "thread-state")}


def listed() -> Iterator[tuple[str, str, str]]:
    """Yield group, name and level of each metric of the page."""
    group = ""
    for line in PAGE.read_text(encoding="utf-8").partition("## Missing")[0].splitlines():
        if found := re.match(r"Group `([\w-]+)`", line):
            group = found[1]
        elif line.startswith("| `"):
            names, level, _ = line.strip("| ").split(" | ", 2)
            for name in re.findall(r"`([\w-]+)`", names):
                yield group, name, level.split()[0]


def test_page_lists_the_metrics_of_an_application() -> None:
    metrics, of_lanes = (
        Metrics(StreamsConfig(application_id="app", execution=execution), "thread")
        for execution in ("batch", "continuous")
    )
    node_counters = [*JOIN_COUNTERS, "emitted", "emitted-records", "out-of-order"]
    metrics.record(BatchReport(1, 1, 1, 1, 1, 0.1, 0.1, 0.1, counters={
        TaskId(0, 0): {"process-total": 1, **{f"NODE/{name}": 1 for name in node_counters}},
    }))
    metrics.restores.update("0_0", "store", 0, 1, 2)
    metrics.standby.add(TaskId(0, 0), 1)
    metrics.standby.set_lag(TaskId(0, 0), 1)
    of_lanes.lag_measured([PartitionLag(TaskId(0, 0), "in", 0, 1)])
    existing = {
        (name.group, name.name): "INFO"
        for each in (metrics, of_lanes) for name in each.snapshot({})
    }
    existing |= {
        (kind.group, name): kind.level for kind in SENSORS.values() for name, _ in kind.metrics
    }
    existing |= dict.fromkeys(OF_INSTANCE, "INFO")
    assert {(group, name): level for group, name, level in listed()} == existing
    assert {JOIN, NODE, TASK} <= {group for group, _ in existing}


def test_no_metric_is_listed_twice() -> None:
    names = [(group, name) for group, name, _ in listed()]
    assert len(names) == len(set(names))
