from __future__ import annotations

import logging

import pytest

from penstock.log.kafka.client.settings import ClientSettings, KafkaOptions


@pytest.mark.parametrize(
    ("said", "logged"),
    [(logging.CRITICAL, logging.INFO), (logging.ERROR, logging.INFO),
     (logging.WARNING, logging.INFO), (logging.INFO, logging.INFO),
     (logging.DEBUG, logging.DEBUG)],
)
def test_what_a_client_mends_by_itself_is_no_warning(
    said: int, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "penstock.kafka")
    settings = ClientSettings("localhost:9092", KafkaOptions())
    loading = "Coordinator load in progress: retrying"
    # As confluent-kafka calls it.
    settings.producer(16_384)["logger"].log(said, "%s [%s] %s", "GETPID", "penstock#1", loading)
    (line,) = caplog.records
    assert (line.levelno, line.getMessage()) == (logged, f"GETPID [penstock#1] {loading}")
