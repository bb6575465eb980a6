"""Where messages are written, and how a consumer commits them: `python -m pytest log_shipping`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from log_shipping.processing import GROUP, commit, open_consumer, process_some
from log_shipping.shipper import LogLine, LogShipper, by_level, key_of_thread, no_key
from penstock.clients import KafkaError, KafkaException, Message, Producer
from penstock.log import open_log

APP = ("testdata", "1.0")


@pytest.fixture
def log(tmp_path: Path) -> str:
    address = str(tmp_path / "logs.db")
    with open_log(address) as opened:
        opened.create_topic("logs", 2)
        opened.create_topic("userLogins", 4)
    return address


@pytest.fixture
def logger(log: str) -> Iterator[logging.Logger]:
    """Writes to `logs`; messages of a thread are in one partition, errors in partition 0."""
    logger = logging.Logger("shop")
    with Producer({"log": log, "partitioner": by_level}) as producer:
        logger.addHandler(LogShipper(producer, "logs", APP, key=key_of_thread))
        yield logger


def written(log: str, topic: str) -> list[tuple[int, bytes | None, LogLine]]:
    """Partition, key and value of all messages."""
    with open_log(log) as opened:
        return [
            (partition, key, msgspec.json.decode(value, type=LogLine))
            for partition in range(opened.topic(topic).partitions)
            for batch in opened.read(topic, partition, 0)
            for key, value in zip(batch.columns().keys, batch.columns().values, strict=True)
        ]


def test_message_has_its_context_and_the_stack_of_an_exception(
    log: str, logger: logging.Logger
) -> None:
    try:
        raise PermissionError("card refused")
    except PermissionError:
        logger.exception("no payment", extra={"mdc": {"user": "ann"}})
    logger.handlers[0].flush()
    ((_, _, line),) = written(log, "logs")
    assert (line.app_name, line.app_version, line.level) == ("testdata", "1.0", "ERROR")
    assert (line.logger, line.thread, line.message) == ("shop", "MainThread", "no payment")
    assert line.mdc == {"user": "ann"}
    assert line.stack is not None
    assert line.stack.endswith("PermissionError: card refused")


def test_errors_go_to_partition_0_and_others_by_the_key_of_their_thread(
    log: str, logger: logging.Logger
) -> None:
    record = logging.makeLogRecord({"threadName": "web-4"})
    key = key_of_thread(record)
    lines = [
        msgspec.json.encode(LogLine(*APP, level, "shop", "web-4", ""))
        for level in ("INFO", "ERROR")
    ]
    assert len(key) == 4
    assert [by_level("logs", key, line, 2) for line in lines] == [1, 0]
    logger.info("one")
    logger.error("two")
    logger.handlers[0].flush()
    keys = {key for _, key, _ in written(log, "logs")}
    assert keys == {key_of_thread(logging.makeLogRecord({"threadName": "MainThread"}))}


def test_messages_without_keys_go_to_the_partitions_in_turn_and_are_reported(log: str) -> None:
    delivered: list[tuple[int | None, int | None]] = []

    def report(error: object, message: Message) -> None:
        assert error is None
        delivered.append((message.partition(), message.offset()))

    logger = logging.Logger("shop")
    with Producer({"log": log}) as producer:
        logger.addHandler(LogShipper(producer, "userLogins", APP, key=no_key, on_delivery=report))
        for number in range(8):
            logger.info("login %d", number)
    assert sorted(delivered) == [(partition, offset) for partition in range(4) for offset in (0, 1)]
    assert {key for _, key, _ in written(log, "userLogins")} == {None}


def test_consumer_can_start_at_an_offset(log: str, logger: logging.Logger) -> None:
    for number in range(8):
        logger.info("message %d", number)
    logger.handlers[0].flush()
    lines: list[str] = []
    with open_consumer(log, "1", "logs", start=6) as consumer:
        while len(lines) < 2:
            process_some(consumer, "1", lines.append)
    assert [line.partition("Val=")[2] for line in lines] == ["message 6", "message 7"]


def test_commit_during_a_rebalance_is_left_to_a_later_one(
    log: str, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger.info("one")
    logger.handlers[0].flush()
    read: list[Message] = []
    codes = [KafkaError.ILLEGAL_GENERATION, KafkaError._TIMED_OUT]

    def reject(**settings: object) -> None:
        raise KafkaException(KafkaError(codes.pop(0)))

    with open_consumer(log, "1", "logs") as consumer:
        while not read:
            read = process_some(consumer, "1", print)
        with monkeypatch.context() as patched:
            patched.setattr(consumer, "commit", reject)
            commit(consumer, read)
            with pytest.raises(KafkaException):
                commit(consumer, read)
        assert codes == []
        commit(consumer, read)
    with open_log(log) as opened:
        assert [each.offset for each in opened.committed(GROUP).values()] == [1]
