"""Runs conformance cases: `python tests/conformance/run.py PATH...`.

PATH is a file of cases (.jsonl or .jsonl.gz) or a folder of them; without one, the kept cases.
`--on engine` runs them batch by batch on a log, `--on spark` the same with tasks on Spark.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
for _folder in (HERE.parents[1] / "src", HERE.parent):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))
# The script's own folder would hide `conformance` modules behind plain names.
sys.path[:] = [p for p in sys.path if p != str(HERE)]

from conformance.cases import KEPT, BadCase, Case, case_files, read_cases  # noqa: E402
from conformance.compare import (  # noqa: E402
    DELIBERATE,
    EVERYTHING,
    PARTS,
    first_difference,
    last_lines,
)
from conformance.runner import run_case  # noqa: E402

#: After so many cases of a file it is told how far the run is.
PROGRESS = 50


@dataclass
class Tally:
    """How many cases of a file, or of all, ended how."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    deliberate: int = 0
    exempt: int = 0

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.deliberate += other.deliberate
        self.exempt += other.exempt

    def __str__(self) -> str:
        text = f"{self.passed} passed, {len(self.failed)} failed"
        text += f", {self.exempt} say nothing about it" if self.exempt else ""
        return f"{text}, {self.deliberate} differ on purpose" if self.deliberate else text


#: Says why a case is left out, and what is wrong in the answer to it.
Exemption = Callable[[Case], str | None]
Check = Callable[[Case, tuple[str, ...]], str | None]


def check_on_driver(case: Case, parts: tuple[str, ...]) -> str | None:
    return first_difference(case, run_case(case), parts)


@contextmanager
def checked_on(what: str) -> Iterator[tuple[Exemption, Check]]:
    """How cases are checked, on the test driver, on the engine in this process, or on Spark."""
    if what == "driver":
        yield lambda case: None, check_on_driver
        return
    from conformance.on_engine import inline, run_on_engine
    from conformance.on_engine_rules import difference, exemption

    if what == "engine":
        yield exemption, lambda case, parts: difference(case, run_on_engine(case, inline))
        return
    from conformance.on_spark import started_spark

    with started_spark() as on_spark:
        yield exemption, lambda case, parts: difference(case, run_on_engine(case, on_spark))


def check(case: Case, parts: tuple[str, ...], how: Check = check_on_driver) -> str | None:
    """Run one case; the first difference, or None."""
    try:
        return how(case, parts)
    except BadCase as error:
        return f"bad case: {error}"
    except Exception as error:  # a broken harness fails its case, not the run
        return f"harness: {type(error).__name__}: {error}\n{last_lines(error)}"


def run_file(
    path: Path, options: argparse.Namespace, exemption: Exemption, how: Check
) -> Tally:
    """Run the cases of a file that were asked for, and print what failed."""
    parts = PARTS[options.only] if options.only else EVERYTHING
    tally = Tally()
    for number, case in enumerate(read_cases(path)):
        if options.verbose and number and number % PROGRESS == 0:
            print(f"{path.name}: {number} cases so far, {tally}", file=sys.stderr, flush=True)
        name = case["name"]
        if options.name and options.name not in name:
            continue
        if exemption(case) is not None:
            tally.exempt += 1
            continue
        difference = check(case, parts, how)
        if difference is None:
            tally.passed += 1
        elif name in DELIBERATE:
            tally.deliberate += 1
        else:
            tally.failed.append(name)
            print(f"FAIL {name}\n    {difference}", flush=True)
    return tally


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[KEPT], metavar="PATH")
    parser.add_argument("--on", choices=["driver", "engine", "spark"], default="driver",
                        help="what runs the cases; 'driver' if not said")
    parser.add_argument("--only", choices=sorted(PARTS), help="compare only this")
    parser.add_argument("--name", metavar="SUBSTRING", help="only cases whose name has this in it")
    parser.add_argument("-v", "--verbose", action="store_true", help="counts for each file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    # Failures that a case expects are logged by penstock; here they are answers.
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    logging.getLogger("penstock").propagate = False
    total = Tally()
    started = time.perf_counter()
    with checked_on(options.on) as (exemption, how):
        for path in case_files(options.paths):
            tally = run_file(path, options, exemption, how)
            total.add(tally)
            if options.verbose:
                print(f"{path.name}: {tally}", flush=True)
    if options.verbose:
        print(f"{time.perf_counter() - started:.1f} s")
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
