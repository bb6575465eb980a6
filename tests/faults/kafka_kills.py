"""Injects faults into an application on Kafka, then compares all results.

    PYTHONPATH=tests python -m faults.kafka_kills [--kills 105] [--seed S] [--report FILE]
        [--only PART]

`kafka_trial.py` describes the faults. Each trial has its own brokers, a wave of input for each
fault, and a comparison at the end. The folder of a failed trial is not removed.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from faults.engine_kills import LOCAL, Counts, format_counts
from faults.engine_processes import BATCH_FAILPOINTS
from faults.kafka_proxy import APIS, LOSSES
from faults.kafka_trial import Fault, KafkaTrial, Target, faults_of
from penstock.broker import jars

FAULTS_OF_A_TRIAL = 15
#: The sum of the weights of all parts.
WHOLE = 105


class Part(NamedTuple):
    """Faults under the same conditions."""

    name: str
    master: str
    brokers: int
    targets: tuple[Target, ...]
    #: The number of faults out of `WHOLE`.
    weight: int


PARTS = (
    Part("processes", LOCAL, 1, ("driver", "worker"), 28),
    Part("broker", LOCAL, 1, ("broker", "broker, back first"), 14),
    Part("broker-inline", "inline", 1, ("broker", "broker, back first"), 14),
    Part("proxy", "inline", 1, LOSSES, 30),
    Part("three", "inline", 3, ("leader", "coordinator"), 14),
    Part("late", "inline", 1, ("late driver",), 5),
)


@dataclass
class Summary:
    """Totals of all trials."""

    faults: Counter[Fault] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)
    trials: int = 0
    #: The load average of the machine after each fault.
    loads: list[float] = field(default_factory=list)


def schedule(part: Part, faults: int, rng: random.Random) -> list[Fault]:
    """The faults of a part, repeated, in random order."""
    chosen = list(itertools.islice(itertools.cycle(faults_of(*part.targets)), faults))
    rng.shuffle(chosen)
    return chosen


def run_many(
    kills: int, seed: int, parts: Sequence[Part], tell: Callable[[str], None]
) -> Summary:
    """Run all parts."""
    total = Summary()
    rng = random.Random(seed)
    for part in parts:
        planned = schedule(part, max(1, kills * part.weight // WHOLE), rng)
        # Several comparisons: a failure is detected soon after its cause.
        for start in range(0, len(planned), FAULTS_OF_A_TRIAL):
            some = planned[start : start + FAULTS_OF_A_TRIAL]
            run_trial(part, some, rng.randrange(10**6), total, tell)
    return total


def run_trial(
    part: Part, faults: Sequence[Fault], seed: int, total: Summary, tell: Callable[[str], None]
) -> None:
    """One set of brokers, a wave for each fault, and a comparison at the end."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-kafka-faults-"))
    tell(f"      {part.name}, {part.master}, {part.brokers} brokers, seed {seed}: {directory}")
    with KafkaTrial(directory, seed, part.master, brokers=part.brokers) as trial:
        for fault in faults:
            began = time.monotonic()
            trial.inject(fault)
            total.faults[fault] += 1
            total.loads.append(os.getloadavg()[0])
            tell(
                f"{total.faults.total():4}  {fault}, wave {trial.counts.waves} processed after "
                f"{time.monotonic() - began:.1f} s"
            )
        trial.verify()
        tell(f"      equal: {format_counts(trial.counts.records)}")
        total.counts += trial.counts
        total.trials += 1
    shutil.rmtree(directory, ignore_errors=True)


# ---- the report ------------------------------------------------------------------------------


def table(
    title: str, rows: Sequence[str], targets: Sequence[Target], faults: Counter[Fault]
) -> list[str]:
    """A Markdown table of the number of faults."""
    lines = [f"| {title} | {' | '.join(targets)} | all |", "|---|" + "---|" * (len(targets) + 1)]
    for row in rows:
        counts = [faults[Fault(each, row)] for each in targets]
        lines.append(f"| {row} | {' | '.join(map(str, counts))} | {sum(counts)} |")
    return lines


def report(total: Summary, seed: int, seconds: float) -> str:
    """The results as a Markdown page."""
    targets = dict.fromkeys(target for part in PARTS for target in part.targets)
    at_failpoints = [target for target in targets if target not in LOSSES]
    counts = total.counts
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return "\n".join((
        "# Faults on Kafka",
        "",
        "Written by `make faults` (`tests/faults/kafka_kills.py`); `exactly-once.md` describes "
        "the faults and the comparison.",
        "",
        f"{total.faults.total()} faults in {total.trials} trials, seed {seed}, "
        f"{seconds / 60:.0f} minutes. {counts.waves} waves of input in {counts.pieces:,} pieces. "
        "All outputs, read as `read_committed`, and all stores were equal to those of runs without "
        "a fault:",
        f"{format_counts(counts.records)}.",
        "",
        f"Kafka {jars.VERSION}, {os.cpu_count()} cores, {memory_gb:.0f} GB, Python "
        f"{platform.python_version()}. The machine had other work, too: its load was "
        f"{min(total.loads):.0f} to {max(total.loads):.0f}, {statistics.mean(total.loads):.1f} on "
        f"average. `driver`, `worker` and one half of `broker` run with Spark's `{LOCAL}`, all "
        "others without Spark; `leader` and `coordinator` with three brokers, all others with one.",
        "",
        "## Processes killed, or stopped past their lease, at a failpoint",
        *table("failpoint", BATCH_FAILPOINTS, at_failpoints, total.faults),
        "",
        "## Requests of the driver lost by a proxy",
        *table("request", APIS, LOSSES, total.faults),
        "",
    ))


def main() -> None:
    parser = argparse.ArgumentParser(description="Inject faults into an application on Kafka.")
    parser.add_argument("--kills", type=int, default=WHOLE, help="faults in all parts together")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--only", action="append", choices=[part.name for part in PARTS], help="some parts"
    )
    parser.add_argument("--report", type=Path, help="write the results to this file")
    options = parser.parse_args()
    parts = [part for part in PARTS if not options.only or part.name in options.only]
    print(f"seed {options.seed}, {options.kills} faults", flush=True)
    began = time.monotonic()
    total = run_many(
        options.kills, options.seed, parts, functools.partial(print, flush=True)
    )
    page = report(total, options.seed, time.monotonic() - began)
    print(page)
    if options.report is not None:
        options.report.write_text(page)


if __name__ == "__main__":
    main()
