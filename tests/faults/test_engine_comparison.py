"""The comparison of `engine_app.py` detects wrong outputs and stores."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.engine_app import (
    APPLICATION_ID,
    PIECES,
    Input,
    Row,
    read,
    run_reference,
    verify,
)
from penstock.log import Log, RecordColumns, open_log

Waves = list[list[list[Row]]]
Tamper = Callable[[Log], None]


@pytest.fixture(scope="module")
def waves() -> Waves:
    source = Input(8)
    some = [list(itertools.islice(source.wave(number), PIECES)) for number in range(1, 5)]
    return [[source.first()], *some, [source.every_key(5)]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, waves: Waves) -> str:
    return run_reference(tmp_path_factory.mktemp("right"), waves)


@pytest.fixture
def tampered(reference: str, tmp_path: Path) -> Iterator[Log]:
    copy = tmp_path / "copy.db"
    shutil.copy(reference, copy)
    with open_log(copy) as log:
        yield log


def test_results_do_not_depend_on_batch_boundaries(
    reference: str, waves: Waves, tmp_path: Path
) -> None:
    address = run_reference(
        tmp_path, waves, extra={"penstock.batch.max.records": "7"}
    )
    with open_log(address) as log, open_log(reference) as right:
        records = verify(log, right, waves)
    assert min(records.values()) > 50


def once_more(topic: str) -> Tamper:
    """Duplicate the last record of a partition."""

    def tamper(log: Log) -> None:
        key, value, time = list(read(log, topic))[-1]
        log.append(topic, log.topic(topic).partitions - 1, RecordColumns([key], [value], [time]))

    return tamper


def other_sum(log: Log) -> None:
    """Replace an order by another one: the counts stay right."""
    key, value, time = list(read(log, "product-totals"))[-1]
    assert value is not None
    total = json.loads(value)
    wrong = json.dumps({"count": total["count"] + 1, "sum": total["sum"] + 1}).encode()
    log.append("product-totals", 1, RecordColumns([key], [wrong], [time]))


def other_row(log: Log) -> None:
    """Change a row of a store."""
    topic = f"{APPLICATION_ID}-baskets-changelog"
    key, _, time = next(read(log, topic))
    log.append(topic, 0, RecordColumns([key], [b"{}"], [time]))


@pytest.mark.parametrize("tamper", [
    *(pytest.param(once_more(topic), id=f"{topic} twice")
      for topic in ("enriched", "totals", "windows", "priced", "product-totals")),
    pytest.param(other_sum, id="another sum"), pytest.param(other_row, id="another row"),
])
def test_wrong_record_is_detected(
    tampered: Log, reference: str, waves: Waves, tamper: Tamper
) -> None:
    tamper(tampered)
    with open_log(reference) as right, pytest.raises(AssertionError):
        verify(tampered, right, waves)


def test_lost_order_is_detected(reference: str, waves: Waves, tmp_path: Path) -> None:
    """The order was never processed."""
    without = [[list(piece) for piece in wave] for wave in waves]
    at = next(n for n, row in enumerate(without[2][3]) if row[0] == "orders")
    del without[2][3][at]
    address = run_reference(tmp_path, without)
    with open_log(address) as log, open_log(reference) as right, pytest.raises(AssertionError):
        verify(log, right, waves)
