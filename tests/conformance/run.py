"""Runs conformance cases: `python tests/conformance/run.py PATH...`.

PATH is a file of cases (.jsonl or .jsonl.gz) or a folder; by default, the committed cases.
`--on engine` runs them batch by batch on an embedded log, `--on spark` with tasks on Spark, and
`--on continuous` in continuous mode on an embedded log.
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
# The folder of the script must not be on the path: its modules belong to `conformance`.
sys.path[:] = [p for p in sys.path if p != str(HERE)]

from conformance.cases import CASES, Case, InvalidCase, case_files, read_cases  # noqa: E402
from conformance.compare import (  # noqa: E402
    DELIBERATE,
    EVERYTHING,
    PARTS,
    first_difference,
    last_lines,
)
from conformance.runner import run_case  # noqa: E402

#: The number of cases between two progress messages.
PROGRESS = 50


@dataclass
class Tally:
    """Counts of the cases of a file, or of all files."""

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
        text += f", {self.exempt} not applicable" if self.exempt else ""
        return f"{text}, {self.deliberate} differ on purpose" if self.deliberate else text


#: Returns the reason for skipping a case, and the first difference of its result.
Exemption = Callable[[Case], str | None]
Check = Callable[[Case, tuple[str, ...]], str | None]


def check_on_driver(case: Case, parts: tuple[str, ...]) -> str | None:
    return first_difference(case, run_case(case), parts)


@contextmanager
def checker(what: str) -> Iterator[tuple[Exemption, Check]]:
    """The check for the test driver, or for one of the ways to run the engine."""
    if what == "driver":
        yield lambda case: None, check_on_driver
        return
    from conformance.on_engine import inline, run_on_engine
    from conformance.on_engine_rules import difference, exemption

    if what == "engine":
        yield exemption, lambda case, parts: difference(case, run_on_engine(case, inline))
        return
    if what == "continuous":
        from conformance.on_continuous import exemption as continuous_exemption
        from conformance.on_continuous import run_continuously

        yield continuous_exemption, lambda case, parts: difference(
            case, run_continuously(case), continuous=True
        )
        return
    from conformance.on_spark import started_spark

    with started_spark() as on_spark:
        yield exemption, lambda case, parts: difference(case, run_on_engine(case, on_spark))


def check(case: Case, parts: tuple[str, ...], how: Check = check_on_driver) -> str | None:
    """Run one case and return the first difference, or None."""
    try:
        return how(case, parts)
    except InvalidCase as error:
        return f"bad case: {error}"
    except Exception as error:  # an error of the harness fails the case, not the run
        return f"harness: {type(error).__name__}: {error}\n{last_lines(error)}"


def run_file(
    path: Path, options: argparse.Namespace, exemption: Exemption, how: Check
) -> Tally:
    """Run the selected cases of a file and print the failures."""
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
    parser.add_argument("paths", nargs="*", type=Path, default=[CASES], metavar="PATH")
    parser.add_argument("--on", choices=["driver", "engine", "continuous", "spark"],
                        default="driver",
                        help="runs the cases; 'driver' by default")
    parser.add_argument("--only", choices=sorted(PARTS), help="compare only this part")
    parser.add_argument("--name", metavar="SUBSTRING", help="only cases whose name contains this")
    parser.add_argument("-v", "--verbose", action="store_true", help="print counts for each file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    # penstock logs the failures that cases expect.
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    logging.getLogger("penstock").propagate = False
    total = Tally()
    started = time.perf_counter()
    with checker(options.on) as (exemption, how):
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
