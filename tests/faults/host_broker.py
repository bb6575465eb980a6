"""Runs a Kafka broker on a host of a `Network`, until the standard input is closed.

    python -m faults.host_broker DIRECTORY ADDRESS [HEAP_MB]
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.cluster_hosts import Host
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions

PORT = 9092
_CONTROLLER_PORT = 9093


@contextmanager
def running_broker(host: Host, private: Path, heap_mb: int = 1024) -> Iterator[str]:
    """Run a broker on a host. Yields the address of the log."""
    process = subprocess.Popen(
        host.command(
            sys.executable, "-m", "faults.host_broker", str(private / "kafka"), host.address,
            str(heap_mb), directory=Path(__file__).parents[1],
        ),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("The broker did not start.")
        yield f"kafka://{host.address}:{PORT}"
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def main() -> None:
    directory, address, heap_mb = sys.argv[1:]
    # Every partition is at least one open file.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options = BrokerOptions(port=PORT, heap_mb=int(heap_mb), properties={
        "listeners": f"PLAINTEXT://{address}:{PORT},CONTROLLER://{address}:{_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{address}:{PORT}",
        "controller.quorum.voters": f"1@{address}:{_CONTROLLER_PORT}",
    })
    with LocalCluster(directory).for_this_process(options):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
