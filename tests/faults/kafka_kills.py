"""An application on Kafka suffers whatever may happen to it there; then everything is compared.

    PYTHONPATH=tests python -m faults.kafka_kills [--kills 105] [--seed S] [--report FILE]
        [--only PART]

`kafka_trial.py` says what happens. Each trial has brokers of its own, a wave of input for each
fault, and a comparison at its end. The folder of a trial that failed is kept.
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

from faults.engine_kills import LOCAL, Counts, shown
from faults.engine_processes import STEPS
from faults.kafka_proxy import APIS, LOSSES
from faults.kafka_trial import WHO, Fault, KafkaTrial, Who, faults_of
from penstock.broker import jars

FAULTS_OF_A_TRIAL = 15
#: What the weights of all parts come to.
WHOLE = 105


class Part(NamedTuple):
    """Faults under the same conditions."""

    name: str
    master: str
    brokers: int
    who: tuple[Who, ...]
    #: How many of `WHOLE`.
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
class Suffered:
    """What has been done so far."""

    faults: Counter[Fault] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)
    trials: int = 0
    #: How many processes wanted a core, on an average, after each fault.
    loads: list[float] = field(default_factory=list)


def schedule(part: Part, faults: int, rng: random.Random) -> list[Fault]:
    """Each fault of the part, again and again, in a random order."""
    chosen = list(itertools.islice(itertools.cycle(faults_of(*part.who)), faults))
    rng.shuffle(chosen)
    return chosen


def run_many(
    kills: int, seed: int, parts: Sequence[Part], tell: Callable[[str], None]
) -> Suffered:
    """All parts, one after the other."""
    total = Suffered()
    rng = random.Random(seed)
    for part in parts:
        planned = schedule(part, max(1, kills * part.weight // WHOLE), rng)
        # Compared now and then: so a failure is found near to its cause.
        for start in range(0, len(planned), FAULTS_OF_A_TRIAL):
            some = planned[start : start + FAULTS_OF_A_TRIAL]
            run_trial(part, some, rng.randrange(10**6), total, tell)
    return total


def run_trial(
    part: Part, faults: Sequence[Fault], seed: int, total: Suffered, tell: Callable[[str], None]
) -> None:
    """Brokers of its own, a wave for each fault, and everything compared."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-kafka-faults-"))
    tell(f"      {part.name}, {part.master}, {part.brokers} brokers, seed {seed}: {directory}")
    with KafkaTrial(directory, seed, part.master, brokers=part.brokers) as trial:
        for fault in faults:
            began = time.monotonic()
            trial.suffer(fault)
            total.faults[fault] += 1
            total.loads.append(os.getloadavg()[0])
            tell(
                f"{total.faults.total():4}  {fault}, wave {trial.counts.waves} processed after "
                f"{time.monotonic() - began:.1f} s"
            )
        trial.verify()
        tell(f"      equal: {shown(trial.counts.records)}")
        total.counts += trial.counts
        total.trials += 1
    shutil.rmtree(directory, ignore_errors=True)


# ---- the report ------------------------------------------------------------------------------


def table(title: str, rows: Sequence[str], who: Sequence[Who], faults: Counter[Fault]) -> list[str]:
    """How often what happened, and when."""
    lines = [f"| {title} | {' | '.join(who)} | all |", "|---|" + "---|" * (len(who) + 1)]
    for row in rows:
        counts = [faults[Fault(each, row)] for each in who]
        lines.append(f"| {row} | {' | '.join(map(str, counts))} | {sum(counts)} |")
    return lines


def report(total: Suffered, seed: int, seconds: float) -> str:
    """What was done, as a page."""
    in_steps = [who for who in WHO if who not in LOSSES]
    counts = total.counts
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return "\n".join((
        "# Faults on Kafka",
        "",
        "Written by `make faults` (`tests/faults/kafka_kills.py`); `exactly-once.md` says what "
        "happens, and what is compared.",
        "",
        f"{total.faults.total()} faults in {total.trials} trials, seed {seed}, "
        f"{seconds / 60:.0f} minutes. {counts.waves} waves of input in {counts.pieces:,} pieces. "
        "All outputs, read as `read_committed`, and all stores were equal to those of runs without "
        "a fault:",
        f"{shown(counts.records)}.",
        "",
        f"Kafka {jars.VERSION}, {os.cpu_count()} cores, {memory_gb:.0f} GB, Python "
        f"{platform.python_version()}. The machine had other work, too: its load was "
        f"{min(total.loads):.0f} to {max(total.loads):.0f}, {statistics.mean(total.loads):.1f} on "
        f"an average. `driver`, `worker` and one half of `broker` run with Spark's `{LOCAL}`, all "
        "others without Spark; `leader` and `coordinator` with three brokers, all others with one.",
        "",
        "## Processes killed, or stopped past their lease, in a step",
        *table("step", STEPS, in_steps, total.faults),
        "",
        "## Requests of the driver that a proxy met",
        *table("request", APIS, LOSSES, total.faults),
        "",
    ))


def main() -> None:
    parser = argparse.ArgumentParser(description="Let an application on Kafka suffer.")
    parser.add_argument("--kills", type=int, default=WHOLE, help="faults in all parts together")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--only", action="append", choices=[part.name for part in PARTS], help="some parts"
    )
    parser.add_argument("--report", type=Path, help="a file to write what was done to")
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
