"""Which output of the JVM and its workers reaches the user."""

from __future__ import annotations

import io

import pytest

from penstock.engine.spark.gateway import JvmOutput

CLOSED_WORKER = """Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
USER_TRACEBACK = """Traceback (most recent call last):
  File "/x/app.py", line 2, in f
ValueError: mine
"""


def shown(text: str, capsys: pytest.CaptureFixture[str], *, muted: bool = False) -> str:
    output = JvmOutput()
    output.muted = muted
    output.read(io.BytesIO(text.encode()))
    output.wait(30)
    return capsys.readouterr().err


def test_output_of_user_code_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"one\n{USER_TRACEBACK}two\n  indented\n"
    assert shown(text, capsys) == text


def test_traceback_of_a_closed_worker_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(f"one\n{CLOSED_WORKER}two\n", capsys) == "one\ntwo\n"


def test_output_is_hidden_while_spark_starts_and_stops(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shown("WARN many words\n", capsys, muted=True) == ""


def test_incomplete_traceback_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = USER_TRACEBACK.rsplit("ValueError", 1)[0]
    assert shown(text, capsys) == text
