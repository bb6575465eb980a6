from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.main import main
from penstock.log import Log, RecordColumns, open_log


class Result(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


Penstock = Callable[..., Result]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def penstock(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Penstock:
    """Run a command in this process, on one log."""
    monkeypatch.setenv("PENSTOCK_LOG", str(path))

    def run(*arguments: object, stdin: str | bytes = b"") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))
        capfdbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Result(code, out.decode("utf-8", "surrogateescape"), err.decode())

    return run


@pytest.fixture
def command(path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start the installed command as a process, on the same log."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        settings: dict[str, Any] = {
            "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
            "env": {**os.environ, "PENSTOCK_LOG": str(path), "TERM": "xterm"}, **options,
        }
        script = Path(sys.executable).with_name("penstock")
        started.append(subprocess.Popen([script, *map(str, arguments)], **settings))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    """A log with the topic `words`: two partitions, six records."""
    log = open_log(path)
    log.create_topic("words", 2)
    log.append("words", 0, RecordColumns(
        [b"a", b"b", None], [b"one", None, b"three"], [10, 30, 50]
    ))
    log.append("words", 1, RecordColumns(
        [b"c", b"d", b"e"], [b"two", b"four", b"\xff"], [20, 40, 60]
    ))
    yield log
    log.close()
