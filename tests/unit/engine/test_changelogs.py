"""Changelogs of a log that does not report removed tombstones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.engine.worker.changelogs import LogChangelogs
from penstock.log import RecordColumns, TopicPartition, open_log
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.kafka.scheme import KAFKA
from penstock.stores.replica.protocol import ChangelogTruncated

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("settings", "hours", "is_too_old"),
    [
        ({}, None, False), ({}, 0, False), ({}, 20, False), ({}, 23, True), ({}, 50, True),
        ({"delete.retention.ms": 100 * HOUR_MS}, 50, False),
        ({"delete.retention.ms": HOUR_MS}, 2, True),
    ],
)
def test_rows_older_than_the_tombstone_retention_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, int],
    hours: int | None, is_too_old: bool,
) -> None:
    monkeypatch.setattr(EmbeddedLog, "capabilities", KAFKA.capabilities)
    now = time.time_ns() // 1_000_000
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("changes", 1, {"cleanup.policy": "compact", **settings})
        log.append("changes", 0, RecordColumns([b"a", b"a"], [b"1", None]))
        changelogs = LogChangelogs(log, {"s": TopicPartition("changes", 0)})
        batches = changelogs.read("s", 1, 2, None if hours is None else now - hours * HOUR_MS)
        if is_too_old:
            with pytest.raises(ChangelogTruncated):
                list(batches)
        else:
            (batch,) = batches
            assert batch.columns().values == [None]
