"""`penstock broker` without a broker; `tests/kafka/test_commands.py` starts real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def node(number: int, pid: int | None) -> dict[str, int | None]:
    return {"id": number, "port": 9091 + number, "controller_port": 19091 + number, "pid": pid}


def test_status_lists_the_nodes_that_are_not_running(penstock, tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    data.mkdir()
    marker = f"-Dpenstock.broker={data / 'node-1'}"
    with subprocess.Popen(
        [sys.executable, "-c", "input()", marker], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        nodes = [node(1, process.pid), node(2, process.pid), node(3, None)]
        (data / "broker.json").write_text(json.dumps({"cluster_id": "x", "nodes": nodes}))
        ran = penstock("broker", "status", "--data", data)
        assert ran.code == 1
        assert ran.out.splitlines()[3:] == [
            "NODE  PORT" + f"{'PID':>{2 + len(str(process.pid))}}" + "  STATE",
            f"   1  9092  {process.pid}  running",
            f"   2  9093  {'-':>{len(str(process.pid))}}  stopped",
            f"   3  9094  {'-':>{len(str(process.pid))}}  stopped",
        ]
        assert ran.err == (
            f"penstock: error: Nodes 2, 3 of '{data}' are not running.\n"
        )
    ran = penstock("broker", "status", "--data", data)
    assert ran.err == f"penstock: error: The broker of '{data}' is not running.\n"


def test_directory_without_a_broker(penstock, tmp_path: Path) -> None:
    ran = penstock("broker", "status", "--data", tmp_path)
    assert ran == (1, "", f"penstock: error: The broker of '{tmp_path}' is not running.\n")
    assert penstock("broker", "stop", "--data", tmp_path) == (0, "", "No broker was running.\n")
