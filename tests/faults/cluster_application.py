"""The application of the tests on a cluster, and the process that runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from faults.cluster_hosts import Host
from faults.engine_processes import processes, send
from penstock.partitioning import partition_of

PARTITIONS = 4
#: The values of the records. Behind the shuffle they are keys, of all partitions.
VALUES = [f"v{number}" for number in range(16)]
assert {partition_of(value.encode(), PARTITIONS) for value in VALUES} == set(range(PARTITIONS))
PENSTOCK = (sys.executable, "-m", "penstock")
#: `count` has a store before and one behind a shuffle, and writes one record for each input record.
TOPOLOGY = """
from penstock import Serdes, StreamsBuilder, Topology

def copy() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.string()).to("out")
    return builder.build()

def count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", key=Serdes.string(), value=Serdes.string())
    words.group_by_key().count(store="first")
    other = words.group_by(lambda key, value: value, key=Serdes.string(), value=Serdes.string())
    other.count(store="second").to_stream().to("out", key=Serdes.string(), value=Serdes.long())
    return builder.build()
"""


class Driver:
    """A process that runs the application, and its output."""

    def __init__(
        self, directory: Path, command: Sequence[str], options: Sequence[str], log: str,
        host: Host | None,
    ) -> None:
        self._output = directory / "driver.log"
        topology = "count" if "--state-dir" in options else "copy"
        command = [
            *command, "run", f"app.py:{topology}", "--application-id", topology,
            "--log", log, "--verbose", "--set", "session.timeout.ms=6000",
            "--set", "cache.max.bytes.buffering=0", *options,
        ]
        if host is not None:
            command = host.command(*command, directory=directory)
        with self._output.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=directory,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable,
                     "PYSPARK_DRIVER_PYTHON": sys.executable,
                     "SPARK_LOCAL_IP": "127.0.0.1" if host is None else host.address},
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def check(self) -> None:
        assert self.process.poll() is None, "The driver has ended."

    def close(self) -> None:
        for pid in processes(self.process.pid):
            send(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(
    directory: Path, *command: str, options: Sequence[str] = (), log: str = "log.db",
    host: Host | None = None,
) -> Iterator[Driver]:
    """Run the application: `count` if it has a state directory, otherwise `copy`."""
    driver = Driver(directory, command, options, log, host)
    try:
        yield driver
    except BaseException:
        print(driver.output[-4000:])
        raise
    finally:
        driver.close()


def settings(**values: str) -> list[str]:
    """Spark settings, as options of `penstock run`."""
    return [
        word for name, value in values.items()
        for word in ("--set", f"spark.{name.replace('_', '.')}={value}")
    ]
