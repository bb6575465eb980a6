"""Log shipping: messages of a thread keep their order, and a group resumes at its offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from log_shipping.processing import open_consumer, process_some
from log_shipping.shipper import LogLine, LogShipper, key_of_thread

from penstock.clients import Producer
from penstock.log import open_log


@pytest.fixture
def log(tmp_path: Path) -> str:
    address = str(tmp_path / "logs.db")
    with open_log(address) as opened:
        opened.create_topic("logs", 2)
    return address


@pytest.fixture
def logger(log: str) -> Iterator[logging.Logger]:
    logger = logging.Logger("shop")
    with Producer({"log": log}) as producer:
        logger.addHandler(LogShipper(producer, "logs", "testdata", "1.0"))
        yield logger


def test_messages_are_sent_as_json_with_the_key_of_their_thread(
    log: str, logger: logging.Logger
) -> None:
    logger.info("one")
    logger.error("two")
    logger.handlers[0]._producer.flush()  # type: ignore[attr-defined]
    with open_log(log) as opened:
        records = [
            (partition, key, msgspec.json.decode(value, type=LogLine))
            for partition in (0, 1) for batch in opened.read("logs", partition, 0)
            for key, value in zip(batch.columns().keys, batch.columns().values, strict=True)
        ]
    assert {key for _, key, _ in records} == {key_of_thread("MainThread")}
    assert {line.message for _, _, line in records} == {"one", "two"}
    assert [partition for partition, _, line in records if line.level == "ERROR"] == [0]


def test_group_resumes_behind_the_committed_records(log: str, logger: logging.Logger) -> None:
    for number in range(8):
        logger.info("message %d", number)
    logger.handlers[0]._producer.flush()  # type: ignore[attr-defined]
    lines: list[str] = []
    first = open_consumer(log, "1", "logs")
    while not lines:
        process_some(first, "1", lines.append)
    first.close()
    second = open_consumer(log, "2", "logs")
    while len(lines) < 8:
        process_some(second, "2", lines.append)
    second.close()
    values = [line.partition("Val=")[2] for line in lines]
    assert values == [f"message {number}" for number in range(8)]
