"""The capacity model of `docs/scaling.md`: tables computed from measured coefficients.

    python bench/capacity.py        prints the tables of the page

Coefficients come from `bench/results/cluster.json` (scale-out, restore, lost hosts, the driver) and
`bench/results/kafka.json` (records/s of W1 to W5 on two cores). The model has no other figures but
the assumptions below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"
EXECUTORS = (1, 2, 4, 10, 20, 50, 100)
#: Assumptions, not measurements. A lane under load commits ten times a second.
COMMITS_PER_S = 10
#: Bytes/s that one broker takes in, and the rows of the example's state.
BROKER_BYTES_PER_S = 100_000_000
ROWS = 100_000_000
TASKS_PER_LANE = 8


class Coefficients(NamedTuple):
    """Measured figures."""

    #: Workload -> records/s of one core.
    per_core: dict[str, float]
    #: The share of linear scale-out that four executors reached, at most 1.
    efficiency: float
    #: Bytes that a stateful record writes, and changelog records restored per second and lane.
    written_bytes: float
    restored_per_s: float
    #: Seconds without a commit of the tasks of a host that disappears.
    lost_host_s: float
    #: Seconds of the driver for one commit message.
    driver_s: float


def load() -> Coefficients:
    cluster = _figures("cluster")
    kafka = _figures("kafka")
    scale = cluster["scale"]["continuous"]
    stateful = scale["stateful"]["4"]
    return Coefficients(
        {name: each["penstock"] / 2 for name, each in kafka["throughput"].items()},
        min(1.0, *(each["4"]["ratio"] / 4 for each in scale.values())),
        (stateful["output_bytes"] + stateful["changelog_bytes"]) / stateful["records"],
        cluster["restore"]["records_per_second"],
        max(each["tasks_of_the_lost_host_pause_s"][-1] for each in cluster["loss"].values()),
        cluster["driver"][str(TASKS_PER_LANE)]["us_per_message"] / 1e6,
    )


def _figures(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())["figures"]
    return figures


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(found: Coefficients) -> str:
    """The coefficients."""
    rows = [
        [f"records/s of a core, {name}", f"{rate:,.0f}"] for name, rate in found.per_core.items()
    ]
    rows += [
        ["share of linear scale-out at 4 executors", f"{found.efficiency:.2f}"],
        ["bytes that a stateful record writes to the broker", f"{found.written_bytes:.0f}"],
        ["changelog records/s that a lane restores", f"{found.restored_per_s:,.0f}"],
        ["time without a commit of the tasks of a lost host", f"{found.lost_host_s:.1f} s"],
        [f"driver's time for a commit of {TASKS_PER_LANE} tasks", f"{found.driver_s * 1e6:.0f} us"],
    ]
    return table(["coefficient", "measured"], rows)


def model(found: Coefficients) -> str:
    """Records/s, and what it needs, for so many executors of one slot."""
    rows = []
    for executors in EXECUTORS:
        rates = {
            name: executors * rate * (found.efficiency if executors > 1 else 1)
            for name, rate in found.per_core.items()
        }
        written = rates["W2"] * found.written_bytes
        driver = executors * COMMITS_PER_S * found.driver_s
        start_s = ROWS / executors / found.restored_per_s
        lost_s = found.lost_host_s
        if executors > 1:
            lost_s += ROWS / executors / (executors - 1) / found.restored_per_s
        rows.append([
            str(executors), *(f"{rate / 1e6:.2f}M" for rate in rates.values()),
            f"{written / 1e6:,.0f} MB/s", str(max(1, -(-int(written) // BROKER_BYTES_PER_S))),
            f"{driver:.1%}", f"{start_s:,.0f} s", f"{lost_s:,.0f} s" if executors > 1 else "-",
        ])
    return table([
        "executors", *found.per_core, "written by W2", "brokers", "driver", "restore of all",
        "one executor lost",
    ], rows)


def main() -> None:
    found = load()
    print(measured(found), model(found), sep="\n\n")


if __name__ == "__main__":
    main()
