from __future__ import annotations

import logging

import pytest

from penstock.log.kafka.client.settings import ClientSettings, KafkaOptions


@pytest.mark.parametrize(
    ("level", "logged"),
    [(logging.CRITICAL, logging.INFO), (logging.ERROR, logging.INFO),
     (logging.WARNING, logging.INFO), (logging.INFO, logging.INFO),
     (logging.DEBUG, logging.DEBUG)],
)
def test_lines_of_clients_are_logged_with_level_info_at_most(
    level: int, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "penstock.kafka")
    settings = ClientSettings("localhost:9092", KafkaOptions())
    message = "Coordinator load in progress: retrying"
    # As confluent-kafka calls it.
    settings.producer(16_384)["logger"].log(level, "%s [%s] %s", "GETPID", "penstock#1", message)
    (line,) = caplog.records
    assert (line.levelno, line.getMessage()) == (logged, f"GETPID [penstock#1] {message}")
