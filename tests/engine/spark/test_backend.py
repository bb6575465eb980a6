"""The SparkContext of an application: the user's, or one that penstock creates."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from engine.harness import config_of
from penstock import ConfigException
from penstock.engine.spark import backend as module
from penstock.engine.spark.backend import PARALLELISM, SparkBackend, open_backend


def test_object_that_is_not_a_session_is_rejected() -> None:
    with pytest.raises(TypeError, match="takes a SparkSession or a SparkContext, not str"):
        open_backend(config_of(), spark="local[2]")


def test_stopped_session_is_rejected() -> None:
    context = SparkContext.__new__(SparkContext)
    context._jsc = None
    for spark in (context, SimpleNamespace(sparkContext=context)):
        with pytest.raises(ConfigException, match=r"spark= is stopped\. Create a new session"):
            open_backend(config_of(), spark=spark)


def dynamic_allocation(**settings: str) -> SparkBackend:
    """A backend whose context has these settings and two slots."""
    given = {f"spark.{name.replace('__', '.')}": value for name, value in settings.items()}
    conf = SimpleNamespace(get=lambda name, default=None: given.get(name, default))
    return SparkBackend(SimpleNamespace(getConf=lambda: conf), owned=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "lanes"),
    [
        ({}, 2),
        ({"dynamicAllocation__enabled": "true"}, sys.maxsize),
        (
            {
                "dynamicAllocation__enabled": "true", "dynamicAllocation__maxExecutors": "3",
                "executor__cores": "2",
            }, 6,
        ),
    ],
)
def test_lanes_are_the_slots_that_exist_or_can_be_allocated(
    settings: dict[str, str], lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "task_slots", lambda context: 2)
    assert dynamic_allocation(**settings).parallelism(config_of()) == lanes


@pytest.mark.parametrize(("owned", "slots", "warns"), [
    (False, 1, True), (False, 2, False), (True, 1, False),
])
def test_lane_that_takes_the_only_slot_of_the_user_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    *, owned: bool, slots: int, warns: bool,
) -> None:
    monkeypatch.setattr(SparkBackend, "count_slots", lambda self: slots)
    backend = SparkBackend(SimpleNamespace(), owned=owned)  # type: ignore[arg-type]
    backend.warn_of_starved_jobs(config_of())
    assert ("has one slot" in caplog.text) is warns


@pytest.mark.parametrize("lanes", ["0", "many", "-1"])
def test_invalid_number_of_lanes_is_rejected(lanes: str) -> None:
    backend = SparkBackend(SimpleNamespace(), owned=False)  # type: ignore[arg-type]
    assert backend.parallelism(config_of(extra={PARALLELISM: "7"})) == 7
    with pytest.raises(ConfigException, match=f"not '{lanes}'"):
        backend.parallelism(config_of(extra={PARALLELISM: lanes}))


@pytest.mark.spark
def test_session_of_the_user_keeps_running_after_close(backend: SparkBackend) -> None:
    opened = open_backend(config_of(), spark=backend.context)
    assert opened.context is backend.context
    opened.close()
    assert backend.context.parallelize(range(3), 1).count() == 3


@pytest.mark.spark
def test_session_with_tcp_sockets_logs_a_warning(
    backend: SparkBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "UNIX_SOCKETS", "spark.no.such.setting")
    with caplog.at_level(logging.WARNING):
        open_backend(config_of(), spark=backend.context)
    assert "40 ms slower" in caplog.text


@pytest.mark.spark
def test_older_spark_is_rejected(
    backend: SparkBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OLDEST_SPARK", (99, 1))
    with pytest.raises(ConfigException, match=r"needs Spark 99\.1 or newer"):
        open_backend(config_of(), spark=backend.context)


@pytest.mark.spark
def test_applications_of_a_process_share_one_context(backend: SparkBackend) -> None:
    other = open_backend(config_of("other"), master="local[2]")
    assert other.context is backend.context
    other.close()
    other.close()
    assert backend.context.parallelize(range(3), 1).count() == 3
    with pytest.raises(ConfigException, match=r"runs Spark on 'local\[2\]'"):
        open_backend(config_of("third"), master="local[1]")


#: Receives ctrl-C during a batch, finishes the batch, and prints its result.
_INTERRUPTED = """
    import signal, sys, time
    sys.path[:0] = {path!r}
    from pathlib import Path
    from engine.harness import config_of
    from engine.spark.application import SparkApplication
    from penstock import StreamsBuilder
    from penstock.engine.spark.backend import open_backend

    folder = Path({folder!r})
    interrupts = []
    signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))

    def slow(value):
        (folder / "began").touch()
        while not (folder / "continue").exists():
            time.sleep(0.02)
        print("printed by a worker", file=sys.stderr, flush=True)
        return value.upper()

    builder = StreamsBuilder()
    builder.stream("in").map_values(slow).to("out")
    backend = open_backend(config_of(), master="local[1]")
    app = SparkApplication(backend, builder.build(), folder, {{"in": 1, "out": 1}})
    app.send("in", ("k", "a", 1))
    app.run_batch()
    print(app.texts("out"), len(interrupts))
    app.close()
    backend.close()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_in_a_terminal_does_not_reach_the_running_batch(tmp_path: Path) -> None:
    tests = str(Path(__file__).resolve().parents[2])
    code = textwrap.dedent(_INTERRUPTED.format(path=[tests], folder=str(tmp_path)))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:
        try:
            _wait_until(lambda: (tmp_path / "began").exists() or process.poll() is not None)
            os.killpg(process.pid, signal.SIGINT)
            (tmp_path / "continue").touch()
            output, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (output, process.returncode) == ("[('k', 'A', 1)] 1\n", 0)
    # Spark's own messages at start and shutdown are hidden.
    assert errors == "printed by a worker\n"


def _wait_until(condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "The condition was not met in time."
        time.sleep(0.02)
