"""The cost of metrics at the recording level INFO, as a ratio: with and without measuring.

Runs the workloads of `runtime.py` in one process, in turns with the measurements of the task and
without them, and compares their CPU time: other processes of the machine affect it less than the
duration. A ratio is the median of the ratios of all rounds, of which each has one run of both; the
order changes from round to round. The ratio of the best runs is shown beside it. Both
have the counters of nodes, the sensors of processors, the metrics that the driver derives, and the
native code that adds up sizes and ages while it processes records: a few nanoseconds for each.

    python bench/metrics.py [--records 100000] [--rounds 15] [--only W2]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orders import orders
from runtime import WORKLOADS, run_workload

from penstock import native
from penstock.task.measurements import Measurements


@contextmanager
def without_measurements() -> Iterator[None]:
    """Switch the measurements of tasks off."""
    before: Any = Measurements.add, Measurements.take
    Measurements.add = lambda self: None  # type: ignore[method-assign]
    Measurements.take = lambda self: ()  # type: ignore[method-assign]
    try:
        yield
    finally:
        Measurements.add, Measurements.take = before  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=WORKLOADS)
    options = parser.parse_args()
    records = orders(options.records)
    figures: dict[str, Any] = {}
    for name in [options.only] if options.only else WORKLOADS:
        run_workload(name, records, time.process_time)
        pairs = [_pair(name, records, measured_first=bool(turn % 2)) for turn in
                 range(options.rounds)]
        ratios = [with_them / without for with_them, without in pairs]
        best = min(each for each, _ in pairs) / min(each for _, each in pairs)
        figures[name] = {
            "ratio": round(statistics.median(ratios), 3), "ratio_of_best": round(best, 3),
            "ratios": [round(each, 3) for each in ratios],
            "records_per_cpu_second": round(options.records / min(each for each, _ in pairs)),
        }
        print(
            f"{name}: {figures[name]['ratio']:.3f}x (best runs {best:.3f}x, "
            f"from {min(ratios):.3f} to {max(ratios):.3f})", flush=True,
        )
    print(json.dumps({
        "bench": "metrics", "records": options.records, "rounds": options.rounds,
        "python": platform.python_version(), "core": native.in_use(),
        "load_average": round(os.getloadavg()[0], 1), "workloads": figures,
    }))


def _pair(name: str, records: Any, *, measured_first: bool) -> tuple[float, float]:
    """CPU seconds with and without measurements."""
    if measured_first:
        with_them, _ = run_workload(name, records, time.process_time)
    with without_measurements():
        without, _ = run_workload(name, records, time.process_time)
    if not measured_first:
        with_them, _ = run_workload(name, records, time.process_time)
    return with_them, without


if __name__ == "__main__":
    main()
