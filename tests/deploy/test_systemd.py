"""The systemd unit."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.commands import ROOT, parse_command
from penstock.cli.main import ExitCode
from penstock.cli.project import project_files

UNIT = ROOT / "deploy" / "systemd" / "orders.service"
#: systemd ignores names that it does not know.
KNOWN = {
    "Unit": {"Description", "Documentation", "Wants", "After"},
    "Service": {
        "Type", "User", "Group", "WorkingDirectory", "EnvironmentFile", "ExecStart",
        "StateDirectory", "KillMode", "TimeoutStopSec", "SuccessExitStatus", "Restart",
        "RestartSec", "RestartPreventExitStatus", "LimitNOFILE", "NoNewPrivileges", "PrivateTmp",
        "ProtectHome", "ProtectSystem",
    },
    "Install": {"WantedBy"},
}


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT, encoding="utf-8")
    return parser


def test_unit_has_known_sections_and_names() -> None:
    sections = {name: set(unit()[name]) for name in unit().sections()}
    assert sections.keys() == KNOWN.keys()
    for name, found in sections.items():
        assert found <= KNOWN[name]
    assert {"ExecStart", "User", "Restart"} <= sections["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    shutil.copy(UNIT, units)
    # It also checks that the program exists.
    program = Path(str(tmp_path) + shlex.split(unit()["Service"]["ExecStart"])[0])
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    ran = subprocess.run(
        ["systemd-analyze", "verify", f"--root={tmp_path}", "--recursive-errors=no", UNIT.name],
        capture_output=True, text=True, check=False, timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_command_line_is_accepted_and_runs_a_project() -> None:
    service = unit()["Service"]
    command = shlex.split(service["ExecStart"])
    args = parse_command(command)
    assert args.target.replace(".", "/") + ".py" in project_files(UNIT.stem)
    assert command[0].startswith(f"{service['WorkingDirectory']}/.venv/")
    assert args.state_dir == f"/var/lib/{service['StateDirectory']}"
    assert service["User"] != "root"


def test_exit_codes_are_those_of_the_program() -> None:
    service = unit()["Service"]
    assert int(service["SuccessExitStatus"]) == ExitCode.TERMINATED
    assert int(service["RestartPreventExitStatus"]) == ExitCode.USAGE


def test_secrets_are_not_in_the_unit() -> None:
    lines = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert not re.search(r"^Environment=|password|token", "\n".join(lines), re.MULTILINE)
