"""Restored stores leave log lines: one for a batch, and few for the tasks of lanes."""

from __future__ import annotations

import logging

import pytest

from penstock.engine.observe.restore_log import INTERVAL_S, RestoreLog
from penstock.engine.worker.outcome import RestoredStore


def restored(store: str, partition: int, records: int) -> RestoredStore:
    return RestoredStore(store, f"app-{store}-changelog", partition, 0, 900, records)


def test_restored_stores_are_named_with_their_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    RestoreLog().add(
        [restored("counts", 0, 800), restored("counts", 1, 700), restored("names", 0, 5),
         restored("empty", 0, 0)],
        2.5,
    )
    RestoreLog().add([restored("empty", 0, 0)], 1.0)
    assert caplog.messages == [
        "Restored from changelogs in 2.5 s: counts (1,500 records in 2 partitions), "
        "names (5 records in 1 partition)."
    ]


def test_tasks_that_are_restored_one_after_the_other_share_a_line(
    caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    restores = RestoreLog(lambda: now)
    for partition in range(3):
        now += 2
        restores.add([restored("counts", partition, 10)], 2.0, is_last=partition == 2)
    now += 50
    restores.add([restored("counts", 3, 10)], 1.0, is_last=False)
    now += INTERVAL_S
    restores.add([restored("counts", 4, 10)], 1.0, is_last=False)
    restores.add([restored("counts", 5, 10)], 1.0, is_last=False)
    restores.flush()
    restores.flush()
    assert caplog.messages == [
        "Restored from changelogs in 6.0 s: counts (30 records in 3 partitions).",
        "Restored from changelogs in 11.0 s: counts (20 records in 2 partitions).",
        "Restored from changelogs in 1.0 s: counts (10 records in 1 partition).",
    ]
