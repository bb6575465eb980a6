"""Runs the commands in docs/cli.md and compares their output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import main as entry

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKER = "=== the next command ==="


def steps() -> list[tuple[str, str]]:
    """Return every command of the page with its output."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(PAGE):
        for line in block.splitlines(keepends=True):
            command, output = found[-1] if found else ("", "")
            if line.startswith("$ "):
                found.append((line[2:], ""))
            elif line.startswith(">"):
                found[-1] = (command + line[1:].removeprefix(" "), output)
            else:
                found[-1] = (command, output + line)
    return found


@pytest.mark.slow
def test_commands_print_the_documented_output(tmp_path: Path) -> None:
    commands = steps()
    assert len(commands) > 30
    # One shell runs all commands. The marker preserves the exit code.
    script = "".join(f"{command}set -- $?; echo '{MARKER}'; (exit $1)\n" for command, _ in commands)
    folder = os.path.dirname(sys.executable)
    ran = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, text=True, check=False, timeout=600,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
    )
    outputs = ran.stdout.split(f"{MARKER}\n")
    assert [(command, output) for (command, _), output in zip(commands, outputs, strict=False)
            ] == commands
    assert outputs[len(commands):] == [""]


def test_page_names_every_command() -> None:
    table = PAGE.partition("\n## ")[0].replace("`", "")
    for module in entry.COMMANDS:
        name = module.__name__.rpartition(".")[2]
        assert re.search(rf"^\| penstock {name}\b", table, re.MULTILINE), name
    for name in ("list", "create", "describe", "alter", "delete", "clean", "verify",
                 "reset-offsets"):
        assert name in table


def test_documented_exit_codes_are_those_of_the_program() -> None:
    codes = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE)
             for code in row.split(",")}
    assert codes == set(entry.ExitCode)
