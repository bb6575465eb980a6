"""After the JVM is killed between batches, the process can continue in another one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PREPARED = """
    import sys
    sys.path[:0] = {path!r}
    from pathlib import Path
    from pyspark import SparkContext
    from engine.harness import config_of
    from engine.spark.application import SparkApplication
    from engine.spark.test_job import mapping
    from penstock import StreamsException
    from penstock.engine.spark.backend import open_backend

    def kill(*, known=True):
        gateway, process = SparkContext._gateway, SparkContext._gateway.proc
        if not known:
            # As under spark-submit: another process has started the JVM.
            gateway.proc = None
        process.kill()
        process.wait()

    def start(backend, name):
        folder = Path({folder!r}, name)
        folder.mkdir()
        app = SparkApplication(backend, mapping(str.upper), folder, {{"in": 1, "out": 1}})
        app.send("in", ("k", name, 1))
        app.run()
        return app

    def error_of(app):
        app.send("in", ("k", "more", 2))
        try:
            app.run()
        except StreamsException as error:
            text = str(error)
            assert text.startswith("Spark's JVM has ended:"), text
            app.compute.cancel()
            app.close()
            return text
        raise AssertionError("The batch ran without a JVM.")
"""

#: Two applications share the lost JVM. Later penstock has not started the JVM itself.
OWN = PREPARED + """
    def open_own():
        return open_backend(config_of(), master="local[1]")

    first, other = open_own(), open_own()
    apps = [start(first, "a"), start(other, "b")]
    assert not first.is_lost
    kill()
    assert first.is_lost and other.is_lost
    assert all("REPLACE_THREAD" in error_of(app) for app in apps)
    first.close()

    second = open_own()
    other.close()
    assert first.is_lost and other.is_lost and not second.is_lost
    app = start(second, "c")
    kill(known=False)
    error_of(app)
    assert second.is_lost
    second.close()
    assert SparkContext._active_spark_context is SparkContext._gateway is SparkContext._jvm is None

    third = open_own()
    app = start(third, "d")
    app.close()
    third.close()
    kill()
    fourth = open_own()
    app = start(fourth, "e")
    print(app.texts("out"))
    app.close()
    fourth.close()
"""

USERS = PREPARED + """
    from pyspark.sql import SparkSession

    def create_session():
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        return builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()

    def refusal(**options):
        try:
            open_backend(config_of(), **options)
        except StreamsException as error:
            return str(error)
        raise AssertionError("A backend was opened without a JVM.")

    backend = open_backend(config_of(), spark=create_session())
    app = start(backend, "a")
    kill()
    assert "create a new session" in error_of(app)
    backend.close()

    session = create_session()
    app = start(open_backend(config_of(), spark=session), "b")
    app.close()
    kill()
    # The session was not passed as spark=, so penstock must not replace it.
    assert "restart the process" in refusal()
    assert "create a new session" in refusal(spark=session)
    assert "is stopped" in refusal(spark=session)

    session = create_session()
    kill()
    try:
        session.stop()
    except OSError:
        pass
    backend = open_backend(config_of(), master="local[1]")
    app = start(backend, "c")
    print(app.texts("out"))
    app.close()
    backend.close()
"""


def output_of(script: str, tmp_path: Path) -> str:
    """Run a script in a new process."""
    tests = str(Path(__file__).resolve().parents[2])
    code = textwrap.dedent(script).format(path=[tests], folder=str(tmp_path))
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_lost_jvm_of_penstock_is_replaced(tmp_path: Path) -> None:
    assert output_of(OWN, tmp_path) == "[('k', 'E', 1)]\n"


def test_user_can_create_a_session_after_a_lost_jvm(tmp_path: Path) -> None:
    assert output_of(USERS, tmp_path) == "[('k', 'C', 1)]\n"
