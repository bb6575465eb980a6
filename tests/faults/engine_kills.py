"""Injects faults into an application on the embedded log, then compares all results.

    PYTHONPATH=tests python -m faults.engine_kills [--kills 210] [--execution batch|continuous]
        [--seed S] [--report FILE] [--only PART] [--progress FILE] [--minutes N]

`engine_trial.py` describes how processes are killed, `lane_faults.py` the other faults of
continuous mode. For `--progress` and `--minutes` see `campaign.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from faults.campaign import (
    Fault,
    Options,
    Part,
    Totals,
    finish,
    kinds_table,
    parse_arguments,
    run,
    summary,
    table,
)
from faults.engine_processes import BATCH_FAILPOINTS, LANE_FAILPOINTS, Execution, Victim
from faults.engine_trial import CLUSTER, LOCAL, Kill, Trial
from faults.lane_faults import (
    KEEP_PROCESSES,
    LANE_FAULT_POINTS,
    LANE_TARGETS,
    inject_lane_fault,
)
from penstock.engine.failpoints import FailpointName

KINDS = {
    "lane killed": ("worker",), "executor killed": ("executor",), "driver killed": ("driver",),
    "stopped past a timeout": ("late lane", "late driver"), "state deleted": ("state",),
}


class EngineTrial(Trial):
    """A trial that injects faults."""

    def inject(self, *faults: Fault) -> None:
        """Process one wave of input with some faults, one after the other."""
        pieces = self.new_wave()
        for fault in faults:
            if fault.target in LANE_TARGETS:
                inject_lane_fault(self, fault, pieces)
            else:
                victim = cast("Victim", fault.target)
                self.kill(Kill(victim, cast("FailpointName", fault.when)), pieces)
        self.finish_wave(pieces)


def faults_of(execution: Execution, *targets: str) -> tuple[Fault, ...]:
    """All faults of the targets."""
    failpoints = BATCH_FAILPOINTS if execution == "batch" else LANE_FAILPOINTS
    return tuple(
        Fault(target, failpoint) for target in targets
        for failpoint in (LANE_FAULT_POINTS if target in LANE_TARGETS else failpoints)
    )


def parts_of(execution: Execution, kills: int) -> Sequence[Part]:
    """Executors are killed under `local-cluster`; all other faults are injected under `local`."""
    def part(name: str, master: str, count: int, *targets: str) -> Part:
        settings = KEEP_PROCESSES if "late lane" in targets else ()

        def open_trial(directory: Path, seed: int) -> EngineTrial:
            return EngineTrial(directory, seed, master, execution=execution, settings=settings)

        return Part(name, faults_of(execution, *targets), max(1, count), open_trial)

    if execution == "batch":
        executors = kills // 3
        return (
            part("processes", LOCAL, kills - executors, "driver", "worker"),
            part("executors", CLUSTER, executors, "executor"),
        )
    # A fifth of the faults for each kind.
    fifth = kills // 5
    return (
        part("processes", LOCAL, kills - 3 * fifth, "driver", "worker"),
        part("executors", CLUSTER, fifth, "executor"),
        part("stopped", LOCAL, fifth, "late lane", "late driver"),
        part("state", LOCAL, fifth, "state"),
    )


def report(totals: Totals, execution: Execution) -> str:
    """The results as a Markdown page."""
    targets: tuple[str, ...] = get_args(Victim)
    kinds: list[str] = []
    if execution == "continuous":
        targets += LANE_TARGETS
        kinds = [*kinds_table(KINDS, totals.counts), ""]
    return "\n".join((
        f"# Faults of the engine in {execution} mode",
        "",
        "Written by `make faults` (`tests/faults/engine_kills.py`); `exactly-once.md` describes "
        "the faults and the comparison.",
        "",
        *summary(totals),
        "",
        *kinds,
        *table(
            "failpoint", BATCH_FAILPOINTS if execution == "batch" else LANE_FAILPOINTS, targets,
            totals.counts,
        ),
        "",
    ))


def main() -> None:
    options: Options = parse_arguments("Inject faults into an application.", 210)
    execution = cast("Execution", options.execution)
    totals = run(parts_of(execution, options.kills), options)
    finish(totals, options, lambda found: report(found, execution))


if __name__ == "__main__":
    main()
