"""Spark starts in a thread while the instance opens its log and acquires the lease."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import ConfigException, StreamsConfig
from penstock.engine import spark
from penstock.engine.compute_provider import ComputeProvider

CONFIG = StreamsConfig(application_id="words", log="words.db")


class FakeBackend(SimpleNamespace):
    """A backend that records what is done with it."""

    def __init__(self) -> None:
        super().__init__(is_lost=False, calls=[], on_warm_up=lambda: None)

    def warm_up_workers(self) -> None:
        self.calls.append("warm up")
        self.on_warm_up()

    def close(self) -> None:
        self.calls.append("close")


def provider_on(monkeypatch: pytest.MonkeyPatch, open_backend: Any) -> ComputeProvider:
    monkeypatch.setattr(spark, "open_backend", lambda config, **given: open_backend())
    return ComputeProvider(master="local[2]")


def test_backend_is_opened_once_and_its_workers_are_warmed_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released, warmed_up = threading.Event(), threading.Event()
    opened: list[FakeBackend] = []

    def open_backend() -> FakeBackend:
        assert released.wait(30)
        opened.append(FakeBackend())
        opened[-1].on_warm_up = warmed_up.set
        return opened[-1]

    provider = provider_on(monkeypatch, open_backend)
    provider.open_early(CONFIG)
    provider.open_early(CONFIG)
    released.set()
    assert provider.open_backend(CONFIG) is opened[0]
    assert warmed_up.wait(30)
    provider.close()
    assert len(opened) == 1
    assert opened[0].calls == ["warm up", "close"]


def test_error_of_the_early_start_is_reported_by_the_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backends: list[FakeBackend | Exception] = [ConfigException("No Java."), FakeBackend()]

    def open_backend() -> FakeBackend:
        found = backends.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    provider = provider_on(monkeypatch, open_backend)
    provider.open_early(CONFIG)
    while len(backends) == 2:
        threading.Event().wait(0.001)
    with pytest.raises(ConfigException, match=r"No Java\."):
        provider.open_backend(CONFIG)
    # The next attempt, after REPLACE_THREAD, opens another one.
    assert isinstance(provider.open_backend(CONFIG), FakeBackend)
    provider.close()


def test_workers_of_a_closing_instance_are_not_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()
    has_closed = threading.Event()

    def open_backend() -> FakeBackend:
        assert has_closed.wait(30)
        return backend

    provider = provider_on(monkeypatch, open_backend)
    provider.open_early(CONFIG)
    closing = threading.Thread(target=provider.close)
    closing.start()
    while not provider._is_closing:
        threading.Event().wait(0.001)
    has_closed.set()
    closing.join(30)
    assert backend.calls == ["close"]


def test_nothing_is_started_early_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "open_backend", lambda config, **given: pytest.fail("opened"))
    provider = ComputeProvider(master="inline")
    provider.open_early(CONFIG)
    provider.close()
