"""Tasks that Spark runs twice: a second attempt that overtakes the first, and parts of a batch that
were made again without the rest.

The cluster is a real one, with two hosts as Spark sees it, so it is also the proof that an
application goes to a cluster unchanged: only the master is another.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from faults.engine_app import APPLICATION_ID, everything, read
from faults.engine_kills import Trial
from faults.engine_processes import STAGES, send, wait_until
from faults.spark_cluster import SparkCluster
from kafka.cluster import swept
from penstock.broker.cluster import ClusterStatus
from penstock.engine.failpoints import Step
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.task_records import BATCH_KEY, decode_task
from penstock.engine.worker.worker import ATTEMPT_BITS
from penstock.log import Log

EVENTS = "events"
#: How many a stage has in the test of mixed attempts.
LANES = 2

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class Winner(NamedTuple):
    """A second attempt that came in first."""

    #: Spark's number of the attempt, which penstock names its own after.
    attempt: int
    #: Of the application's.
    stage: int


def speculation(directory: Path) -> tuple[str, ...]:
    """Settings with which Spark is soon impatient, and writes down what it does."""
    (directory / EVENTS).mkdir()
    return (
        "spark.speculation=true", "spark.speculation.interval=100ms",
        "spark.speculation.quantile=0.5", "spark.speculation.multiplier=1.1",
        "spark.speculation.efficiency.enabled=false", "spark.speculation.minTaskRuntime=2s",
        # Spark would kill the worker of an attempt that was overtaken, and nothing would come late.
        "spark.python.task.killTimeout=1h",
        "spark.executor.memory=512m", "spark.eventLog.enabled=true",
        "spark.eventLog.compress=false", f"spark.eventLog.dir=file:{directory / EVENTS}",
    )


def test_a_second_attempt_wins_and_the_late_first_one_changes_nothing(tmp_path: Path) -> None:
    """A worker is stopped in a task of the first stage, and in one of the second. The batch is
    committed all the same, with the outcome of the second attempt; then the stopped one goes on."""
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
    """As above, with nothing of one machine but the machine; also while a worker holds the lock of
    a replica on its host."""
    with (
        SparkCluster(tmp_path / "cluster") as cluster,
        Trial(
            tmp_path, seed=8, settings=speculation(tmp_path), cluster=cluster,
            address=swept(penstock_broker.address),
        ) as trial,
    ):
        _overtake(trial, cluster, "computing", 0)
        for stage in range(STAGES):
            _overtake(trial, cluster, "applying", stage)
        trial.verify()


def _overtake(trial: Trial, cluster: SparkCluster, step: Step, stage: int) -> None:
    """Let a second attempt win against a worker that stands in a step of that stage."""
    for _ in range(4):
        # On a slow machine Spark may have been impatient before, and it is the second attempt that
        # stands, while the first one wins.
        if stage in _overtaken(trial, cluster, f"{step}@{stage}"):
            return
    raise AssertionError(f"no second attempt of stage {stage} was committed")


def _overtaken(trial: Trial, cluster: SparkCluster, step: str) -> set[int]:
    """The stages in which a second attempt has won, and its outcome was committed, while a worker
    stood in the step."""
    next(trial.every_key())()
    # Every task has something to do in the next wave, and its replica is behind.
    pieces = trial.every_key()
    before = _committed(trial.log)
    trial.reach(step, pieces)
    [late] = trial.start().stopped()
    trial.drain()
    assert [process.pid for process in trial.start().stopped()] == [late.pid]
    committed = _committed(trial.log) - before
    stages = {
        winner.stage for winner in _winners(trial.directory / EVENTS)
        if winner.attempt in committed
    }
    _let_come_late(trial, cluster, late.pid)
    return stages


def _let_come_late(trial: Trial, cluster: SparkCluster, pid: int) -> None:
    """It finishes its task and finds that nobody listens, which ends it."""
    before = everything(trial.log)
    send(pid, signal.SIGCONT)
    wait_until("the late one had ended", lambda: all(each.pid != pid for each in cluster.all()))
    assert everything(trial.log) == before, "an attempt that was overtaken has changed something"


def _winners(events: Path) -> Iterator[Winner]:
    """From what Spark has written down so far."""
    numbers: dict[int, int] = {}
    for event in _events(events):
        if event["Event"] == "SparkListenerJobStart":
            # A job leaves out the stages at its beginning that have nothing to do.
            those = sorted(event["Stage IDs"])
            numbers |= zip(those, range(STAGES - len(those), STAGES), strict=True)
        if event["Event"] != "SparkListenerTaskEnd" or not event["Task Info"]["Speculative"]:
            continue
        if event["Task End Reason"]["Reason"] == "Success":
            yield Winner(event["Task Info"]["Task ID"], numbers[event["Stage ID"]])


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    for path in directory.rglob("events_*"):
        # The last line may be half written.
        yield from map(json.loads, path.read_text().split("\n")[:-1])


def _committed(log: Log) -> set[int]:
    """The attempts of all tasks whose outcomes are in the log."""
    return {
        decode_task(value).attempt % (1 << ATTEMPT_BITS)
        for key, value, _ in read(log, tasks_topic(APPLICATION_ID))
        if value is not None and b"_" in key and key != BATCH_KEY
    }


def test_a_batch_of_mixed_attempts_is_run_again(tmp_path: Path) -> None:
    """With one core the lanes of a stage run one after the other. The shuffle files go after the
    first lane of the last stage has read them, and before the second one has. Spark makes them
    again for the second; what the first one answers was made from those that are gone."""
    settings = [f"penstock.parallelism={LANES}"]
    with Trial(tmp_path, seed=6, master="local[1]", settings=settings) as trial:
        # Then there is something to bring up to date in the last stage.
        next(trial.every_key())()
        for _ in range(4):
            # A task does that when it has read all that was sent to it.
            trial.reach(f"applying@{STAGES - 1}", trial.every_key())
            assert _lose_shuffle(tmp_path / "spark")
            trial.start().go_on()
            trial.drain()
            if _was_run_again(trial):
                break
        assert _was_run_again(trial), trial.start().told()
        trial.verify()


def _was_run_again(trial: Trial) -> bool:
    told = trial.start().output.read_text()
    return "is run again: Rows of batch" in told and "consumed in different attempts" in told


def _lose_shuffle(directory: Path) -> int:
    """Remove the files of the shuffle that was written last; answers how many there were.

    They are named after the shuffle and the attempt that wrote them; only the second grows.
    """
    files = [(path, path.name.split("_")) for path in directory.rglob("shuffle_*")]
    last = max(files, key=lambda file: int(file[1][2]))[1][1]
    lost = [path for path, name in files if name[1] == last]
    for path in lost:
        path.unlink()
    return len(lost)
