"""A campaign: many faults, in trials that each end with a comparison of all results.

A campaign can be stopped and resumed. With `--progress FILE`, each trial that was compared is
recorded there, and the next run continues behind it. `--minutes` limits a run: the trial that runs
then is compared after its current fault. The folder of a failed trial is not removed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import msgspec

from faults.engine_trial import Counts

FAULTS_OF_A_TRIAL = 15


class Fault(NamedTuple):
    """A target, and when it is hit: a failpoint, or a request whose message is lost."""

    target: str
    when: str


class FaultTrial(Protocol):
    """An application with its own log."""

    counts: Counts

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def inject(self, *faults: Fault) -> None:
        """Process one wave of input with some faults."""

    def verify(self) -> None:
        """Compare all results with a run without a fault."""


class Part(NamedTuple):
    """Faults under the same conditions."""

    name: str
    #: Each of them occurs equally often.
    faults: tuple[Fault, ...]
    count: int
    #: Opens a trial in a directory, with a seed.
    open: Callable[[Path, int], FaultTrial]


class Totals(msgspec.Struct):
    """The compared trials of a campaign."""

    seed: int
    trials: int = 0
    seconds: float = 0.0
    waves: int = 0
    pieces: int = 0
    #: Topic -> its compared records.
    records: dict[str, int] = {}
    #: Part -> its faults, in order.
    faults: dict[str, list[Fault]] = {}
    #: The load average of the machine after each fault.
    loads: list[float] = []

    @property
    def counts(self) -> Counter[Fault]:
        """How often each fault was injected."""
        return Counter(itertools.chain.from_iterable(self.faults.values()))

    def add(self, part: str, trial: TrialReport, counts: Counts) -> None:
        """Add a trial that was compared."""
        self.trials += 1
        self.seconds += trial.seconds
        self.waves += counts.waves
        self.pieces += counts.pieces
        self.records = dict(Counter(self.records) + counts.records)
        self.faults.setdefault(part, []).extend(trial.faults)
        self.loads += trial.loads


@dataclass
class TrialReport:
    """The faults of a trial, its duration, and the load of the machine."""

    faults: list[Fault] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    seconds: float = 0.0


def parse_arguments(description: str, kills: int) -> Options:
    """Parse the arguments of a campaign. `kills`: the default number of faults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kills", type=int, default=kills, help="faults in all parts together")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--execution", choices=("batch", "continuous"), default="batch")
    parser.add_argument("--only", action="append", metavar="PART", help="some parts")
    parser.add_argument("--minutes", type=float, help="stop after about so many minutes")
    parser.add_argument("--progress", type=Path, help="record compared trials, and continue there")
    parser.add_argument("--report", type=Path, help="write the results to this file")
    return parser.parse_args(namespace=Options())


class Options(argparse.Namespace):
    """The arguments of a campaign."""

    kills: int
    seed: int
    execution: str
    only: list[str] | None
    minutes: float | None
    progress: Path | None
    report: Path | None


def run(parts: Sequence[Part], options: Options) -> Totals | None:
    """Run the missing faults of a campaign. Returns None if some are left."""
    parts = [part for part in parts if not options.only or part.name in options.only]
    file = options.progress
    totals = Totals(options.seed)
    if file is not None and file.exists():
        totals = msgspec.json.decode(file.read_bytes(), type=Totals)
    began = time.monotonic()
    deadline = None if options.minutes is None else began + 60 * options.minutes
    wanted = sum(part.count for part in parts)
    tell(f"seed {totals.seed}, {_done(parts, totals)} of {wanted} faults are done")
    for part in parts:
        planned = _schedule(part, totals.seed)
        while (done := len(totals.faults.get(part.name, ()))) < part.count:
            if deadline is not None and time.monotonic() >= deadline:
                tell(f"{_done(parts, totals)} of {wanted} faults are done; the rest is left")
                return None
            some = planned[done : done + FAULTS_OF_A_TRIAL]
            report, counts = _run_trial(part, some, f"{totals.seed}/{part.name}/{done}", deadline)
            totals.add(part.name, report, counts)
            if file is not None:
                file.write_bytes(msgspec.json.encode(totals))
    return totals


