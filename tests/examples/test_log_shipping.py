"""Log shipping: where messages are written, and who processes them when a consumer fails."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from log_shipping.processing import GROUP, commit, open_consumer, process_some
from log_shipping.shipper import LogLine, LogShipper, by_level, key_of_thread, no_key

from engine.instances import until
from examples.conftest import EXAMPLES
from penstock.clients import Consumer, KafkaError, KafkaException, Message, Producer
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
        until(lambda: process_some(consumer, "1", lines.append) and len(lines) == 2)
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
        until(lambda: read.extend(process_some(consumer, "1", print)) or read)
        with monkeypatch.context() as patched:
            patched.setattr(consumer, "commit", reject)
            commit(consumer, read)
            with pytest.raises(KafkaException):
                commit(consumer, read)
        assert codes == []
        commit(consumer, read)
    with open_log(log) as opened:
        assert [each.offset for each in opened.committed(GROUP).values()] == [1]


#: Commits five records of partition 0, processes five more, and waits for its end.
FAILING = """
import sys
sys.path.insert(0, sys.argv[1])
from log_shipping.processing import commit, open_consumer, process_some

consumer = open_consumer(sys.argv[2], "1", "logs", session_ms=1500)
done = 0
while True:
    messages = process_some(consumer, "1", print)
    done += len(messages)
    if done <= 5:
        commit(consumer, messages)
    print(f"assigned {len(consumer.assignment())}", flush=True)
"""


def test_idle_consumer_takes_over_from_a_killed_one(log: str, logger: logging.Logger) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FAILING, str(EXAMPLES), log], stdout=subprocess.PIPE, text=True
    )
    consumers: list[Consumer] = []
    try:
        assert process.stdout is not None
        until(lambda: "assigned 2" in process.stdout.readline())
        consumers += [open_consumer(log, name, "logs", session_ms=60_000) for name in "23"]

        def owned() -> list[int]:
            for consumer in consumers:
                consumer.consume(timeout=0.05)
            with open_log(log) as opened:
                members = opened.group(GROUP).members
            return sorted(len(member.partitions) for member in members)

        until(lambda: owned() == [0, 1, 1])
        (idle,) = [consumer for consumer in consumers if not consumer.assignment()]
        (taken,) = [
            number for number in (0, 1)
            if not any(each.partition == number for consumer in consumers
                       for each in consumer.assignment())
        ]
        with Producer({"log": log}) as producer:
            for number in range(10):
                line = LogLine(*APP, "INFO", "shop", "main", f"message {number}")
                producer.produce("logs", msgspec.json.encode(line), partition=taken)
        until(lambda: "Offset=9" in process.stdout.readline())
        process.kill()
        lines: list[str] = []
        until(lambda: [
            commit(consumer, process_some(consumer, "3", lines.append)) for consumer in consumers
        ] and len(lines) == 5)
        assert [each.partition for each in idle.assignment()] == [taken]
        assert [line.partition("Val=")[2] for line in lines] == [
            f"message {number}" for number in range(5, 10)
        ]
    finally:
        process.kill()
        process.communicate()
        for consumer in consumers:
            consumer.close()
