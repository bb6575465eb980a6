"""Damage of the files in which the log on Kafka stages records is reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from penstock.log import RecordColumns
from penstock.log.errors import LogDamaged
from penstock.log.kafka.encoding import check_columns
from penstock.log.kafka.staging import StagingDirectory


def test_every_flipped_bit_of_a_staged_file_is_noticed(tmp_path: Path) -> None:
    staging = StagingDirectory(tmp_path)
    columns = RecordColumns([b"k"] * 50, [b"%d" % n for n in range(50)], [1] * 50)
    (staged,) = staging.stage(check_columns(columns))
    (path,) = tmp_path.iterdir()
    original = path.read_bytes()
    assert [list(piece.values) for piece in staging.read(staged)] == [columns.values]
    rng = random.Random(1)
    for _ in range(200):
        damaged = bytearray(original)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(LogDamaged, match="staged records"):
            list(staging.read(staged))
