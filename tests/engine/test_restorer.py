"""`Restorer`: tasks that wait are restored in order, and their changelogs are fetched together."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, cast

import pytest

from penstock.engine.continuous import restorer as restorer_module
from penstock.engine.continuous.lane_task import RestoredReplica
from penstock.engine.continuous.messages import Grant
from penstock.engine.continuous.restorer import RestoreDone, Restorer, RestoreStopped
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.worker.outcome import OnRestoring, RestoringStore
from penstock.engine.worker.worker import Worker
from penstock.record import TaskId

CONTEXT = BatchPlan(0, 0, 0, {})


class FakeWorker:
    """Records which tasks are fetched together."""

    def __init__(self) -> None:
        self.replicas = self
        self.fetched: list[list[int]] = []

    def blueprint(self, subtopology: int) -> None:
        """No task needs it."""

    def fetch(self, tasks: Iterable[tuple[TaskPlan, object]], batch: BatchPlan) -> bool:
        self.fetched.append([plan.task_id.partition for plan, _ in tasks])
        return True


def grant(partition: int, **options: Any) -> Grant:
    return Grant(TaskPlan(TaskId(0, partition)), {}, **options)


def test_waiting_tasks_are_fetched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task is restored alone. Those that arrive meanwhile share a fetch."""
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    done: list[RestoreDone] = []

    def restore(
        worker: object, granted: Grant, context: BatchPlan, on_restoring: OnRestoring
    ) -> RestoredReplica:
        started.set()
        assert may_end.wait(30)
        if granted.plan.task_id.partition == 2:
            raise ValueError("cannot be restored")
        return RestoredReplica(None, ())

    def finish(each: RestoreDone) -> None:
        done.append(each)
        if len(done) == 5:
            ended.set()

    monkeypatch.setattr(restorer_module, "restore_replica", restore)
    worker = FakeWorker()
    restorer = Restorer(cast(Worker, worker), finish, lambda task_id, stores: None)
    restorer.add(grant(0), CONTEXT)
    assert started.wait(30)
    for partition in (1, 2, 3):
        restorer.add(grant(partition), CONTEXT)
    restorer.add(grant(4, discard_replica=True), CONTEXT)
    may_end.set()
    assert ended.wait(30)
    restorer.close()
    assert worker.fetched == [[1, 2, 3]]
    assert [each.grant.plan.task_id.partition for each in done] == [0, 1, 2, 3, 4]
    assert [str(each.error) for each in done if each.error] == ["cannot be restored"]


def test_progress_is_reported_about_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk is reported at once, so that a long restore is visible from its start."""
    now, ended = 100.0, threading.Event()
    reported: list[tuple[TaskId, int]] = []

    def restore(
        worker: object, granted: Grant, context: BatchPlan, on_restoring: OnRestoring
    ) -> RestoredReplica:
        nonlocal now
        for position in range(10):
            on_restoring((RestoringStore("rows", "changes", 0, 0, position, 10),))
            now += 0.4
        return RestoredReplica(None, ())

    monkeypatch.setattr(restorer_module, "restore_replica", restore)
    monkeypatch.setattr(restorer_module.time, "monotonic", lambda: now)
    restorer = Restorer(
        cast(Worker, FakeWorker()), lambda done: ended.set(),
        lambda task_id, stores: reported.append((task_id, stores[0].position)),
    )
    restorer.add(grant(7), CONTEXT)
    assert ended.wait(30)
    restorer.close()
    assert reported == [(TaskId(0, 7), position) for position in (0, 3, 6, 9)]


def test_restore_is_stopped_when_the_lane_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would open the files of the replica again after the lane has closed them."""
    started = threading.Event()
    done: list[RestoreDone] = []

    def restore(
        worker: object, granted: Grant, context: BatchPlan, on_restoring: OnRestoring
    ) -> RestoredReplica:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            on_restoring((RestoringStore("rows", "changes", 0, 0, 1, 10),))
            started.set()
        return RestoredReplica(None, ())

    monkeypatch.setattr(restorer_module, "restore_replica", restore)
    restorer = Restorer(cast(Worker, FakeWorker()), done.append, lambda task_id, stores: None)
    restorer.add(grant(0), CONTEXT)
    restorer.add(grant(1), CONTEXT)
    assert started.wait(30)
    restorer.close()
    (stopped,) = done
    assert isinstance(stopped.error, RestoreStopped)
