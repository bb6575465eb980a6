"""Runs the commands of docs/rest.md, and compares the page with the interface."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from dataclasses import fields
from pathlib import Path

import pytest

from docs.pages import DOCS, blocks
from penstock.broker.ports import free_ports
from penstock.log import open_log
from penstock.queries.http import HttpSettings, Server, create_app
from penstock.record import RecordColumns
from unit.queries.http.fakes import FakeReader, filled_reader

PAGE = DOCS / "rest.md"
MARKER = "=== the next command ==="


def steps(port: int) -> list[tuple[str, str]]:
    """Return every command of the page with its output."""
    found: list[tuple[str, str]] = []
    console = "".join(block.text for block in blocks(PAGE, "console"))
    for line in console.replace("8080", str(port)).splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith(">"):
            found[-1] = (found[-1][0] + line[1:].removeprefix(" "), found[-1][1])
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


@pytest.mark.slow
def test_commands_print_the_documented_output(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(blocks(PAGE, "python")[0].text, encoding="utf-8")
    (port,) = free_ports(1)
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


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_script_follows_changes_with_a_token(tmp_path: Path) -> None:
    """The stream ends at the last change, so the script connects again where it stopped."""
    (block,) = blocks(PAGE, "javascript")
    reader = filled_reader()
    settings = HttpSettings(port=0, token="secret")
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("counts", 3)
        reader.log = log
        reader.append("counts", 0, ("tea", 1, 10), ("milk: ü", 2, 20))
        with Server(create_app(reader, settings), settings) as server:
            url = f"{server.url}/stores/counts/changes?start=beginning&follow=false"
            script = re.sub(r'follow\("[^"]*"', f'follow("{url}"', block.text)
            running = subprocess.Popen(
                ["node", "-e", f'const token = "secret";\n{script}'], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            with running:
                assert running.stdout is not None
                found = [running.stdout.readline() for _ in range(2)]
                reader.append("counts", 1, ("tea", 3, 30))
                found.append(running.stdout.readline())
                running.kill()
    assert found == ["tea 1\n", "milk: ü 2\n", "tea 3\n"]


@pytest.mark.slow
def test_application_with_its_own_routes_serves_both(tmp_path: Path) -> None:
    count, own_routes = (block.text for block in blocks(PAGE, "python"))
    (port,) = free_ports(1)
    assert own_routes.count("config)") == 1
    program = f"{count}{own_routes}".replace("8080", str(port)).replace(
        "config)", 'config, master="inline")'
    )
    (tmp_path / "count.py").write_text(program, encoding="utf-8")
    with open_log(tmp_path / "words.db") as log:
        log.create_topic("words")
        log.append("words", 0, RecordColumns([None] * 2, [b"tea"] * 2, [1] * 2))
    process = subprocess.Popen([sys.executable, "count.py"], cwd=tmp_path)
    try:
        own = fetch(f"http://127.0.0.1:{port}/count/tea", "2")
        state = fetch(f"http://127.0.0.1:{port}/state/stores/counts/keys/tea", '"value":2')
    finally:
        process.terminate()
        process.wait(60)
    assert own == "2"
    assert '"key":"tea"' in state


def fetch(url: str, expected: str) -> str:
    """Return the body of a response as soon as it contains the text."""
    deadline = time.monotonic() + 60
    body = ""
    while expected not in body:
        assert time.monotonic() < deadline, body
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                body = response.read().decode()
        except OSError as error:
            body = str(error)
            time.sleep(0.1)
    return body


def test_page_names_every_path_and_setting() -> None:
    text = PAGE.read_text(encoding="utf-8")
    description = create_app(FakeReader()).openapi()
    for path in description["paths"]:
        assert path.replace("{store}", "STORE").replace("{key}", "KEY") in text
    limits = {each.name for each in fields(HttpSettings) if each.name.startswith("max_")}
    for name in limits:
        assert f"`{name}`" in text
