"""`penstock run FILE --master inline` sends the file by value, as with Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log

APP = '''
import threading
from penstock import Serdes, StreamsBuilder
serdes = {"key": Serdes.string(), "value": Serdes.string()}
lock = threading.Lock()
def shout(value):
    with lock:
        return value.upper()
builder = StreamsBuilder()
builder.stream("words", **serdes).map_values(shout, name="shout").to("shouts", **serdes)
'''


def test_function_of_the_file_that_uses_a_global_lock_is_refused(
    penstock: Callable[..., Any], log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "locking.py").write_text(APP)
    log.create_topic("shouts")
    ran = penstock("run", "locking.py", "--application-id", "a", "--master", "inline", "--once")
    sys.modules.pop("locking", None)
    assert ran.code == 1
    assert "The step 'shout' cannot be sent to Spark's workers." in ran.err
    assert "Its function shout (locking.py:6) uses 'lock'" in ran.err
