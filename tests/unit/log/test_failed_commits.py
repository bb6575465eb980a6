"""Transactions of the embedded log whose commit fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.log import RecordColumns, open_log
from penstock.log.embedded import appends
from penstock.log.errors import Fenced, LogBusy


def test_error_of_a_commit_is_kept_if_its_staged_records_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "_SPILL_BYTES", 0)
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("out")
        lease = log.candidate("app", timeout_ms=60_000).try_acquire()
        assert lease is not None
        grant = lease.create_writer()
        writer = log.open_writer(grant, lambda: b"")
        lease.fence_writers([grant])

        def fail(*_: Any) -> None:
            raise LogBusy("The file is locked.")

        transaction = writer.transaction()
        transaction.append("out", 0, RecordColumns([None], [b"value"]))
        monkeypatch.setattr(appends, "_delete_staged", fail)
        with pytest.raises(Fenced):
            transaction.commit()
