from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.broker import processes
from penstock.broker.cluster import LocalCluster, new_cluster_id
from penstock.broker.errors import BrokerError
from penstock.broker.properties import BrokerNode, BrokerOptions, server_properties


def settings(count: int, **options: object) -> dict[str, str]:
    nodes = [BrokerNode(n + 1, 9092 + n, 19092 + n) for n in range(count)]
    text = server_properties(
        nodes[0], nodes, Path("data"), BrokerOptions(brokers=count, **options)  # type: ignore[arg-type]
    )
    return dict(line.split("=", 1) for line in text.splitlines())


def test_cluster_id_does_not_look_like_an_option() -> None:
    for _ in range(1000):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", new_cluster_id())


def test_broker_listens_on_loopback_only() -> None:
    for count in (1, 3):
        addresses = re.findall(r"//([^:,]+)", settings(count)["listeners"])
        assert addresses == ["127.0.0.1"] * 2


def test_three_brokers_have_three_replicas_of_which_two_must_be_in_sync() -> None:
    three, one = settings(3), settings(1)
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert (three[f"{name}.replication.factor"], one[f"{name}.replication.factor"]) == (
            "3", "1")
    for name in ("min.insync.replicas", "transaction.state.log.min.isr"):
        assert (three[name], one[name]) == ("2", "1")


def test_user_properties_override_the_defaults() -> None:
    overridden = settings(1, properties={"auto.create.topics.enable": "true"})
    assert overridden["auto.create.topics.enable"] == "true"


def test_directory_without_a_broker(tmp_path: Path) -> None:
    status = LocalCluster(tmp_path / "none").status()
    assert (status.running, status.nodes, status.as_json()["log"]) == (False, (), None)
    assert LocalCluster(tmp_path / "none").stop() == status
    with pytest.raises(BrokerError, match=r"Node 2 does not exist in .* Nodes: none"):
        LocalCluster(tmp_path).stop(node=2)


def test_only_a_process_with_the_marker_is_stopped() -> None:
    command = [sys.executable, "-c", "input()", "mine"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert processes.is_running(child.pid, "mine")
        assert not processes.is_running(child.pid, "other")
        processes.stop(child.pid, "other", 0.1)
        assert processes.is_running(child.pid, "mine")
        assert processes.stop(child.pid, "mine", 30)
        assert not processes.is_running(child.pid, "mine")
        child.returncode = 0


def test_process_is_killed_with_its_parent() -> None:
    command = [sys.executable, "-c", "input()", "mine"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        watcher = processes.kill_with_parent(child.pid, "mine")
        assert processes.is_running(child.pid, "mine")
        watcher.communicate()
        assert not processes.is_running(child.pid, "mine")
        assert not processes.is_running(os.getpid() + 1_000_000, "mine")
        child.returncode = 0
