"""What holds for all tests.

Generated examples may take their time, on a machine that is busy. With `-n 2 --dist loadscope` the
tests run in two processes: those that need Spark in one of them, so that there is one session,
those that need a broker in one, and of the others those of a file together.
"""

from __future__ import annotations

import functools
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has started this in the background. Processes that tests start are to hear ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def scope_of(file: str) -> str:
    """Which tests of which files are to run in one process."""
    if file.startswith("tests/kafka/") or "/test_kafka" in file:
        return "broker"
    return "spark" if "mark.spark" in (ROOT / file).read_text(encoding="utf-8") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class ByNeed(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "broker" if "[kafka" in nodeid else scope_of(nodeid.split("::", 1)[0])

    return ByNeed(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """What a test has logged or printed goes to another process as UTF-8, whatever it was."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report
