from __future__ import annotations

import json
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clients import TopicHandler
from penstock.clients.log_handler import java_hash
from penstock.errors import ConfigException
from penstock.log import Log

Until = Callable[..., None]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("shop.orders")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture
def add_handler(path: Path, log: Log, logger: logging.Logger) -> Callable[..., TopicHandler]:
    log.create_topic("logs", 2)

    def make(**options: Any) -> TopicHandler:
        handler = TopicHandler({"log": path, "linger.ms": 0}, "logs", **options)
        logger.addHandler(handler)
        return handler

    return make


def events(log: Log) -> list[tuple[int, bytes | None, dict[str, Any]]]:
    return [
        (partition, key, json.loads(value))
        for partition in range(2)
        for batch in log.read("logs", partition, 0)
        for key, value in zip(batch.columns().keys, batch.columns().values, strict=True)
    ]


def test_event_is_json_with_the_field_names_of_logback(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = add_handler(fields={"appName": "testdata", "appVersion": "1.0"})
    logger.info("Order %d", 7, extra={"browserHash": "XXXYXXXY0", "amount": 1.5})
    handler.flush()
    ((_, key, event),) = events(log)
    assert key is None
    assert event.pop("@timestamp").endswith("+00:00")
    assert event == {
        "level": "INFO", "logger_name": "shop.orders", "thread_name": "MainThread",
        "message": "Order 7", "appName": "testdata", "appVersion": "1.0",
        "browserHash": "XXXYXXXY0", "amount": 1.5,
    }
    assert (handler.shipped, handler.dropped) == (1, 0)


def test_timestamp_of_the_record_is_the_time_of_the_event(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = add_handler()
    record = logger.makeRecord("shop", logging.INFO, "f", 1, "m", (), None)
    record.created = 1_700_000_000.5
    logger.handle(record)
    handler.flush()
    assert next(log.read("logs", 0, 0)).columns().timestamps == [1_700_000_000_500]


def test_event_of_an_exception_has_a_stack_trace(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = add_handler()
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logger.exception("It broke")
    handler.flush()
    ((_, _, event),) = events(log)
    assert event["level"] == "ERROR"
    assert event["stack_trace"].startswith("Traceback")
    assert "ZeroDivisionError" in event["stack_trace"]


def test_events_without_a_key_use_round_robin(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = add_handler()
    for n in range(4):
        logger.info("%d", n)
    handler.flush()
    assert [(partition, event["message"]) for partition, _, event in events(log)] == [
        (0, "0"), (0, "2"), (1, "1"), (1, "3"),
    ]


def test_key_is_the_thread_the_logger_or_a_function_result(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handlers = [
        add_handler(key="thread"), add_handler(key="logger"),
        add_handler(key=lambda record: record.levelname),
    ]
    thread = threading.Thread(target=lambda: logger.info("m"), name="worker-1")
    thread.start()
    thread.join()
    for handler in handlers:
        handler.flush()
    assert {key for _, key, _ in events(log)} == {
        struct.pack(">i", java_hash("worker-1")), b"shop.orders", b"INFO",
    }


def test_java_hash_equals_string_hash_code() -> None:
    # Results of java.lang.String.hashCode.
    assert [java_hash(text) for text in ("", "a", "main", "Hello, World!", "\U0001f600")] == [
        0, 97, 3343801, 1498789909, 1772899,
    ]


def test_busy_log_does_not_block_logging(
    add_handler: Callable[..., TopicHandler], clients: Any, log: Log, logger: logging.Logger
) -> None:
    handler = add_handler(capacity=3)
    with clients.busy():
        for n in range(1_000):
            logger.info("%d", n)
    handler.flush()
    assert handler.shipped + handler.dropped == 1_000
    assert handler.dropped > 0
    assert len(events(log)) == handler.shipped


def test_events_are_dropped_and_counted_without_a_log(
    tmp_path: Path, logger: logging.Logger, until: Until
) -> None:
    handler = TopicHandler({"log": tmp_path / "none" / "x.db"}, "logs", close_timeout=0.5)
    logger.addHandler(handler)
    logger.info("lost")
    until(lambda: handler.dropped == 1)
    assert "does not exist" in str(handler.last_error)
    handler.close()


def test_events_of_an_unknown_topic_are_dropped_and_counted(
    path: Path, log: Log, logger: logging.Logger, until: Until
) -> None:
    handler = TopicHandler({"log": path}, "nowhere")
    logger.addHandler(handler)
    logger.info("lost")
    until(lambda: handler.dropped == 1)
    assert "Topic 'nowhere' does not exist" in str(handler.last_error)


def test_events_that_cannot_be_encoded_are_dropped_and_counted(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = add_handler(key=lambda record: record.nothing)
    logger.info("lost")
    assert isinstance(handler.last_error, AttributeError)
    handler = add_handler()
    handler.handle(logger.makeRecord("shop", logging.INFO, "f", 1, "%d", ("text",), None))
    assert isinstance(handler.last_error, TypeError)
    assert handler.dropped == 1


def test_values_without_json_type_become_strings(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = add_handler()
    logger.info("m", extra={"where": Path("a/b"), "why": ValueError("x")})
    handler.flush()
    ((_, _, event),) = events(log)
    assert (event["where"], event["why"]) == ("a/b", "x")


def test_events_of_the_clients_are_not_sent(
    add_handler: Callable[..., TopicHandler], log: Log
) -> None:
    handler = add_handler()
    own = logging.getLogger("penstock.clients.producer.sender")
    own.addHandler(handler)
    try:
        own.warning("about shipping")
    finally:
        own.removeHandler(handler)
    handler.flush()
    assert events(log) == []


def test_close_sends_queued_events_and_drops_later_ones(
    add_handler: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = add_handler()
    for _ in range(100):
        logger.info("m")
    handler.close()
    assert len(events(log)) == 100
    logger.info("too late")
    assert handler.dropped == 1
    handler.close()


def test_unknown_key_option_raises(path: Path) -> None:
    with pytest.raises(ConfigException, match="none, thread, logger"):
        TopicHandler({"log": path}, "logs", key="colour")
