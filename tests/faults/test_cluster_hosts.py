"""Applications on a cluster whose workers are separate hosts, with a Kafka broker: a host is killed
and returns."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from faults import cluster_hosts
from faults.cluster_application import PARTITIONS, PENSTOCK, TOPOLOGY, VALUES, Driver, running
from faults.cluster_hosts import Network
from faults.engine_processes import wait_until
from faults.host_broker import running_broker
from faults.spark_cluster import SparkCluster
from penstock.log import Log, RecordColumns, open_log
from penstock.log.types import TopicPartition

_REASON = cluster_hosts.why_not()
pytestmark = [
    pytest.mark.slow, pytest.mark.spark, pytest.mark.kafka,
    pytest.mark.skipif(_REASON is not None, reason=str(_REASON)),
]

WORKERS = ("worker1", "worker2")


class Site(NamedTuple):
    """The hosts and what runs on them."""

    network: Network
    spark: SparkCluster
    log: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A driver's host, a broker, and two workers with one slot each. Tests leave it as it was."""
    folder = tmp_path_factory.mktemp("hosts")
    with (
        Network(folder / "network", ("driver", "broker", *WORKERS)) as network,
        running_broker(network.hosts["broker"], network.private) as log,
        SparkCluster(folder / "spark", WORKERS, network) as spark,
    ):
        yield Site(network, spark, log)


@pytest.fixture
def log(tmp_path: Path, site: Site) -> Iterator[Log]:
    """The log, as the driver's host sees it."""
    (tmp_path / "app.py").write_text(TOPOLOGY)
    with site.network.hosts["driver"].entered(), open_log(site.log) as log:
        for name in ("in", "out"):
            log.create_topic(name, PARTITIONS)
        yield log
        for topic in log.topics():
            if not topic.name.startswith("_"):
                log.delete_topic(topic.name)


def counts(log: Log) -> dict[str, list[int]]:
    """Key -> all its counts, in the order of the output."""
    found: dict[str, list[int]] = {}
    for partition in range(PARTITIONS):
        for batch in log.read("out", partition, 0):
            columns = batch.columns()
            for key, value in zip(columns.keys, columns.values, strict=True):
                found.setdefault(str(key, "ascii"), []).append(int.from_bytes(value, "big"))
    return found


class Waves:
    """Records for all partitions. Each wave counts every value once."""

    def __init__(self, log: Log, driver: Driver) -> None:
        self._log = log
        self._driver = driver
        self._sent = 0

    def process(self, waves: int = 1) -> None:
        """Append records and wait until all counts are visible; each exactly once, in order."""
        self.send(waves)
        expected = {value: list(range(1, self._sent + 1)) for value in VALUES}
        wait_until(
            "the records were processed",
            lambda: sum(map(len, counts(self._log).values())) >= self._sent * len(VALUES),
            meanwhile=self._driver.check,
        )
        assert counts(self._log) == expected

    def send(self, waves: int) -> None:
        """Append records."""
        for _ in range(waves):
            self._sent += 1
            for partition in range(PARTITIONS):
                values = [v.encode() for v in VALUES[partition::PARTITIONS]]
                self._log.append("in", partition, RecordColumns([b"k"] * len(values), values))


def await_lanes(driver: Driver, ready: int) -> None:
    wait_until(
        f"{ready} lanes were ready", lambda: driver.output.count(" is ready.") >= ready,
        meanwhile=driver.check,
    )


def test_hosts_have_their_own_files_names_and_networks(site: Site) -> None:
    network = site.network
    for name in WORKERS:
        host = network.hosts[name]
        done = subprocess.run(
            host.command("sh", "-c", f"hostname; touch '{network.private}/only-{name}'"),
            stdout=subprocess.PIPE, text=True, check=True,
        )
        assert done.stdout.strip() == name
        assert os.listdir(host.directory).count(f"only-{name}") == 1
        assert sum(each.startswith("only-") for each in os.listdir(host.directory)) == 1
    broker = (network.hosts["broker"].address, 9092)
    ours = os.readlink("/proc/thread-self/ns/net")
    with network.hosts["driver"].entered():
        socket.create_connection(broker, 10).close()
        assert os.readlink("/proc/thread-self/ns/net") != ours
    assert os.readlink("/proc/thread-self/ns/net") == ours


def test_continuous_tasks_leave_a_killed_host_and_use_it_again(
    tmp_path: Path, log: Log, site: Site
) -> None:
    """Its connections are not closed. Counts before, meanwhile and after are exact."""
    options = (
        "--master", site.spark.master, "--state-dir", "killed", "--execution", "continuous",
    )
    driver_host = site.network.hosts["driver"]
    with running(
        tmp_path, *PENSTOCK, options=options, log=site.log, host=driver_host
    ) as driver:
        waves = Waves(log, driver)
        waves.process()
        await_lanes(driver, 2)
        waves.process(3)
        waves.send(20)
        site.network.kill("worker2")
        try:
            waves.process(3)
            assert "and is replaced" in driver.output
        finally:
            site.network.start("worker2")
            site.spark.add_workers(["worker2"])
        waves.process()
        # The replacement waits for a slot until the host is back.
        await_lanes(driver, 3)
        waves.process(5)
        wait_until(
            "the returned host has state",
            lambda: list(site.spark.temporary("worker2").glob("penstock-*/killed/count/*_*")),
        )


