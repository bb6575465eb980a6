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
    made = logging.getLogger("shop.orders")
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)
        handler.close()
    made.setLevel(logging.NOTSET)
    made.propagate = True


@pytest.fixture
def ship(path: Path, log: Log, logger: logging.Logger) -> Callable[..., TopicHandler]:
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


def test_an_event_is_json_with_logbacks_names(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = ship(fields={"appName": "testdata", "appVersion": "1.0"})
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


def test_the_time_of_the_record_is_that_of_the_event(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = ship()
    record = logger.makeRecord("shop", logging.INFO, "f", 1, "m", (), None)
    record.created = 1_700_000_000.5
    logger.handle(record)
    handler.flush()
    assert next(log.read("logs", 0, 0)).columns().timestamps == [1_700_000_000_500]


def test_exceptions_bring_their_stack(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = ship()
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logger.exception("It broke")
    handler.flush()
    ((_, _, event),) = events(log)
    assert event["level"] == "ERROR"
    assert event["stack_trace"].startswith("Traceback")
    assert "ZeroDivisionError" in event["stack_trace"]


def test_events_without_a_key_take_turns(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = ship()
    for n in range(4):
        logger.info("%d", n)
    handler.flush()
    assert [(partition, event["message"]) for partition, _, event in events(log)] == [
        (0, "0"), (0, "2"), (1, "1"), (1, "3"),
    ]


def test_keys_by_thread_logger_or_function(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handlers = [
        ship(key="thread"), ship(key="logger"), ship(key=lambda record: record.levelname),
    ]
    thread = threading.Thread(target=lambda: logger.info("m"), name="worker-1")
    thread.start()
    thread.join()
    for handler in handlers:
        handler.flush()
    assert {key for _, key, _ in events(log)} == {
        struct.pack(">i", java_hash("worker-1")), b"shop.orders", b"INFO",
    }


def test_the_hash_is_javas() -> None:
    # Of java.lang.String.hashCode.
    assert [java_hash(text) for text in ("", "a", "main", "Hello, World!", "\U0001f600")] == [
        0, 97, 3343801, 1498789909, 1772899,
    ]


def test_a_program_goes_on_while_the_log_is_busy(
    ship: Callable[..., TopicHandler], clients: Any, log: Log, logger: logging.Logger
) -> None:
    handler = ship(capacity=3)
    with clients.busy():
        for n in range(1_000):
            logger.info("%d", n)
    handler.flush()
    assert handler.shipped + handler.dropped == 1_000
    assert handler.dropped > 0
    assert len(events(log)) == handler.shipped


def test_a_log_that_cannot_be_used_drops_and_counts(
    tmp_path: Path, logger: logging.Logger, until: Until
) -> None:
    handler = TopicHandler({"log": tmp_path / "none" / "x.db"}, "logs", close_timeout=0.5)
    logger.addHandler(handler)
    logger.info("lost")
    until(lambda: handler.dropped == 1)
    assert "does not exist" in str(handler.last_error)
    handler.close()


def test_an_unknown_topic_drops_and_counts(
    path: Path, log: Log, logger: logging.Logger, until: Until
) -> None:
    handler = TopicHandler({"log": path}, "nowhere")
    logger.addHandler(handler)
    logger.info("lost")
    until(lambda: handler.dropped == 1)
    assert "Topic 'nowhere' does not exist" in str(handler.last_error)


def test_an_event_that_cannot_be_made_drops_and_counts(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = ship(key=lambda record: record.nothing)
    logger.info("lost")
    assert isinstance(handler.last_error, AttributeError)
    handler = ship()
    handler.handle(logger.makeRecord("shop", logging.INFO, "f", 1, "%d", ("text",), None))
    assert isinstance(handler.last_error, TypeError)
    assert handler.dropped == 1


def test_values_that_json_does_not_know_become_texts(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = ship()
    logger.info("m", extra={"where": Path("a/b"), "why": ValueError("x")})
    handler.flush()
    ((_, _, event),) = events(log)
    assert (event["where"], event["why"]) == ("a/b", "x")


def test_what_the_clients_log_is_not_shipped(
    ship: Callable[..., TopicHandler], log: Log
) -> None:
    handler = ship()
    own = logging.getLogger("penstock.clients.producer.sender")
    own.addHandler(handler)
    try:
        own.warning("about shipping")
    finally:
        own.removeHandler(handler)
    handler.flush()
    assert events(log) == []


def test_closing_ships_what_waits_and_then_drops(
    ship: Callable[..., TopicHandler], log: Log, logger: logging.Logger
) -> None:
    handler = ship()
    for _ in range(100):
        logger.info("m")
    handler.close()
    assert len(events(log)) == 100
    logger.info("too late")
    assert handler.dropped == 1
    handler.close()


def test_an_unknown_kind_of_key_is_refused(path: Path) -> None:
    with pytest.raises(ConfigException, match="none, thread, logger"):
        TopicHandler({"log": path}, "logs", key="colour")
