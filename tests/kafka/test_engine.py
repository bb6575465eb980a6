"""The engine on a real broker: the application of the crash tests gives what it gives elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from faults.engine_app import (
    PIECES,
    Input,
    Row,
    append,
    config,
    is_drained,
    make_topics,
    run_undisturbed,
    start_inline,
    topology,
    verify,
)
from kafka.cluster import swept
from penstock import Streams
from penstock.broker.cluster import Status
from penstock.engine.steps import Step
from penstock.log import Log, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

STEPS: tuple[Step, ...] = (
    "planned", "computing", "before-commit", "in-commit", "after-commit", "applying", "restoring",
)
PATIENCE_S = 240.0
TESTS = Path(__file__).parent.parent


@pytest.fixture
def address(penstock_broker: Status) -> str:
    return swept(penstock_broker.address)


@pytest.fixture
def log(address: str) -> Iterator[Log]:
    with open_log(address) as log:
        make_topics(log)
        yield log


def waves(count: int) -> list[list[list[Row]]]:
    source = Input(seed=5)
    made = [list(islice(source.wave(number), PIECES)) for number in range(1, count + 1)]
    return [[source.first()], *made, [source.every_key(count + 1)]]


def compare(log: Log, given: list[list[list[Row]]], directory: Path) -> None:
    with open_log(run_undisturbed(directory / "undisturbed", given)) as right:
        verify(log, right, given)


@pytest.mark.parametrize(
    ("master", "guarantee"),
    [
        ("inline", "exactly_once"), ("inline", "at_least_once"),
        pytest.param(
            "local[2]", "exactly_once", marks=[pytest.mark.spark, pytest.mark.soak]
        ),
    ],
)
def test_on_kafka_the_application_answers_as_on_the_embedded_log(
    log: Log, address: str, tmp_path: Path, master: str, guarantee: str
) -> None:
    given = waves(1)
    settings = config(address, str(tmp_path / "state"), processing_guarantee=guarantee)
    streams = (
        Streams(topology(), settings, compute=start_inline) if master == "inline"
        else Streams(topology(), settings, master=master)
    )
    with streams:
        for wave in given:
            for rows in wave:
                append(log, rows)
            deadline = time.monotonic() + PATIENCE_S
            while not is_drained(log):
                assert time.monotonic() < deadline
                streams.run_until_caught_up(timeout=PATIENCE_S)
    compare(log, given, tmp_path)


@pytest.mark.soak
def test_a_driver_killed_in_every_step_loses_and_doubles_nothing_on_kafka(
    log: Log, address: str, tmp_path: Path
) -> None:
    given = waves(len(STEPS))
    driver: subprocess.Popen[bytes] | None = None
    killed: list[Step] = []
    try:
        for wave, step in zip(given, (None, *STEPS, None), strict=True):
            driver = _with_order(driver, step, address, tmp_path)
            deadline = time.monotonic() + PATIENCE_S
            for rows in wave:
                append(log, rows)
            while not is_drained(log):
                assert time.monotonic() < deadline, f"the wave with {step} did not end"
                if driver.poll() is not None:
                    assert driver.returncode == -signal.SIGKILL
                    assert step is not None
                    killed.append(step)
                    driver = _start(address, tmp_path, None)
                time.sleep(0.05)
    finally:
        if driver is not None:
            driver.kill()
            driver.wait()
    # A driver that dies behind the commit may leave nothing to be done, so its end is seen later.
    assert set(STEPS) - {"after-commit"} <= set(killed)
    compare(log, given, tmp_path)


def _with_order(
    driver: subprocess.Popen[bytes] | None, step: Step | None, address: str, directory: Path
) -> subprocess.Popen[bytes]:
    """A driver that will die in the step; the one before it ends."""
    if driver is not None:
        driver.terminate()
        driver.wait(PATIENCE_S)
    if step == "restoring":
        shutil.rmtree(directory / "state")
    return _start(address, directory, step)


def _start(address: str, directory: Path, step: Step | None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    if step is not None:
        environment["PENSTOCK_CRASH_AT"] = f"{step}:1:{directory / step}"
    return subprocess.Popen(
        [sys.executable, "-m", "faults.engine_app", "--log", address,
         "--state", str(directory / "state")],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
