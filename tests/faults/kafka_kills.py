"""Injects faults into an application on Kafka, then compares all results.

    PYTHONPATH=tests python -m faults.kafka_kills [--kills 105] [--execution batch|continuous]
        [--seed S] [--report FILE] [--only PART] [--progress FILE] [--minutes N]

`kafka_trial.py` describes the faults. Each trial has its own brokers, a wave of input for each
fault, and a comparison at the end. For `--progress` and `--minutes` see `campaign.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

from faults.campaign import (
    Part,
    Totals,
    finish,
    kinds_table,
    parse_arguments,
    run,
    summary,
    table,
)
from faults.engine_kills import KINDS
from faults.engine_processes import BATCH_FAILPOINTS, LANE_FAILPOINTS, Execution
from faults.engine_trial import CLUSTER, LOCAL
from faults.kafka_proxy import APIS, LOSSES
from faults.kafka_trial import KafkaTrial, Target, faults_of
from penstock.broker import jars


class Conditions(NamedTuple):
    """The conditions of a part."""

    name: str
    master: str
    brokers: int
    targets: tuple[Target, ...]
    #: The share of the faults.
    weight: int


BROKER: tuple[Target, ...] = ("broker", "broker, back first")
NODES: tuple[Target, ...] = ("leader", "coordinator")
PARTS: dict[Execution, tuple[Conditions, ...]] = {
    "batch": (
        Conditions("processes", LOCAL, 1, ("driver", "worker"), 28),
        Conditions("broker", LOCAL, 1, BROKER, 14),
        Conditions("broker-inline", "inline", 1, BROKER, 14),
        Conditions("proxy", "inline", 1, LOSSES, 30),
        Conditions("three", "inline", 3, NODES, 14),
        Conditions("late", "inline", 1, ("late driver",), 5),
    ),
    "continuous": (
        Conditions("processes", LOCAL, 1, ("driver", "worker"), 2),
        Conditions("executors", CLUSTER, 1, ("executor",), 1),
        # Not a single broker: lanes that are not stopped commit when it is killed, and Kafka 4.3.0
        # may complete such a transaction without its markers when it restarts (docs/kafka.md).
        Conditions("three", LOCAL, 3, NODES, 1),
        Conditions("stopped", LOCAL, 1, ("late lane", "late driver"), 1),
        Conditions("state", LOCAL, 1, ("state",), 1),
    ),
}


def parts_of(execution: Execution, kills: int) -> Sequence[Part]:
    """The parts of a campaign."""
    whole = sum(each.weight for each in PARTS[execution])

    def part(conditions: Conditions) -> Part:
        def open_trial(directory: Path, seed: int) -> KafkaTrial:
            return KafkaTrial(
                directory, seed, conditions.master, brokers=conditions.brokers,
                execution=execution,
            )

        return Part(
            conditions.name, faults_of(*conditions.targets, execution=execution),
            max(1, kills * conditions.weight // whole), open_trial,
        )

    return [part(each) for each in PARTS[execution]]


def report(totals: Totals, execution: Execution) -> str:
    """The results as a Markdown page."""
    targets = dict.fromkeys(target for part in PARTS[execution] for target in part.targets)
    at_failpoints = [target for target in targets if target not in LOSSES]
    failpoints = BATCH_FAILPOINTS if execution == "batch" else LANE_FAILPOINTS
    where = (
        f"`driver`, `worker` and one half of `broker` run with Spark's `{LOCAL}`, all others "
        "without Spark; `leader` and `coordinator` with three brokers, all others with one."
    )
    kinds: list[str] = []
    losses = [
        "", "## Requests of the driver lost by a proxy",
        *table("request", APIS, LOSSES, totals.counts),
    ]
    if execution == "continuous":
        where = (
            f"`executor` runs with Spark's `{CLUSTER}`, all others with `{LOCAL}`; `leader` and "
            "`coordinator` with three brokers, all others with one."
        )
        kinds = [*kinds_table({**KINDS, "broker killed": NODES}, totals.counts), ""]
        losses = []
    return "\n".join((
        f"# Faults on Kafka in {execution} mode",
        "",
        "Written by `make faults` (`tests/faults/kafka_kills.py`); `exactly-once.md` describes "
        "the faults and the comparison.",
        "",
        *summary(totals),
        f"Kafka {jars.VERSION}. {where}",
        "",
        *kinds,
        "## Processes killed or stopped, or state deleted, at a failpoint",
        *table("failpoint", failpoints, at_failpoints, totals.counts),
        *losses,
        "",
    ))


def main() -> None:
    options = parse_arguments("Inject faults into an application on Kafka.", 105)
    execution = cast("Execution", options.execution)
    totals = run(parts_of(execution, options.kills), options)
    finish(totals, options, lambda found: report(found, execution))


if __name__ == "__main__":
    main()
