"""Restores and slow commits leave log lines, slow commits not too many."""

from __future__ import annotations

import logging

import pytest

from penstock.engine.batch_report import BatchReport
from penstock.engine.commit_log import INTERVAL_S, CommitLog
from penstock.engine.worker.outcome import RestoredStore


def report(commit_seconds: float, *restored: RestoredStore) -> BatchReport:
    return BatchReport(
        1, 10, 10, 1_200, 34, 0.0, 0.1, commit_seconds, restored=restored, restore_seconds=2.5
    )


def test_restored_stores_are_named_with_their_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    CommitLog().add(report(
        0.1,
        RestoredStore("counts", "app-counts-changelog", 0, 0, 900, 800),
        RestoredStore("counts", "app-counts-changelog", 1, 0, 900, 700),
        RestoredStore("names", "names", 0, 0, 5, 5),
        RestoredStore("empty", "empty", 0, 0, 0, 0),
    ))
    assert caplog.messages == [
        "Restored from changelogs in 2.5 s: counts (1,500 records in 2 partitions), "
        "names (5 records in 1 partition)."
    ]


def test_slow_commits_are_summarized(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    commits = CommitLog(lambda: now)
    for seconds in (0.2, 3.0, 1.5, 4.25, 0.3):
        commits.add(report(seconds))
    now += INTERVAL_S
    commits.add(report(0.1))
    commits.add(report(0.1))
    assert caplog.messages == [
        "A commit took more than 1 s, the longest one 3.0 s for 1,200 records and 34 changes of "
        "stores. Check the load of the log and the disk of the state.",
        "2 commits took more than 1 s, the longest one 4.2 s for 1,200 records and 34 changes of "
        "stores. Check the load of the log and the disk of the state.",
    ]
