"""Tasks that Spark runs twice: a second attempt that overtakes the first one, and parts of a batch
that are computed again without the rest.

The standalone cluster has two hosts from Spark's point of view. So the tests also show that an
application runs on a cluster unchanged, with another master.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from faults.engine_app import APPLICATION_ID, everything, read
from faults.engine_processes import STAGES, send, wait_until
from faults.engine_trial import Trial
from faults.spark_cluster import SparkCluster
from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.engine.failpoints import FailpointName
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.task_records import BATCH_KEY, decode_task
from penstock.engine.worker.worker import ATTEMPT_BITS
from penstock.log import Log

EVENTS = "events"
#: The lanes of a stage in the test of mixed attempts.
LANES = 2

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class Winner(NamedTuple):
    """A second attempt that finished first."""

    #: Spark's id of the attempt; penstock's attempt numbers contain it.
    attempt: int
    #: The stage of the application.
    stage: int


def speculation(directory: Path) -> tuple[str, ...]:
    """Settings for early speculation, with an event log."""
    (directory / EVENTS).mkdir()
    return (
        "spark.speculation=true", "spark.speculation.interval=100ms",
        "spark.speculation.quantile=0.5", "spark.speculation.multiplier=1.1",
        "spark.speculation.efficiency.enabled=false", "spark.speculation.minTaskRuntime=2s",
        # Otherwise Spark kills the worker of an overtaken attempt, and no attempt finishes late.
        "spark.python.task.killTimeout=1h",
        "spark.executor.memory=512m", "spark.eventLog.enabled=true",
        "spark.eventLog.compress=false", f"spark.eventLog.dir=file:{directory / EVENTS}",
    )


@pytest.mark.exhaustive
def test_second_attempt_wins_and_the_late_first_one_changes_nothing(tmp_path: Path) -> None:
    """A worker is stopped in a task of the first stage, and in one of the second. The batch is
    committed with the outcome of the second attempt; then the stopped worker resumes."""
    with (
        SparkCluster(tmp_path / "cluster") as cluster,
        Trial(tmp_path, seed=7, settings=speculation(tmp_path), cluster=cluster) as trial,
    ):
        for stage in (0, 1):
            _overtake(trial, cluster, "computing", stage)
        trial.verify()
        assert len({path.parent for path in cluster.states()}) == 2


@pytest.mark.soak
@pytest.mark.kafka
def test_second_attempts_win_in_every_stage_on_a_cluster_with_kafka(
    tmp_path: Path, penstock_broker: ClusterStatus
) -> None:
    """As above, without shared files; also while a worker holds the lock of a replica on its
    host."""
    with (
        SparkCluster(tmp_path / "cluster") as cluster,
        Trial(
            tmp_path, seed=8, settings=speculation(tmp_path), cluster=cluster,
            address=clear(penstock_broker.address),
        ) as trial,
    ):
        _overtake(trial, cluster, "computing", 0)
        for stage in range(STAGES):
            _overtake(trial, cluster, "applying", stage)
        trial.verify()


def _overtake(trial: Trial, cluster: SparkCluster, failpoint: FailpointName, stage: int) -> None:
    """Make a second attempt win against a worker that is stopped at a failpoint of the stage."""
    for _ in range(4):
        # On a slow machine Spark may have speculated before. Then the second attempt is stopped and
        # the first one wins.
        if stage in _overtaken(trial, cluster, f"{failpoint}@{stage}"):
            return
    raise AssertionError(f"no second attempt of stage {stage} was committed")


def _overtaken(trial: Trial, cluster: SparkCluster, failpoint: str) -> set[int]:
    """The stages in which the outcome of a second attempt was committed while a worker was
    stopped at the failpoint."""
    next(trial.every_key())()
    # In the next wave every task has input, and its replica lags behind.
    pieces = trial.every_key()
    before = _committed(trial.log)
    trial.reach(failpoint, pieces)
    [late] = trial.start().stopped()
    trial.drain()
    assert [process.pid for process in trial.start().stopped()] == [late.pid]
    committed = _committed(trial.log) - before
    stages = {
        winner.stage for winner in _winners(trial.directory / EVENTS)
        if winner.attempt in committed
    }
    _finish_late(trial, cluster, late.pid)
    return stages


def _finish_late(trial: Trial, cluster: SparkCluster, pid: int) -> None:
    """The worker finishes its task and exits, because the connection to Spark is closed."""
    before = everything(trial.log)
    send(pid, signal.SIGCONT)
    wait_until("the late one had ended", lambda: all(each.pid != pid for each in cluster.all()))
    assert everything(trial.log) == before, "an overtaken attempt has changed the log"


def _winners(events: Path) -> Iterator[Winner]:
    """The winners in the event log of Spark so far."""
    numbers: dict[int, int] = {}
    for event in _events(events):
        if event["Event"] == "SparkListenerJobStart":
            # A job skips leading stages without input.
            those = sorted(event["Stage IDs"])
            numbers |= zip(those, range(STAGES - len(those), STAGES), strict=True)
        if event["Event"] != "SparkListenerTaskEnd" or not event["Task Info"]["Speculative"]:
            continue
        if event["Task End Reason"]["Reason"] == "Success":
            yield Winner(event["Task Info"]["Task ID"], numbers[event["Stage ID"]])


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    for path in directory.rglob("events_*"):
        # The last line may be incomplete.
        yield from map(json.loads, path.read_text().split("\n")[:-1])


def _committed(log: Log) -> set[int]:
    """The attempts of all tasks whose outcomes are in the log."""
    return {
        decode_task(value).attempt % (1 << ATTEMPT_BITS)
        for key, value, _ in read(log, tasks_topic(APPLICATION_ID))
        if value is not None and b"_" in key and key != BATCH_KEY
    }


def test_batch_of_mixed_attempts_is_run_again(tmp_path: Path) -> None:
    """With one core the lanes of a stage run one after the other. The shuffle files are deleted
    after the first lane of the last stage has read them, and before the second one has. Spark
    computes them again for the second lane; the outcome of the first lane is from the old files."""
    settings = [f"penstock.parallelism={LANES}"]
    with Trial(tmp_path, seed=6, master="local[1,4]", settings=settings) as trial:
        # Afterwards the replicas of the last stage lag behind.
        next(trial.every_key())()
        for _ in range(4):
            # A task updates its replica when it has read all of its input.
            trial.reach(f"applying@{STAGES - 1}", trial.every_key())
            assert _delete_shuffle_files(tmp_path / "spark")
            trial.start().resume()
            trial.drain()
            if _was_run_again(trial):
                break
        assert _was_run_again(trial), trial.start().output_tail()
        trial.verify()


def _was_run_again(trial: Trial) -> bool:
    output = trial.start().output.read_text()
    return "is rerun: Rows of batch" in output and "consumed in different attempts" in output


def _delete_shuffle_files(directory: Path) -> int:
    """Delete the files of the last shuffle and return their number.

    Their names contain the shuffle and the attempt that wrote them; only the latter increases.
    """
    files = [(path, path.name.split("_")) for path in directory.rglob("shuffle_*")]
    last = max(files, key=lambda file: int(file[1][2]))[1][1]
    lost = [path for path, name in files if name[1] == last]
    for path in lost:
        path.unlink()
    return len(lost)
