"""What is ready is used if it fits, and put away otherwise."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from penstock import ConfigException, StreamsConfig
from penstock.engine.standby.warmup import WarmCompute, WarmUp

CONFIG = StreamsConfig(application_id="app")


class Computing:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def ready_for(graph: str, compute: Any) -> WarmUp:
    return WarmUp(lambda: WarmCompute(graph, CONFIG, compute))  # type: ignore[arg-type]


def test_what_is_ready_is_waited_for_and_taken_once() -> None:
    compute, go_on = Computing(), threading.Event()

    def get_ready() -> WarmCompute:
        assert go_on.wait(60)
        return WarmCompute("graph", CONFIG, compute)  # type: ignore[arg-type]

    readiness = WarmUp(get_ready)
    threading.Timer(0.01, go_on.set).start()
    assert readiness.take("graph", CONFIG) is compute  # type: ignore[arg-type,comparison-overlap]
    assert readiness.take("graph", CONFIG) is None  # type: ignore[arg-type]
    readiness.close()
    assert compute.closed == 0


@pytest.mark.parametrize(("graph", "config"), [
    ("another", CONFIG), ("graph", CONFIG.with_(num_stream_threads=3)),
])
def test_what_was_made_for_something_else_is_put_away(graph: Any, config: StreamsConfig) -> None:
    compute = Computing()
    assert ready_for("graph", compute).take(graph, config) is None
    assert compute.closed == 1


def test_what_nobody_takes_is_put_away() -> None:
    compute = Computing()
    ready_for("graph", compute).close()
    assert compute.closed == 1


def failing(error: Exception) -> Any:
    def get_ready() -> None:
        raise error

    return get_ready


def test_a_setting_that_is_wrong_is_told_before_the_instance_is_needed() -> None:
    readiness = WarmUp(failing(ConfigException("no Java")))
    readiness.close()
    with pytest.raises(ConfigException, match="no Java"):
        readiness.check()


def test_other_trouble_waits_until_the_instance_takes_over(
    caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    readiness = WarmUp(failing(OSError("no room")))
    assert readiness.take("graph", CONFIG) is None  # type: ignore[arg-type]
    readiness.check()
    assert "not ready to take over yet: no room" in caplog.text