@pytest.mark.exhaustive
def granted(driver: Driver) -> dict[str, str]:
    """Task -> the host that it was granted to last."""
    grants = re.findall(r"Granted to lane \d+ on (\S+) .*: tasks (.*)\.", driver.output)
    return {task: host for host, tasks in grants for task in tasks.split(", ")}


def test_continuous_tasks_return_to_their_hosts_after_a_restart_of_the_driver(
    tmp_path: Path, log: Log, site: Site
) -> None:
    """Which host gets which lane is up to Spark."""
    options = (
        "--master", site.spark.master, "--state-dir", "sticky", "--execution", "continuous",
    )
    hosts: dict[str, str] = {}
    for _ in range(3):
        with running(
            tmp_path, *PENSTOCK, options=options, log=site.log, host=site.network.hosts["driver"]
        ) as driver:
            wait_until(
                "all tasks were granted", lambda: len(granted(driver)) == 2 * PARTITIONS,
                meanwhile=driver.check,
            )
            wait_until(
                "all tasks ran", lambda: "count: RUNNING" in driver.output,
                meanwhile=driver.check,
            )
            found = granted(driver)
        assert set(found.values()) == set(WORKERS)
        assert hosts in ({}, found)
        hosts = found


def test_batch_of_a_killed_host_runs_on_the_other_after_a_restore(
    tmp_path: Path, log: Log, site: Site
) -> None:
    options = (
        "--master", site.spark.master, "--state-dir", "fetched", "--execution", "batch",
        "--log-level", "debug",
    )
    driver_host = site.network.hosts["driver"]
    with running(
        tmp_path, *PENSTOCK, options=options, log=site.log, host=driver_host
    ) as driver:
        waves = Waves(log, driver)
        waves.process()
        wait_until(
            "both hosts are used",
            lambda: all(
                list(site.spark.temporary(name).glob("penstock-*/fetched/count/*_*"))
                for name in WORKERS
            ),
            meanwhile=waves.process,
        )
        site.network.kill("worker2")
        try:
            waves.process(3)
            assert re.search(r"[1-9]\d* stores caught up from the log", driver.output)
        finally:
            site.network.start("worker2")
            site.spark.add_workers(["worker2"])
        waves.process()


#: Reads a topic and a store, writes a topic, and prints which host has read which rows.
_REPORT = """
import socket
import sys

from pyspark.sql import SparkSession

import penstock.spark

master, log = sys.argv[1:]
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
penstock.spark.register(spark)

def count_rows(rows):
    return [(socket.gethostname(), sum(1 for _ in rows))]

def read(**options):
    return spark.read.format("penstock").options(log=log, **options).load()

words = read(topic="in", **{"value.format": "string"})
store = read(application="count", store="second", **{"value.format": "long"})
for name, frame in (("topic", words), ("store", store)):
    for host, rows in frame.rdd.mapPartitions(count_rows).collect():
        print("read", name, host, rows)
words.select("key", "value").write.format("penstock").options(
    log=log, topic="copies"
).mode("append").save()
"""


def test_data_source_reads_and_writes_on_the_hosts_of_executors(
    tmp_path: Path, log: Log, site: Site
) -> None:
    driver_host = site.network.hosts["driver"]
    options = ("--master", "inline", "--state-dir", "read")
    with running(
        tmp_path, *PENSTOCK, options=options, log=site.log, host=driver_host
    ) as driver:
        Waves(log, driver).process(3)
    log.create_topic("copies", PARTITIONS)
    (tmp_path / "report.py").write_text(_REPORT)
    done = subprocess.run(
        driver_host.command(
            sys.executable, "report.py", site.spark.master, site.log, directory=tmp_path
        ),
        stdout=subprocess.PIPE, text=True, check=True, timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": driver_host.address},
    )
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("read ")]
    totals = {
        name: sum(int(rows) for kind, _, rows in lines if kind == name)
        for name in ("topic", "store")
    }
    assert totals == {"topic": 3 * len(VALUES), "store": len(VALUES)}
    assert {host for _, host, _ in lines} == set(WORKERS)
    ends = log.offsets([TopicPartition("copies", number) for number in range(PARTITIONS)])
    written = sum(
        len(batch.columns()) for at, bounds in ends.items()
        for batch in log.read(*at, 0, bounds.end)
    )
    assert written == 3 * len(VALUES)
