"""Applications on a standalone cluster: lanes follow its executors, and drivers end with Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

import penstock.__main__
from faults.engine_processes import processes, send, wait_until
from faults.spark_cluster import HOSTS, SparkCluster
from penstock.log import Log, RecordColumns, TopicPartition, open_log

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PARTITIONS = 4
TOPOLOGY = """
from penstock import Serdes, StreamsBuilder, Topology

def copy() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.string()).to("out")
    return builder.build()
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "app.py").write_text(TOPOLOGY)
    log = open_log(tmp_path / "log.db")
    log.create_topic("in", PARTITIONS)
    log.create_topic("out", PARTITIONS)
    yield log
    log.close()


class Driver:
    """A process that runs the application, and its output."""

    def __init__(self, directory: Path, command: Sequence[str], options: Sequence[str]) -> None:
        self._output = directory / "driver.log"
        with self._output.open("wb") as stream:
            self.process = subprocess.Popen(
                [
                    *command, "run", "app.py:copy", "--application-id", "copy",
                    "--log", "log.db", "--state-dir", "state", "--verbose",
                    "--set", "session.timeout.ms=6000", *options,
                ],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=directory,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable,
                     "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def close(self) -> None:
        for pid in processes(self.process.pid):
            send(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(directory: Path, *command: str, options: Sequence[str] = ()) -> Iterator[Driver]:
    driver = Driver(directory, command, options)
    try:
        yield driver
    except BaseException:
        print(driver.output[-4000:])
        raise
    finally:
        driver.close()


def copied(log: Log) -> int:
    """The number of records in the output."""
    bounds = log.offsets(TopicPartition("out", number) for number in range(PARTITIONS))
    return sum(each.end for each in bounds.values())


def copy(log: Log) -> None:
    """Append a record to every partition and wait until all are copied."""
    before = copied(log)
    for partition in range(PARTITIONS):
        log.append("in", partition, RecordColumns([b"k"], [b"v"]))
    wait_until("the records were copied", lambda: copied(log) == before + PARTITIONS)


def test_lanes_follow_the_executors(tmp_path: Path, log: Log) -> None:
    with SparkCluster(tmp_path / "cluster", (*HOSTS, "127.0.0.3")) as cluster:
        command = (sys.executable, "-m", "penstock")
        with running(tmp_path, *command, options=("--master", cluster.master)) as driver:
            copy(log)
            cluster.add_workers(("127.0.0.4",))
            wait_until(
                "the fourth executor was noticed",
                lambda: "The executors have 4 slots, 3 before." in driver.output,
            )
            copy(log)


def test_driver_of_a_terminated_spark_submit_ends(
    tmp_path: Path, log: Log
) -> None:
    """Its output went through the JVM, so nothing can be read about it any more."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    entry = penstock.__main__.__file__
    with running(tmp_path, str(submit), "--master", "local[1]", str(entry)) as driver:
        copy(log)
        [jvm] = [
            each.pid for each in processes(driver.process.pid).values()
            if "org.apache.spark.deploy.SparkSubmit" in each.command
        ]
        send(jvm, signal.SIGTERM)
        wait_until("the driver had ended", lambda: not processes(driver.process.pid))
