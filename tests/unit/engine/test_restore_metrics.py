"""The progress of restores as metrics of tasks."""

from __future__ import annotations

import pytest

from penstock import StateRestoreListener, StreamsConfig
from penstock.engine.observe.metrics import Metrics
from penstock.engine.observe.prometheus import exposition, is_counter
from penstock.engine.observe.restore import RestoreNotifier
from penstock.engine.worker.outcome import RestoredStore, RestoringStore
from penstock.record import TaskId

TASK = TaskId(1, 0)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(
        StreamsConfig(application_id="app", metrics_recording_level="DEBUG"), "thread"
    )


@pytest.fixture
def notifier(metrics: Metrics) -> RestoreNotifier:
    return RestoreNotifier(StateRestoreListener(), metrics)


def shown(metrics: Metrics) -> dict[str, object]:
    return {
        name.name: value for name, value in metrics.snapshot({}).items()
        if name.name.startswith("restore-") and dict(name.tags).get("task-id") == str(TASK)
        and not name.name.endswith("-rate")
    }


def restoring(store: str, position: int, end: int = 100) -> RestoringStore:
    return RestoringStore(store, f"app-{store}-changelog", 0, 0, position, end)


def restored(store: str, records: int, end: int = 100) -> RestoredStore:
    return RestoredStore(store, f"app-{store}-changelog", 0, 0, end, records, TASK)


def test_restore_by_a_lane_is_shown_while_it_runs(
    metrics: Metrics, notifier: RestoreNotifier
) -> None:
    assert shown(metrics) == {}
    notifier.restoring(str(TASK), [restoring("a", 50), restoring("b", 0, 300)])
    assert shown(metrics) == {"restore-remaining-records-total": 350, "restore-progress": 0.125}
    notifier.restoring(str(TASK), [restoring("a", 100), restoring("b", 200, 300)])
    assert shown(metrics) == {"restore-remaining-records-total": 100, "restore-progress": 0.75}
    notifier.restored(str(TASK), [restored("a", 90), restored("b", 10, 300)])
    assert shown(metrics) == {
        "restore-remaining-records-total": 0, "restore-progress": 1.0, "restore-total": 100,
    }


def test_next_restore_of_a_task_starts_from_zero(
    metrics: Metrics, notifier: RestoreNotifier
) -> None:
    notifier.restored(str(TASK), [restored("a", 100), restored("b", 100)])
    notifier.restoring(str(TASK), [restoring("a", 10), restoring("b", 0)])
    assert shown(metrics) == {
        "restore-remaining-records-total": 190, "restore-progress": pytest.approx(0.05),
        "restore-total": 200,
    }


def test_restore_that_does_not_continue_is_not_shown(
    metrics: Metrics, notifier: RestoreNotifier
) -> None:
    notifier.restoring(str(TASK), [restoring("a", 50)])
    notifier.stopped("0_0")
    assert shown(metrics)["restore-remaining-records-total"] == 50
    notifier.stopped(str(TASK))
    assert shown(metrics) == {}


def test_unmonitored_restore_is_shown_after_the_batch(
    metrics: Metrics, notifier: RestoreNotifier
) -> None:
    notifier.completed([restored("a", 90)])
    assert shown(metrics) == {
        "restore-remaining-records-total": 0, "restore-progress": 1.0, "restore-total": 90,
    }


def test_global_stores_have_no_task(metrics: Metrics, notifier: RestoreNotifier) -> None:
    notifier.completed([restored("a", 90)._replace(task_id=None)])
    assert not [
        name for name in metrics.snapshot({})
        if name.name.startswith("restore-") and name.group == "stream-task-metrics"
    ]


def test_remaining_records_are_a_gauge_for_prometheus(
    metrics: Metrics, notifier: RestoreNotifier
) -> None:
    notifier.restoring(str(TASK), [restoring("a", 50)])
    assert not is_counter("restore-remaining-records-total")
    assert (
        "# TYPE penstock_stream_task_restore_remaining_records gauge"
        in exposition(metrics.snapshot({}))
    )
