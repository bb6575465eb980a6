"""`penstock reset` refuses to reset a running application before it says anything else."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log

APP = '''
from penstock import Serdes, StreamsBuilder
text = Serdes.string()
builder = StreamsBuilder()
builder.stream("words", key=text, value=text).to("copies", key=text, value=text)
'''
Command = Callable[..., subprocess.Popen[bytes]]


def test_running_application_is_refused_before_the_plan_is_printed(
    penstock: Callable[..., Any], command: Command, log: Log, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    log.create_topic("copies", 2)
    process = command("run", "app.py", "--application-id", "copier", "--master", "inline")
    deadline = time.monotonic() + 120
    while not log.committed("copier"):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    refused = penstock("reset", "copier", "--yes")
    assert refused.code == 1
    assert refused.out == ""
    assert "Application 'copier' is running" in refused.err
    assert f"process {process.pid}" in refused.err
    assert "copier-tasks" in {topic.name for topic in log.topics()}
    # A dry run changes nothing, so it is allowed.
    shown = penstock("reset", "copier", "--dry-run")
    assert (shown.code, "delete topic 'copier-tasks'" in shown.out) == (0, True)
    process.terminate()
    process.communicate(timeout=120)
    done = penstock("reset", "copier", "--yes")
    assert (done.code, "delete topic 'copier-tasks'" in done.out) == (0, True)
