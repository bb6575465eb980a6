"""Runs the commands of docs/rest.md, and compares the page with the interface."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from penstock.queries.http import HttpSettings, create_app
from unit.queries.http.fakes import FakeReader

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rest.md").read_text(encoding="utf-8")
MARKER = "=== the next command ==="


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def steps(port: int) -> list[tuple[str, str]]:
    """Return every command of the page with its output."""
    found: list[tuple[str, str]] = []
    for line in "".join(blocks("console")).replace("8080", str(port)).splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith(">"):
            found[-1] = (found[-1][0] + line[1:].removeprefix(" "), found[-1][1])
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


@pytest.mark.slow
def test_commands_print_the_documented_output(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(blocks("python")[0], encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    commands = steps(port)
    assert len(commands) > 10
    script = "".join(f"{command}echo '{MARKER}'\n" for command, _ in commands)
    folder = os.path.dirname(sys.executable)
    ran = subprocess.run(
        ["sh", "-c", f"trap 'kill $! 2> /dev/null' EXIT\n{script}"], cwd=tmp_path, text=True,
        check=False, timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )
    outputs = ran.stdout.split(f"{MARKER}\n")
    assert [(command, output) for (command, _), output in zip(commands, outputs, strict=False)
            ] == commands


def test_page_names_every_path_and_setting() -> None:
    description = create_app(FakeReader()).openapi()
    for path in description["paths"]:
        assert path.replace("{store}", "STORE").replace("{key}", "KEY") in PAGE
    limits = {each.name for each in fields(HttpSettings) if each.name.startswith("max_")}
    for name in limits:
        assert f"`{name}`" in PAGE
