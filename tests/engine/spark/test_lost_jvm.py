"""The JVM is killed between batches: that is said, and the process can go on in another one."""

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
    from engine.spark.test_job import mapped
    from penstock import StreamsException
    from penstock.engine.spark.backend import open_backend

    def kill(*, known=True):
        gateway, process = SparkContext._gateway, SparkContext._gateway.proc
        if not known:
            # As under spark-submit: somebody else has started the JVM.
            gateway.proc = None
        process.kill()
        process.wait()

    def started(place, name):
        folder = Path({folder!r}, name)
        folder.mkdir()
        app = SparkApplication(place, mapped(str.upper), folder, {{"in": 1, "out": 1}})
        app.send("in", ("k", name, 1))
        app.run()
        return app

    def told(app):
        app.send("in", ("k", "more", 2))
        try:
            app.run()
        except StreamsException as error:
            text = str(error)
            assert text.startswith("Spark's JVM has ended:"), text
            app.compute.cancel()
            app.close()
            return text
        raise AssertionError("It ran without a JVM.")
"""

#: Two applications share what is lost. Later the JVM is one that penstock did not start.
OWN = PREPARED + """
    def opened():
        return open_backend(config_of(), master="local[1]")

    first, other = opened(), opened()
    apps = [started(first, "a"), started(other, "b")]
    assert not first.is_lost
    kill()
    assert first.is_lost and other.is_lost
    assert all("REPLACE_THREAD" in told(app) for app in apps)
    first.close()

    second = opened()
    other.close()
    assert first.is_lost and other.is_lost and not second.is_lost
    app = started(second, "c")
    kill(known=False)
    told(app)
    assert second.is_lost
    second.close()
    assert SparkContext._active_spark_context is SparkContext._gateway is SparkContext._jvm is None

    third = opened()
    app = started(third, "d")
    app.close()
    third.close()
    kill()
    fourth = opened()
    app = started(fourth, "e")
    print(app.texts("out"))
    app.close()
    fourth.close()
"""

USERS = PREPARED + """
    from pyspark.sql import SparkSession

    def made():
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        return builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()

    def refused(**options):
        try:
            open_backend(config_of(), **options)
        except StreamsException as error:
            return str(error)
        raise AssertionError("There is no JVM.")

    place = open_backend(config_of(), spark=made())
    app = started(place, "a")
    kill()
    assert "make a new session" in told(app)
    place.close()

    session = made()
    app = started(open_backend(config_of(), spark=session), "b")
    app.close()
    kill()
    # It was not given: nobody knows that another one would do as well.
    assert "start the process again" in refused()
    assert "make a new session" in refused(spark=session)
    assert "is stopped" in refused(spark=session)

    session = made()
    kill()
    try:
        session.stop()
    except OSError:
        pass
    place = open_backend(config_of(), master="local[1]")
    app = started(place, "c")
    print(app.texts("out"))
    app.close()
    place.close()
"""


def said_by(script: str, tmp_path: Path) -> str:
    """What a script prints, in a process of its own."""
    tests = str(Path(__file__).resolve().parents[2])
    code = textwrap.dedent(script).format(path=[tests], folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_spark_of_our_own_is_told_as_lost_and_another_is_opened(tmp_path: Path) -> None:
    assert said_by(OWN, tmp_path) == "[('k', 'E', 1)]\n"


def test_after_the_user_s_spark_is_lost_a_new_session_can_be_made(tmp_path: Path) -> None:
    assert said_by(USERS, tmp_path) == "[('k', 'C', 1)]\n"
