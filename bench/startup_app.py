"""The application that `bench/startup.py` starts: it prints when each phase of its start has ended.

It runs until standard input ends. `penstock run` would do the same, without the phases.
"""

import time

STARTED_AT = time.time()

import argparse  # noqa: E402
import functools  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, app  # noqa: E402
from penstock.engine.compute_provider import ComputeProvider  # noqa: E402
from penstock.engine.instance import Instance  # noqa: E402
from penstock.engine.stream_thread import StreamThread  # noqa: E402
from penstock.topology.topology import Topology  # noqa: E402

#: Phase -> the owner and the name of the function with which it ends.
ENDS = {
    "log_opened": (app, "open_log"), "lease": (StreamThread, "_acquire_lease"),
    "spark": (ComputeProvider, "open_backend"), "engine": (Instance, "open_engine"),
}


class Phases:
    """Phase -> the time of its end."""

    def __init__(self) -> None:
        self.ends = {"python": STARTED_AT}

    def mark(self, phase: str) -> None:
        """Record the first end of a phase."""
        self.ends.setdefault(phase, time.time())

    def mark_after(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that ends a phase when it returns."""

        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            result = function(*args, **named)
            self.mark(phase)
            return result

        return called


def count(output: str) -> Topology:
    """Count by key."""
    builder = StreamsBuilder()
    (
        builder.stream("orders", key=Serdes.string(), value=Serdes.json())
        .group_by_key().count(store="counts")
        .to_stream().to(output, key=Serdes.string(), value=Serdes.long())
    )
    return builder.build()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("name", "output", "log", "state-dir", "execution"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    phases = Phases()
    topology = count(options.output)
    phases.mark("imports")
    for phase, (owner, name) in ENDS.items():
        setattr(owner, name, phases.mark_after(phase, getattr(owner, name)))
    config = StreamsConfig(
        application_id=options.name, log=options.log, state_dir=options.state_dir,
        num_stream_threads=2, execution=options.execution, extra={"auto.offset.reset": "earliest"},
    )

    def on_batch(report: Any) -> None:
        if report.records:
            phases.mark("first_commit")

    with Streams(topology, config, on_batch=on_batch):
        while "first_commit" not in phases.ends:
            time.sleep(0.005)
        print(json.dumps(phases.ends), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
