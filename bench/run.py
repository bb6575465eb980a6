"""Runs the benchmarks one after the other and writes their figures to `bench/results/`.

    python bench/run.py [NAME ...]

Each script prints a readable report and, as its last line, JSON. The JSON is stored together with
the conditions of the measurement.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SUPPORT = {
    "run.py", "orders.py", "capacity.py", "cluster_app.py", "peer_programs.py", "startup_app.py"
}
#: Only by name: they need root, packages from PyPI, an hour.
BY_NAME = {"cluster.py", "peers.py", "soak.py"}
#: Variants: name -> (script, options).
MORE = {
    "engine-latency": ("engine", "--execution", "continuous", "--only", "latency"),
    "kafka-latency": ("kafka", "--execution", "continuous", "--only", "latency"),
    "kafka-5m": (
        "kafka", "--execution", "continuous", "--only", "throughput", "--records", "5000000",
        "--rounds", "1",
    ),
    "engine-5m": (
        "engine", "--records", "5000000", "--keys", "5000000", "--only", "throughput", "restore"
    ),
}


def conditions() -> dict[str, object]:
    """The conditions of a measurement; figures of a shared machine mean little without them."""
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
    }


def main() -> int:
    usual = {script.name for script in HERE.glob("*.py")} - SUPPORT - BY_NAME
    names = sys.argv[1:] or sorted([*(name.removesuffix(".py") for name in usual), *MORE])
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        before = conditions()
        script, *options = MORE.get(name, (name,))
        done = subprocess.run(
            [sys.executable, str(HERE / f"{script}.py"), *options],
            stdout=subprocess.PIPE, text=True, check=False,
        )
        print(done.stdout, end="", flush=True)
        if done.returncode:
            failed.append(name)
            continue
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        kept = results / f"{name}.json"
        kept.write_text(json.dumps({"conditions": before, "figures": figures}, indent=2) + "\n")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
