"""Slow commits leave log lines, but not too many."""

from __future__ import annotations

import pytest

from penstock.engine.batch_report import BatchReport
from penstock.engine.commit_log import INTERVAL_S, CommitLog


def report(commit_seconds: float) -> BatchReport:
    return BatchReport(1, 10, 10, 1_200, 34, 0.0, 0.1, commit_seconds)


def test_last_slow_commits_are_logged_when_the_instance_ends(
    caplog: pytest.LogCaptureFixture
) -> None:
    commits = CommitLog(lambda: 100.0)
    for seconds in (3.0, 1.5, 4.25):
        commits.add(report(seconds))
    commits.close()
    commits.close()
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "A commit took more than 1 s", "2 commits took more than 1 s",
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
