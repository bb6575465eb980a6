"""The result of a warm-up is used if it fits, and closed otherwise."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from penstock import ConfigException, StreamsConfig
from penstock.engine.standby.warmup import WarmCompute, WarmUp

CONFIG = StreamsConfig(application_id="app")


class FakeCompute:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def warm_up_for(graph: str, compute: Any) -> WarmUp:
    return WarmUp(lambda: WarmCompute(graph, CONFIG, compute))  # type: ignore[arg-type]


def test_take_waits_for_the_result_and_returns_it_once() -> None:
    compute, proceed = FakeCompute(), threading.Event()

    def run() -> WarmCompute:
        assert proceed.wait(180)
        return WarmCompute("graph", CONFIG, compute)  # type: ignore[arg-type]

    warm_up = WarmUp(run)
    threading.Timer(0.01, proceed.set).start()
    assert warm_up.take("graph", CONFIG) is compute  # type: ignore[arg-type,comparison-overlap]
    assert warm_up.take("graph", CONFIG) is None  # type: ignore[arg-type]
    warm_up.close()
    assert compute.closed == 0


@pytest.mark.parametrize(("graph", "config"), [
    ("another", CONFIG), ("graph", CONFIG.with_(num_stream_threads=3)),
])
def test_result_that_does_not_fit_is_closed(graph: Any, config: StreamsConfig) -> None:
    compute = FakeCompute()
    assert warm_up_for("graph", compute).take(graph, config) is None
    assert compute.closed == 1


def test_unused_result_is_closed() -> None:
    compute = FakeCompute()
    warm_up_for("graph", compute).close()
    assert compute.closed == 1


def failing(error: Exception) -> Any:
    def run() -> None:
        raise error

    return run


def test_configuration_error_is_reported_before_failover() -> None:
    warm_up = WarmUp(failing(ConfigException("no Java")))
    warm_up.close()
    with pytest.raises(ConfigException, match="no Java"):
        warm_up.check()


def test_other_errors_are_only_logged(
    caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    warm_up = WarmUp(failing(OSError("no room")))
    assert warm_up.take("graph", CONFIG) is None  # type: ignore[arg-type]
    warm_up.check()
    assert "not ready to take over yet: no room" in caplog.text
