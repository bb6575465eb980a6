"""Runs the commands in docs/kafka.md and compares their output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import DOCS, blocks
from penstock.broker.cluster import LocalCluster
from penstock.broker.ports import free_ports

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PAGE = DOCS / "kafka.md"
DEFAULT_PORT = "9092"


def test_commands_print_the_documented_output(tmp_path: Path) -> None:
    # tests/kafka/test_security.py runs the second Python block.
    words, _ = blocks(PAGE, "python")
    (console,) = blocks(PAGE, "console")
    (tmp_path / "words.py").write_text(words.text, encoding="utf-8")
    lines = console.text.splitlines(keepends=True)
    (port,) = map(str, free_ports(1))
    script = "".join(line[2:] for line in lines if line.startswith("$ "))
    # The default port may be in use.
    start = "broker start --data kafka"
    assert script.count(start) == 1
    script = script.replace(start, f"{start} --port {port}").replace(f":{DEFAULT_PORT}", f":{port}")
    folder = os.path.dirname(sys.executable)
    try:
        ran = subprocess.run(
            ["sh", "-e", "-c", script], cwd=tmp_path, text=True, check=False, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        )
    finally:
        LocalCluster(tmp_path / "kafka").stop(kill=True)
    documented = "".join(line for line in lines if not line.startswith("$ "))
    assert normalize(ran.stdout, tmp_path, port) == normalize(
        documented, Path("/srv/shop"), DEFAULT_PORT
    )


def normalize(text: str, home: Path, port: str) -> str:
    """Replace the directory, the port and the process ids."""
    text = text.replace(str(home), "HOME").replace(f":{port}", ":PORT")
    text = re.sub(rf"^( +1) +{port} +\d+ +running$", r"\1 PORT PID running", text, flags=re.M)
    return re.sub(r"^NODE +PORT +PID +STATE$", "NODE PORT PID STATE", text, flags=re.M)
