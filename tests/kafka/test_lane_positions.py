"""The positions that a lane reports, on a log whose transactions take offsets of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.lane_driver import TASK, open_driver
from kafka.cluster import clear
from kafka.test_log import acquire
from penstock.broker.cluster import ClusterStatus
from penstock.engine.continuous.messages import Committed, Grant, Running
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.engine.worker.outcome import decode_outcome
from penstock.log import RecordColumns, open_log

pytestmark = pytest.mark.kafka


def test_lane_reports_the_ends_of_its_changelogs(
    penstock_broker: ClusterStatus, tmp_path: Path
) -> None:
    """The driver grants a task again only when the log shows its changelogs up to the reported
    positions. With smaller ones, the restored stores would lack the last commit."""
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("words")
        lease = acquire(log, "words")
        with open_driver(log, lease, tmp_path / "state") as driver:
            driver.send(Grant(TaskPlan(TASK, positions={"counts": 0}), {("words", 0): 0}))
            driver.receive(Running)
            reported = []
            for number in range(1, 4):
                log.append("words", 0, RecordColumns([b"tea"], [b"%d" % number]))
                while True:
                    outcomes = map(decode_outcome, driver.receive(Committed).outcomes)
                    found = [each for each in outcomes if each.records_consumed]
                    if found:
                        break
                reported.append(found[0].record.positions["counts"])
        # Each record is followed by the marker of its transaction.
        assert reported == [1, 3, 5]
