"""Applications on a standalone cluster: lanes follow its executors, tasks stay where their state
is, and a lost host or JVM does not stop the application for long."""

from __future__ import annotations

import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import penstock.__main__
from faults.cluster_application import (
    PARTITIONS,
    PENSTOCK,
    TOPOLOGY,
    VALUES,
    Driver,
    running,
    settings,
)
from faults.engine_processes import processes, send, wait_until
from faults.spark_cluster import HOSTS, SparkCluster
from penstock import native
from penstock.log import Log, RecordColumns, TopicPartition, open_log

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two hosts with one slot each. Tests leave it as it was."""
    with SparkCluster(tmp_path_factory.mktemp("standalone") / "cluster") as cluster:
        yield cluster


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "app.py").write_text(TOPOLOGY)
    log = open_log(tmp_path / "log.db")
    log.create_topic("in", PARTITIONS)
    log.create_topic("out", PARTITIONS)
    yield log
    log.close()


def written(log: Log) -> int:
    """The number of records in the output."""
    bounds = log.offsets(TopicPartition("out", number) for number in range(PARTITIONS))
    return sum(each.end for each in bounds.values())


def process_wave(log: Log, driver: Driver) -> None:
    """Append records to every partition and wait until all are processed."""
    before = written(log)
    for partition in range(PARTITIONS):
        values = [b"v%d" % number for number in range(partition, len(VALUES), PARTITIONS)]
        log.append("in", partition, RecordColumns([b"k"] * len(values), values))
    wait_until(
        "the records were processed", lambda: written(log) == before + len(VALUES),
        meanwhile=driver.check,
    )


def state_of_tasks(cluster: SparkCluster, state: str) -> list[dict[str, set[object]]]:
    """For each host: task -> the versions of its files."""
    hosts = []
    for host in HOSTS:
        found: dict[str, set[object]] = {}
        for path in cluster.temporary(host).glob(f"penstock-*/{state}/count/*_*/*/data.mdb"):
            found.setdefault(path.parts[-3], set()).add((path, path.stat().st_mtime_ns))
        hosts.append(found)
    return hosts


def use_both_hosts(cluster: SparkCluster, state: str, log: Log, driver: Driver) -> None:
    """Process records until tasks run on both hosts: executors register one after the other."""
    process_wave(log, driver)
    wait_until(
        "both hosts are used", lambda: all(state_of_tasks(cluster, state)),
        meanwhile=lambda: process_wave(log, driver),
    )
    process_wave(log, driver)


def test_tasks_stay_on_the_host_of_their_state(
    tmp_path: Path, log: Log, cluster: SparkCluster
) -> None:
    """In both stages. A relative state directory is on the hosts of the executors."""
    options = (
        "--master", cluster.master, "--state-dir", "sticky", "--execution", "batch",
        "--log-level", "debug",
    )
    with running(tmp_path, *PENSTOCK, options=options) as driver:
        use_both_hosts(cluster, "sticky", log, driver)
        before = state_of_tasks(cluster, "sticky")
        for _ in range(4):
            process_wave(log, driver)
        after = state_of_tasks(cluster, "sticky")
        assert "0 of 4 lanes did not run on their preferred host" in driver.output
    first, second = (
        {task for task in now if now[task] != earlier.get(task)}
        for earlier, now in zip(before, after, strict=True)
    )
    assert first | second == {f"{stage}_{n}" for stage in range(2) for n in range(PARTITIONS)}
    assert not first & second
    assert len(first) == len(second) == PARTITIONS
    assert not (tmp_path / "sticky").exists()


def test_stores_work_under_a_memory_limit_of_the_workers(
    tmp_path: Path, log: Log, cluster: SparkCluster
) -> None:
    options = ("--master", cluster.master, "--state-dir", "limited", *settings(
        executor_pyspark_memory="900m", executor_memory="1g"
    ))
    with running(tmp_path, *PENSTOCK, options=options) as driver:
        process_wave(log, driver)
        process_wave(log, driver)


@pytest.mark.skipif(native.core is None, reason="the native core is not built")
def test_penstock_in_an_archive_is_reported_as_slow(
    tmp_path: Path, log: Log, cluster: SparkCluster
) -> None:
    package = Path(penstock.__file__).parent
    with zipfile.ZipFile(tmp_path / "penstock.zip", "w") as archive:
        for path in package.rglob("*"):
            if "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(package.parent))
    submit = (
        SUBMIT, "--master", cluster.master, "--py-files", str(tmp_path / "penstock.zip"),
        penstock.__main__.__file__,
    )
    notice = "imported from the archive penstock.zip"
    with running(tmp_path, *submit) as driver:
        process_wave(log, driver)
        # Lanes report to the driver after their commit.
        wait_until(
            "the notice is logged", lambda: notice in driver.output, meanwhile=driver.check
        )
        process_wave(log, driver)
        assert driver.output.count(notice) == 1


@pytest.mark.exhaustive
def test_host_that_disappears_is_reported_and_replaced(
    tmp_path: Path, log: Log, cluster: SparkCluster
) -> None:
    """Its connections stay open, so that only missing heartbeats show it."""
    options = ("--master", cluster.master, "--state-dir", "lost", "--execution", "batch")
    with running(tmp_path, *PENSTOCK, options=options) as driver:
        use_both_hosts(cluster, "lost", log, driver)
        cluster.signal_host(HOSTS[1], signal.SIGSTOP)
        try:
            process_wave(log, driver)
        finally:
            cluster.signal_host(HOSTS[1], signal.SIGCONT)
        assert f"({HOSTS[1]}), started" in driver.output
        assert "sends no heartbeat for 20s" in driver.output


def test_continuous_tasks_move_from_a_host_that_disappears_and_back(
    tmp_path: Path, log: Log, cluster: SparkCluster
) -> None:
    """Its lane is replaced before Spark notices, and publishes nothing when it runs again."""
    options = (
        "--master", cluster.master, "--state-dir", "moved", "--execution", "continuous",
    )
    with running(tmp_path, *PENSTOCK, options=options) as driver:
        process_wave(log, driver)
        wait_until(
            "a lane runs on each host", lambda: driver.output.count(" is ready.") >= len(HOSTS),
            meanwhile=driver.check,
        )
        process_wave(log, driver)
        cluster.signal_host(HOSTS[1], signal.SIGSTOP)
        try:
            process_wave(log, driver)
            assert "and is replaced" in driver.output
        finally:
            cluster.signal_host(HOSTS[1], signal.SIGCONT)
        process_wave(log, driver)
        wait_until(
            "a lane runs on each host again",
            lambda: driver.output.count(" is ready.") > len(HOSTS), meanwhile=driver.check,
        )
        process_wave(log, driver)


@pytest.mark.exhaustive
def test_lanes_follow_the_executors(tmp_path: Path, log: Log) -> None:
    with (
        SparkCluster(tmp_path / "cluster", (*HOSTS, "127.0.0.3")) as cluster,
        running(
            tmp_path, *PENSTOCK, options=("--master", cluster.master, "--execution", "batch")
        ) as driver,
    ):
        process_wave(log, driver)
        cluster.add_workers(("127.0.0.4",))
        wait_until(
            "the fourth executor was noticed",
            lambda: "The executors have 4 slots, 3 before." in driver.output,
        )
        process_wave(log, driver)


def test_driver_of_a_terminated_spark_submit_ends(
    tmp_path: Path, log: Log
) -> None:
    """Its output went through the JVM, so nothing can be read about it any more."""
    entry = penstock.__main__.__file__
    with running(tmp_path, SUBMIT, "--master", "local[1]", str(entry)) as driver:
        process_wave(log, driver)
        [jvm] = [
            each.pid for each in processes(driver.process.pid).values()
            if "org.apache.spark.deploy.SparkSubmit" in each.command
        ]
        send(jvm, signal.SIGTERM)
        wait_until("the driver had ended", lambda: not processes(driver.process.pid))
