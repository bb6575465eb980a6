"""What the JVM and its workers say: noise is kept from the user, what user code prints is not."""

from __future__ import annotations

import io
import threading
import time

import pytest

from penstock.engine.spark.gateway import JvmOutput
from penstock.engine.spark.keepalive import Keepalive

FAREWELL = """Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
TRACEBACK = """Traceback (most recent call last):
  File "/x/app.py", line 2, in f
ValueError: mine
"""


def heard(text: str, capsys: pytest.CaptureFixture[str], *, aside: bool = False) -> str:
    voice = JvmOutput()
    voice.aside = aside
    voice.listen(io.BytesIO(text.encode()))
    voice.wait(30)
    return capsys.readouterr().err


def test_what_user_code_prints_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"one\n{TRACEBACK}two\n  indented\n"
    assert heard(text, capsys) == text


def test_the_last_words_of_a_worker_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert heard(f"one\n{FAREWELL}two\n", capsys) == "one\ntwo\n"


def test_nothing_is_shown_while_spark_starts_and_stops(capsys: pytest.CaptureFixture[str]) -> None:
    assert heard("WARN many words\n", capsys, aside=True) == ""


def test_a_traceback_that_is_cut_off_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = TRACEBACK.rsplit("ValueError", 1)[0]
    assert heard(text, capsys) == text


def test_a_silence_is_broken_and_the_thread_ends() -> None:
    ran = threading.Semaphore(0)
    warmth = Keepalive(ran.release, silence_s=0.01)
    assert ran.acquire(timeout=30)
    assert ran.acquire(timeout=30)
    warmth.close()
    assert not warmth._thread.is_alive()


def test_workers_that_are_busy_are_left_alone() -> None:
    jobs: list[float] = []
    warmth = Keepalive(lambda: jobs.append(time.monotonic()), silence_s=3600)
    warmth.job_done()
    warmth.close()
    assert jobs == []


def test_a_spark_that_is_gone_ends_it_quietly() -> None:
    def fails() -> None:
        raise ConnectionError("gone")

    warmth = Keepalive(fails, silence_s=0.0)
    warmth._thread.join(30)
    assert not warmth._thread.is_alive()
    warmth.close()
