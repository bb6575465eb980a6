"""Test tiers, and the distribution of the tests over processes.

Each test belongs to one tier, by its markers:

    make test              none of the following
    make test-rest         `full`
    make test-exhaustive   `exhaustive`
    make faults            `soak`

A test that starts Spark or a broker is `full` unless it is marked `smoke`.

With `-n N --dist loadscope` the tests run in N processes. The tests that share a Spark session
run in one of them, so do those that share a broker; other tests of one file run together. Long
scopes start first.
"""

from __future__ import annotations

import functools
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent

# No deadline: an example may take long on a busy machine.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell started pytest in the background. Child processes must react to ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def scope_of_file(file: str) -> str:
    if file.startswith("tests/engine/spark/"):
        return "spark"
    text = (ROOT / file).read_text(encoding="utf-8")
    return "broker" if "penstock_broker" in text else file


def scope_of(nodeid: str) -> str:
    """The scope of a test: tests of one scope run in one process, one after the other."""
    file, _, name = nodeid.partition("::")
    if "[kafka" in name:
        return "broker"
    if file.startswith("tests/conformance/"):
        # The ids of cases start with the name of their file: "random-plain:...".
        return f"{file}::{name.partition(':')[0]}"
    if file.startswith("tests/faults/test_engine"):
        return nodeid
    return scope_of_file(file)


def start_order(item: pytest.Item) -> int:
    scope = scope_of(item.nodeid)
    if scope in {"broker", "spark"}:
        return 0
    return 1 if item.get_closest_marker("slow") else 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        markers = {mark.name for mark in item.iter_markers()}
        if markers & {"spark", "kafka"} and "smoke" not in markers:
            item.add_marker(pytest.mark.full)
    if hasattr(config, "workerinput"):
        items.sort(key=start_order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class SharedServices(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    # The order of the scopes is that of the items, see `start_order`.
    config.option.loadscopereorder = False
    return SharedServices(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """Captured output is sent to another process as UTF-8: surrogates must be escaped."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def restored_loggers() -> Iterator[None]:
    """Restore what a test changes: later tests of the process read log lines, too."""
    loggers = [logging.getLogger(), logging.getLogger("penstock")]
    before = [(each.level, each.propagate, each.disabled) for each in loggers]
    yield
    for logger, (level, propagate, disabled) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled
