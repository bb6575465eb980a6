"""The tables of `docs/scaling.md`: measurements, coefficients, and a capacity model from them.

    python bench/capacity.py            prints the tables
    python bench/capacity.py --update   replaces the tables of the page

Coefficients come from `bench/results/cluster.json` (scale-out, restore, lost hosts, the driver) and
`bench/results/kafka.json` (records/s of W1 to W5 on two cores). The model has no other figures but
the assumptions below.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
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
    #: Bytes of an input record, and of a written one, in the broker's files.
    input_bytes: float
    written_bytes: float
    #: Changelog records that a lane restores.
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
        {name: each["continuous"] / 2 for name, each in kafka["throughput"].items()},
        min(1.0, *(each["4"]["ratio"] / 4 for each in scale.values())),
        stateful["input_bytes"] / stateful["records"],
        (stateful["output_bytes"] + stateful["changelog_bytes"])
        / (stateful["outputs"] + stateful["changes"]),
        _restored_per_s(cluster),
        max(each["tasks_of_the_lost_host_pause_s"][-1] for each in cluster["loss"].values()),
        cluster["driver"][str(TASKS_PER_LANE)]["us_per_message"] / 1e6,
    )


def _restored_per_s(cluster: dict[str, Any]) -> float:
    """From Kafka, if that was measured, otherwise from the embedded log with both cores."""
    if "restore" in cluster:
        return float(cluster["restore"]["records_per_second"])
    return float(_figures("engine")["restore"]["rows_per_second"]) / 2


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
        ["bytes of an input record on the broker", f"{found.input_bytes:.0f}"],
        ["bytes of an output or changelog record on the broker", f"{found.written_bytes:.0f}"],
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
        # Without a cache, W2 writes an output and a changelog record for each input record.
        written = rates["W2"] * (found.input_bytes + 2 * found.written_bytes)
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
        "executors", *found.per_core, "into the brokers, W2", "brokers", "driver", "restore of all",
        "one executor lost",
    ], rows)


# ---- measurements ----------------------------------------------------------------------------


def scale() -> str:
    """Records/s by the number of executors."""
    rows = []
    for execution, topologies in _figures("cluster")["scale"].items():
        for topology, runs in topologies.items():
            cells = [f"{each['rate']:,} ({each['ratio']:.2f}x)" for each in runs.values()]
            rows.append([execution, topology, *cells])
    heads = [f"{n} executor{'s' if n > 1 else ''}" for n in (1, 2, 4)]
    return table(["mode, records/s", "topology", *heads], rows)


def loss() -> str:
    """The longest times without a commit."""
    return table(
        ["a host is lost", "its tasks", "the other tasks", "results"],
        [
            [topology, f"{each['tasks_of_the_lost_host_pause_s'][-1]:.1f} s without a commit",
             f"{each['other_tasks_pause_s'][-1]:.1f} s without a commit",
             f"{each['checked']:,} checked, {each['wrong']} wrong"]
            for topology, each in _figures("cluster")["loss"].items()
        ],
    )


def wide() -> str:
    """The figures of many partitions and stores."""
    rows = []
    figures = _figures("cluster")
    for name, where in (
        ("wide", "Kafka, two executors"), ("wide_3_brokers", "three Kafka brokers, `local[2]`"),
        ("wide_local", "embedded log, `local[2]`"),
    ):
        if name not in figures:
            continue
        found = figures[name]
        for start, label in (("first", "first start"), ("restore", "start on empty disks")):
            each = found[start]
            lanes = each["lanes"]
            rows.append([
                f"{found['partitions']} x {found['stores']}, {where}, {label}",
                f"{each['running_after_s']:.0f} s",
                f"{each['restored_records']:,}",
                f"{each['rate']:,}" if start == "first" else "-",
                f"{max(lane['anonymous_mb'] for lane in lanes)} MB",
                str(max(lane["open_files"] for lane in lanes)),
                str(max(lane["lmdb_maps"] for lane in lanes)),
            ])
    return table([
        "partitions x stores", "until all tasks run", "restored records", "records/s",
        "memory of a lane", "open files of a lane", "LMDB files of a lane",
    ], rows)


def tables() -> list[str]:
    """All tables, in the order of the page."""
    found = load()
    return [scale(), loss(), wide(), measured(found), model(found)]


def update(text: str) -> str:
    """Replace each table of a page by the new one with the same first column."""
    for each in tables():
        head = re.escape(each.partition(" | ")[0])
        text, replaced = re.subn(rf"^{head} \|.*\n(?:\|.*\n)*", f"{each}\n", text, flags=re.M)
        if replaced != 1:
            raise SystemExit(f"The page has no table that starts with '{head}'.")
    return text


def main() -> None:
    if sys.argv[1:] == ["--update"]:
        PAGE.write_text(update(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(*tables(), sep="\n\n")


if __name__ == "__main__":
    main()
