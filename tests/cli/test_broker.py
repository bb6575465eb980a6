"""What `penstock broker` says of a folder; `tests/kafka/test_commands.py` starts real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def node(number: int, pid: int | None) -> dict[str, int | None]:
    return {"id": number, "port": 9091 + number, "controller_port": 19091 + number, "pid": pid}


def test_the_nodes_that_do_not_run_are_named(penstock, tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    data.mkdir()
    mark = f"-Dpenstock.broker={data / 'node-1'}"
    with subprocess.Popen(
        [sys.executable, "-c", "input()", mark], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as one:
        nodes = [node(1, one.pid), node(2, one.pid), node(3, None)]
        (data / "broker.json").write_text(json.dumps({"cluster_id": "x", "nodes": nodes}))
        ran = penstock("broker", "status", "--data", data)
        assert ran.code == 1
        assert ran.out.splitlines()[3:] == [
            "NODE  PORT" + f"{'PID':>{2 + len(str(one.pid))}}" + "  STATE",
            f"   1  9092  {one.pid}  running",
            f"   2  9093  {'-':>{len(str(one.pid))}}  stopped",
            f"   3  9094  {'-':>{len(str(one.pid))}}  stopped",
        ]
        assert ran.err == f"penstock: error: Not running: node 2, 3 of '{data}'.\n"
    ran = penstock("broker", "status", "--data", data)
    assert ran.err == f"penstock: error: Not running: the broker of '{data}'.\n"


def test_a_folder_without_a_broker_has_none(penstock, tmp_path: Path) -> None:
    ran = penstock("broker", "status", "--data", tmp_path)
    assert ran == (1, "", f"penstock: error: Not running: the broker of '{tmp_path}'.\n")
    assert penstock("broker", "stop", "--data", tmp_path) == (0, "", "No broker was running.\n")
