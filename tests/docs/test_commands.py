"""Runs the commands of pages that show no output."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deploy.commands import parse_command
from docs.pages import DOCS, blocks
from engine.test_otlp import Collector
from penstock.broker.ports import free_ports
from penstock.log import open_log

PROGRAMS = os.path.dirname(sys.executable)
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}


def commands(page: str) -> list[str]:
    return [block.text for block in blocks(DOCS / page, "sh")]


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-e", "-c", script], cwd=folder, env=ENVIRONMENT, text=True, check=False,
        timeout=120, capture_output=True, stdin=subprocess.DEVNULL,
    )


def test_commands_of_the_operating_page_run(tmp_path: Path) -> None:
    with open_log(tmp_path / "orders.db") as log:
        log.create_topic("orders")
    backup, retention = commands("operating.md")
    ran = shell(f"export PENSTOCK_LOG=orders.db\n{backup}{retention}", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "copy.db").exists()
    assert "Changed topic 'orders'." in ran.stderr


def test_command_of_the_security_page_is_accepted() -> None:
    (block,) = commands("security.md")
    protect, run = map(shlex.split, block.splitlines())
    assert protect == ["chmod", "600", parse_command(run).log_config]


@contextmanager
def running(command: str, folder: Path) -> Iterator[None]:
    """Run a command until the end of the block."""
    process = subprocess.Popen(
        shlex.split(command), cwd=folder, env={**ENVIRONMENT, "PENSTOCK_LOG": "app.db"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM, errors


@pytest.mark.slow
def test_metrics_are_served_and_sent(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from penstock import StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('words', key=str, value=str).to('copies')\n"
        "config = {'application.id': 'copies'}\n", encoding="utf-8",
    )
    with open_log(tmp_path / "app.db") as log:
        log.create_topic("words")
        log.create_topic("copies")
    prometheus, otlp = commands("metrics.md")
    install, export = otlp.splitlines()
    assert install == "pip install 'penstock[otel]'"
    (port,) = map(str, free_ports(1))
    with closing(Collector()) as collector:
        serve = f"{prometheus.strip()} --master inline".replace("9404", port)
        send = f"{export} --once --master inline".replace("http://127.0.0.1:4318", collector.url)
        with running(serve, tmp_path):
            request = ["curl", "-sf", "--retry", "60", "--retry-delay", "1", "--retry-all-errors"]
            page = subprocess.run(
                [*request, f"http://127.0.0.1:{port}/metrics"],
                capture_output=True, text=True, check=True, timeout=90,
            ).stdout
        assert "penstock_stream_state_info" in page
        ran = subprocess.run(
            shlex.split(send), cwd=tmp_path, env={**ENVIRONMENT, "PENSTOCK_LOG": "app.db"},
            capture_output=True, text=True, check=False, timeout=90,
        )
        assert ran.returncode == 0, ran.stderr
        assert collector.metrics
