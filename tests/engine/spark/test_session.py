"""Where jobs run: the user's session as it is, or one of penstock's own."""

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
from penstock.engine.spark import backend as session
from penstock.engine.spark.backend import (
    SparkBackend,
    check_log,
    default_master,
    is_on_loopback,
    is_one_host,
    open_backend,
    own_settings,
)


@pytest.mark.parametrize(("master", "here"), [
    ("local", True), ("local[2]", True), ("local[*]", True), ("local[2,4]", True),
    ("local-cluster[2,1,1024]", True), ("spark://host:7077", False), ("yarn", False),
    ("k8s://https://host:443", False), ("spark://127.0.0.1:7077", True),
    ("spark://localhost:7077", True), ("spark://127.0.0.1:7077,host:7077", False),
    ("spark://127.0.0.1.host:7077", False),
])
def test_an_embedded_log_wants_workers_of_this_machine(master: str, here: bool) -> None:
    assert is_on_loopback(master) == here
    assert is_one_host(master) == (here and master.startswith("local"))
    check_log(config_of(log="kafka://host:9092"), master)
    if here:
        check_log(config_of(log="a.db"), master)
    else:
        with pytest.raises(ConfigException, match=r"a\.db cannot be used.*kafka://"):
            check_log(config_of(log="a.db"), master)


def test_the_master_has_as_many_cores_as_there_are_stream_threads() -> None:
    assert default_master(config_of(num_stream_threads=3)) == "local[3]"
    assert default_master(config_of()) == f"local[{len(os.sched_getaffinity(0))}]"


def test_a_cluster_that_only_this_machine_sees_finds_the_driver_on_loopback() -> None:
    for master, address in (("spark://127.0.0.1:7077", "127.0.0.1"), ("spark://host:7077", None)):
        conf = own_settings(config_of(), master)
        assert conf.get("spark.driver.host") == conf.get("spark.driver.bindAddress") == address


def test_settings_of_the_user_win_over_our_own() -> None:
    conf = own_settings(
        config_of(extra={"spark.ui.enabled": "true", "spark.executor.memory": "3g"}), "local[2]"
    )
    assert conf.get("spark.ui.enabled") == "true"
    assert conf.get("spark.executor.memory") == "3g"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.master") == "local[2,4]"
    assert conf.get("spark.app.name") == "app"


def test_on_a_cluster_the_driver_is_not_bound_to_this_machine() -> None:
    conf = own_settings(config_of(), "spark://host:7077")
    assert conf.get("spark.driver.bindAddress") is None
    assert conf.get("spark.master") == "spark://host:7077"


def test_something_that_is_no_session_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a SparkSession or a SparkContext, not str"):
        open_backend(config_of(), spark="local[2]")


def test_a_session_that_is_stopped_is_refused() -> None:
    context = SparkContext.__new__(SparkContext)
    context._jsc = None
    for spark in (context, SimpleNamespace(sparkContext=context)):
        with pytest.raises(ConfigException, match=r"spark= is stopped\. Make a new session"):
            open_backend(config_of(), spark=spark)


@pytest.mark.parametrize("lanes", ["0", "many", "-1"])
def test_a_number_of_lanes_that_cannot_be_is_refused(lanes: str) -> None:
    place = SparkBackend(SimpleNamespace(defaultParallelism=2), owned=False)  # type: ignore[arg-type]
    assert place.parallelism(config_of()) == 2
    assert place.parallelism(config_of(extra={session.PARALLELISM: "7"})) == 7
    with pytest.raises(ConfigException, match=f"not '{lanes}'"):
        place.parallelism(config_of(extra={session.PARALLELISM: lanes}))


@pytest.mark.spark
def test_a_session_of_the_user_s_is_used_and_left_running(place: SparkBackend) -> None:
    mine = open_backend(config_of(), spark=place.context)
    assert mine.context is place.context
    mine.close()
    assert place.context.parallelize(range(3), 1).count() == 3


@pytest.mark.spark
def test_an_old_or_slow_session_is_told(
    place: SparkBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "SOCKETS", "spark.no.such.setting")
    with caplog.at_level(logging.WARNING):
        open_backend(config_of(), spark=place.context)
    assert "40 ms slower" in caplog.text
    monkeypatch.setattr(session, "OLDEST_SPARK", (99, 1))
    with pytest.raises(ConfigException, match=r"needs Spark 99\.1 or newer"):
        open_backend(config_of(), spark=place.context)


@pytest.mark.spark
def test_applications_of_a_process_share_one_spark(place: SparkBackend) -> None:
    other = open_backend(config_of("other"), master="local[2]")
    assert other.context is place.context
    other.close()
    other.close()
    assert place.context.parallelize(range(3), 1).count() == 3
    with pytest.raises(ConfigException, match=r"runs Spark on 'local\[2,4\]'"):
        open_backend(config_of("third"), master="local[1]")


#: A batch is running when ctrl-C comes; it is finished, and its result is there.
_INTERRUPTED = """
    import signal, sys, time
    sys.path[:0] = {path!r}
    from pathlib import Path
    from engine.harness import config_of
    from engine.spark.application import SparkApplication
    from penstock import StreamsBuilder
    from penstock.engine.spark.backend import open_backend

    folder = Path({folder!r})
    asked = []
    signal.signal(signal.SIGINT, lambda *_: asked.append(1))

    def slow(value):
        (folder / "began").touch()
        while not (folder / "go-on").exists():
            time.sleep(0.02)
        print("said by a worker", flush=True)
        return value.upper()

    builder = StreamsBuilder()
    builder.stream("in").map_values(slow).to("out")
    place = open_backend(config_of(), master="local[1]")
    app = SparkApplication(place, builder.build(), folder, {{"in": 1, "out": 1}})
    app.send("in", ("k", "a", 1))
    app.run_batch()
    print(app.texts("out"), len(asked))
    app.close()
    place.close()
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
            _until(lambda: (tmp_path / "began").exists() or process.poll() is not None)
            os.killpg(process.pid, signal.SIGINT)
            (tmp_path / "go-on").touch()
            said, complained = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (said, process.returncode) == ("[('k', 'A', 1)] 1\n", 0)
    # What Spark says when it starts and stops is not shown, what user code prints is.
    assert complained == "said by a worker\n"


def _until(condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "It did not happen in time."
        time.sleep(0.02)