def _done(parts: Sequence[Part], totals: Totals) -> int:
    return sum(len(totals.faults.get(part.name, ())) for part in parts)


def _schedule(part: Part, seed: int) -> list[Fault]:
    """The faults of a part, repeated, in random order."""
    chosen = list(itertools.islice(itertools.cycle(part.faults), part.count))
    random.Random(f"{seed}/{part.name}").shuffle(chosen)
    return chosen


def _run_trial(
    part: Part, faults: Sequence[Fault], seed: str, deadline: float | None
) -> tuple[TrialReport, Counts]:
    """A wave for each fault, and a comparison at the end."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-faults-"))
    tell(f"      {part.name}: {directory}")
    report, began = TrialReport(), time.monotonic()
    with part.open(directory, random.Random(seed).randrange(10**6)) as trial:
        for fault in faults:
            before = time.monotonic()
            trial.inject(fault)
            report.faults.append(fault)
            report.loads.append(os.getloadavg()[0])
            tell(
                f"{len(report.faults):4}  {part.name}: {fault.target} at '{fault.when}', "
                f"{time.monotonic() - before:.1f} s"
            )
            if deadline is not None and time.monotonic() >= deadline:
                break
        trial.verify()
    tell(f"      equal: {format_counts(trial.counts.records)}")
    shutil.rmtree(directory, ignore_errors=True)
    report.seconds = time.monotonic() - began
    return report, trial.counts


def tell(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


# ---- the report ------------------------------------------------------------------------------


def format_counts(records: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} records of {topic}" for topic, count in records.items())


def summary(totals: Totals) -> list[str]:
    """Lines about the compared records and the machine."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    loads = totals.loads
    return [
        f"{totals.counts.total()} faults in {totals.trials} trials, seed {totals.seed}, "
        f"{totals.seconds / 60:.0f} minutes. {totals.waves} waves of input in {totals.pieces:,} "
        "pieces. All outputs and all stores were equal to those of runs without a fault:",
        f"{format_counts(totals.records)}.",
        "",
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, Python {platform.python_version()}. The load "
        f"of the machine, other work included, was {min(loads):.0f} to {max(loads):.0f}, "
        f"{sum(loads) / len(loads):.1f} on average.",
    ]


def table(
    title: str, rows: Sequence[str], targets: Sequence[str], counts: Counter[Fault]
) -> list[str]:
    """A Markdown table of the number of faults, with their sums."""
    lines = [f"| {title} | {' | '.join(targets)} | all |", "|---|" + "---|" * (len(targets) + 1)]
    for row in rows:
        numbers = [counts[Fault(each, row)] for each in targets]
        lines.append(f"| {row} | {' | '.join(map(str, numbers))} | {sum(numbers)} |")
    sums = [sum(counts[Fault(each, row)] for row in rows) for each in targets]
    lines.append(f"| all | {' | '.join(map(str, sums))} | {sum(sums)} |")
    return lines


def kinds_table(kinds: Mapping[str, Sequence[str]], counts: Counter[Fault]) -> list[str]:
    """A Markdown table of the number of faults of each kind. `kinds`: kind -> its targets."""
    return [
        "| kind | faults |", "|---|---|",
        *(
            f"| {kind} | {sum(n for fault, n in counts.items() if fault.target in targets)} |"
            for kind, targets in kinds.items()
        ),
    ]


def finish(totals: Totals | None, options: Options, page: Callable[[Totals], str]) -> None:
    """Print the page of a complete campaign, and write it to the file of the report."""
    if totals is None:
        return
    text = page(totals)
    print(text)
    if options.report is not None:
        options.report.write_text(text)
