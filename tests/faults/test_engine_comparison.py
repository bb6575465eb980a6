"""The comparison of `engine_app.py` notices what a crash could do to an output or a store."""

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
    run_undisturbed,
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
def undisturbed(tmp_path_factory: pytest.TempPathFactory, waves: Waves) -> str:
    return run_undisturbed(tmp_path_factory.mktemp("right"), waves)


@pytest.fixture
def tampered(undisturbed: str, tmp_path: Path) -> Iterator[Log]:
    copy = tmp_path / "copy.db"
    shutil.copy(undisturbed, copy)
    with open_log(copy) as log:
        yield log


def test_other_batches_give_an_equal_run(
    undisturbed: str, waves: Waves, tmp_path: Path
) -> None:
    address = run_undisturbed(
        tmp_path, waves, extra={"penstock.batch.max.records": "7"}
    )
    with open_log(address) as log, open_log(undisturbed) as right:
        records = verify(log, right, waves)
    assert min(records.values()) > 50


def once_more(topic: str) -> Tamper:
    """The last record of a partition is there twice."""

    def tamper(log: Log) -> None:
        key, value, time = list(read(log, topic))[-1]
        log.append(topic, log.topic(topic).partitions - 1, RecordColumns([key], [value], [time]))

    return tamper


def other_sum(log: Log) -> None:
    """One order lost and another one counted for it: the counts are right."""
    key, value, time = list(read(log, "product-totals"))[-1]
    assert value is not None
    total = json.loads(value)
    wrong = json.dumps({"count": total["count"] + 1, "sum": total["sum"] + 1}).encode()
    log.append("product-totals", 1, RecordColumns([key], [wrong], [time]))


def other_row(log: Log) -> None:
    """A store that holds something else than it should."""
    topic = f"{APPLICATION_ID}-baskets-changelog"
    key, _, time = next(read(log, topic))
    log.append(topic, 0, RecordColumns([key], [b"{}"], [time]))


@pytest.mark.parametrize("tamper", [
    *(pytest.param(once_more(topic), id=f"{topic} twice")
      for topic in ("enriched", "totals", "windows", "priced", "product-totals")),
    pytest.param(other_sum, id="another sum"), pytest.param(other_row, id="another row"),
])
def test_what_is_wrong_is_noticed(
    tampered: Log, undisturbed: str, waves: Waves, tamper: Tamper
) -> None:
    tamper(tampered)
    with open_log(undisturbed) as right, pytest.raises(AssertionError):
        verify(tampered, right, waves)


def test_what_is_lost_is_noticed(undisturbed: str, waves: Waves, tmp_path: Path) -> None:
    """An order that was never processed."""
    without = [[list(piece) for piece in wave] for wave in waves]
    at = next(n for n, row in enumerate(without[2][3]) if row[0] == "orders")
    del without[2][3][at]
    address = run_undisturbed(tmp_path, without)
    with open_log(address) as log, open_log(undisturbed) as right, pytest.raises(AssertionError):
        verify(log, right, waves)
