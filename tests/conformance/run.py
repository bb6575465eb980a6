"""Runs conformance cases: `python tests/conformance/run.py PATH...`.

PATH is a file of cases (.jsonl or .jsonl.gz) or a folder of them; without one, the kept cases.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
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


@dataclass
class Tally:
    """How many cases of a file, or of all, ended how."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    deliberate: int = 0

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.deliberate += other.deliberate

    def __str__(self) -> str:
        text = f"{self.passed} passed, {len(self.failed)} failed"
        return f"{text}, {self.deliberate} differ on purpose" if self.deliberate else text


def check(case: Case, parts: tuple[str, ...] = EVERYTHING) -> str | None:
    """Run one case; the first difference, or None."""
    try:
        return first_difference(case, run_case(case), parts)
    except BadCase as error:
        return f"bad case: {error}"
    except Exception as error:  # a broken harness fails its case, not the run
        return f"harness: {type(error).__name__}: {error}\n{last_lines(error)}"


def run_file(path: Path, options: argparse.Namespace) -> Tally:
    """Run the cases of a file that were asked for, and print what failed."""
    parts = PARTS[options.only] if options.only else EVERYTHING
    tally = Tally()
    for case in read_cases(path):
        name = case["name"]
        if options.name and options.name not in name:
            continue
        difference = check(case, parts)
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
    for path in case_files(options.paths):
        tally = run_file(path, options)
        total.add(tally)
        if options.verbose:
            print(f"{path.name}: {tally}", flush=True)
    if options.verbose:
        print(f"{time.perf_counter() - started:.1f} s")
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
