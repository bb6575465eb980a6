from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.log import Log, RecordColumns


def damage(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            assert db.execute(statement).rowcount > 0


@pytest.fixture
def damaged(log: Log, path: Path) -> Path:
    """The batch of the first partition is damaged."""
    damage(path, "UPDATE blobs SET data = zeroblob(100) WHERE id = 1")
    return path


def test_intact_log_has_exit_code_0(penstock, log: Log) -> None:
    ran = penstock("topics", "verify")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "TOPIC  PARTITION  RECORDS  UNCHECKED  DAMAGED\n"
        "words          0        3          0        0\n"
        "words          1        3          0        0\n"
    )


def test_damage_is_listed_with_its_offsets(penstock, damaged: Path) -> None:
    ran = penstock("topics", "verify", "words")
    assert ran.code == 1
    assert ran.out == (
        "TOPIC  PARTITION  RECORDS  UNCHECKED  DAMAGED\n"
        "words          0        0          0        1\n"
        "words          1        3          0        0\n"
        "'words' [0], offsets 0 to 2: the checksum of the data differs\n"
    )
    assert ran.err == (
        f"penstock: error: The log '{damaged}' is damaged. Restore the file from a backup. Or stop "
        "all applications and give up the damaged records: penstock topics verify "
        "--drop-damaged.\n"
    )


def test_json_has_a_line_for_each_partition_and_problem(penstock, damaged: Path) -> None:
    damage(damaged, "UPDATE partitions SET start = 1 WHERE partition = 1")
    ran = penstock("topics", "verify", "--json")
    assert ran.code == 1
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"topic": "words", "partition": 0, "records": 0, "unchecked_batches": 0, "damaged": [
            {"first": 0, "last": 2, "problem": "the checksum of the data differs"}]},
        {"problem": "The start and end of 'words' [1] are damaged in the log "
                    f"'{damaged}'."},
    ]


def test_dropped_records_are_skipped_by_readers(penstock, log: Log, damaged: Path) -> None:
    ran = penstock("consume", "words", "--partition", "0")
    assert ran.code == 1
    assert "Offsets 0 to 2 of 'words' [0] are damaged" in ran.err
    ran = penstock("topics", "verify", "--drop-damaged", "--yes")
    assert (ran.code, ran.err) == (0, "Dropped 3 offsets.\n")
    assert penstock("topics", "verify").code == 0
    assert penstock("consume", "words", "--partition", "0").code == 0
    assert log.append("words", 0, RecordColumns([b"k"], [b"v"])).base_offset == 3


def test_dropping_the_state_of_an_application_advises_a_reset(
    penstock, log: Log, path: Path
) -> None:
    log.create_topic("app-counts-changelog")
    log.append("app-counts-changelog", 0, RecordColumns([b"k"], [b"v"]))
    damage(path, "UPDATE blobs SET data = zeroblob(100) WHERE id = 3")
    ran = penstock("topics", "verify", "--drop-damaged", "--yes")
    assert ran.code == 0
    assert "Reset the application with `penstock reset`" in ran.err


def test_damage_that_cannot_be_dropped_is_listed(penstock, log: Log, path: Path) -> None:
    log.commit_offsets("app", {("words", 0): 2})
    damage(path, 'UPDATE group_offsets SET "offset" = 1')
    ran = penstock("topics", "verify", "--drop-damaged", "--yes")
    assert ran.code == 1
    assert "Some damage cannot be dropped:\nThe offsets of group 'app' are damaged" in ran.err
    assert penstock("groups", "delete", "app").code == 0
    assert penstock("topics", "verify").code == 0


def test_yes_without_drop_damaged_is_wrong_usage(penstock, log: Log) -> None:
    assert penstock("topics", "verify", "--yes").code == 2
