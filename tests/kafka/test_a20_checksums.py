"""Damaged segments of a broker are reported by readers and by `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus
from penstock.cli.main import main
from penstock.log import Log, RecordColumns, open_log
from penstock.log.errors import LogDamaged

pytestmark = pytest.mark.kafka


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        yield log


def test_damaged_segment_is_reported(
    penstock_broker: ClusterStatus, log: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    log.create_topic("damaged")
    for number in range(3):
        log.append("damaged", 0, RecordColumns([b"k"], [b"the value %d" % number]))
    assert log.verify("damaged", 0).records == 3
    (segment,) = Path(penstock_broker.data).glob("node-*/damaged-0/*.log")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"the value 1", b"the value 7"))
    with open_log(log.address) as reader:
        with pytest.raises(LogDamaged, match=r"'damaged' \[0\] at offset 1 are damaged"):
            list(reader.read("damaged", 0, 0))
        report = reader.verify("damaged", 0)
        assert [(each.first, each.last) for each in report.damaged] == [(1, 1)]
    assert main(["topics", "verify", "damaged", "--log", log.address]) == 1
    assert "'damaged' [0], offsets 1 to 1: " in capfd.readouterr().out
    segment.write_bytes(data)
    assert main(["topics", "verify", "damaged", "--log", log.address]) == 0
