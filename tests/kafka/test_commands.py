"""The command line on a real broker, and `penstock broker`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock.broker import jars
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.processes import is_running
from penstock.cli.main import main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def penstock() -> Run:
    """Run the command as a process."""

    def run(
        *words: object, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli", *map(str, words)], input=stdin, text=True,
            capture_output=True, timeout=180, check=False, env={**os.environ, **variables},
        )

    return run


@pytest.mark.kafka
def test_commands_work_on_kafka(
    penstock_broker: ClusterStatus, monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", clear(penstock_broker.address))

    def run(*words: object, stdin: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin.encode())))
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        assert code == 0, err.decode()
        return out.decode()

    run("topics", "create", "orders", "--partitions", 2, "--config", "retention.ms=60000")
    lines = "a:1\nb:2\nc:3\n"
    run("produce", "orders", "--key-separator", ":", stdin=lines)
    run("produce", "orders", "--key-separator", ":", "--atomic", stdin="d:4\n")
    (described,) = [json.loads(line) for line in run(
        "topics", "describe", "orders", "--json").splitlines()]
    assert described["config"] == {"retention.ms": "60000"}
    shown = run("consume", "orders", "--format", "key-value", "--key-separator", ":")
    assert sorted(shown.splitlines()) == ["a:1", "b:2", "c:3", "d:4"]
    assert len(run("consume", "orders", "--group", "audit").splitlines()) == 4
    assert run("consume", "orders", "--group", "audit") == ""
    (group,) = [json.loads(line) for line in run("groups", "list", "--json").splitlines()]
    assert group == {"group": "audit", "members": 0, "lag": 0, "topics": ["orders"]}
    # Kafka does not report the generation of a group.
    assert "Generation: -\n" in run("groups", "describe", "audit")
    run("topics", "alter", "orders", "--unset", "retention.ms", "--partitions", 3)
    cleaned = json.loads(run("topics", "clean", "orders", "--json"))
    assert (cleaned["name"], cleaned["records_compacted"]) == ("orders", 0)
    run("groups", "reset-offsets", "audit", "--all-topics", "--to-beginning", "--execute")
    assert len(run("consume", "orders", "--group", "audit").splitlines()) == 4
    run("groups", "delete", "audit")
    assert run("groups", "list", "--json") == ""
    run("topics", "delete", "orders", "--yes")
    assert run("topics", "list", "--json") == ""


@pytest.mark.kafka
@pytest.mark.slow
def test_application_runs_and_is_reset_on_kafka(
    penstock_broker: ClusterStatus, penstock: Run, tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from penstock import Serdes, StreamsBuilder\n\n"
        "builder, text = StreamsBuilder(), Serdes.string()\n"
        'builder.table("words", key=text, value=text, store="kept").to_stream().to("copied")\n'
    )
    log = {"PENSTOCK_LOG": clear(penstock_broker.address)}
    words = ("run", app, "--application-id", "copies", "--master", "inline")
    missing = penstock(*words, "--state-dir", tmp_path / "none", **log)
    assert missing.returncode == 1
    assert f"penstock topics create copied --log {penstock_broker.address}" in missing.stderr
    settings = ("--set", "default.key.serde=string", "--set", "default.value.serde=string")
    with running(
        *words, *settings, "--create-topics", 2, "--state-dir", tmp_path / "one", **log
    ) as one:
        one.wait_for("copies: RUNNING")
        with running(*words, *settings, "--state-dir", tmp_path / "two", **log) as two:
            two.wait_for(f"process {one.process.pid} runs the application")
            refused = penstock("reset", "copies", "--yes", **log)
            assert refused.returncode == 1
            assert "Application 'copies' is running." in refused.stderr
            assert refused.stdout == ""
            assert f"-{one.process.pid}-" in refused.stderr
            assert "--force" in refused.stderr
            penstock("produce", "words", "--key-separator", ":", stdin="a:1\n", **log)
            one.process.terminate()
            assert one.process.wait(180) == 143
            two.wait_for("copies: RUNNING")
    once = (*words, *settings, "--once", "--quiet", "--state-dir", tmp_path / "three")
    ended = penstock(*once, **log)
    assert (ended.returncode, ended.stderr) == (0, "")
    copied = ("consume", "copied", "--format", "key-value", "--key-separator", "=")
    assert penstock(*copied, **log).stdout == "a=1\n"
    done = penstock("reset", "copies", "--yes", "--state-dir", tmp_path / "three", **log)
    assert (done.returncode, done.stderr) == (0, "Done.\n")
    penstock(*once, **log)
    assert penstock(*copied, **log).stdout == "a=1\na=1\n"


class Running:
    """A running command and its standard error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._output = ""

    def wait_for(self, text: str) -> None:
        """Wait until the text appears; fail if the command ends before."""
        assert self.process.stderr is not None
        while text not in self._output:
            line = self.process.stderr.readline()
            assert line, f"the command ended with the output: {self._output}"
            self._output += line


@contextmanager
def running(*words: object, **variables: str) -> Iterator[Running]:
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *map(str, words)], text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **variables},
    ) as process:
        ended = threading.Timer(180, process.kill)
        ended.start()
        try:
            yield Running(process)
        finally:
            process.terminate()
            process.wait(180)
            ended.cancel()


@pytest.mark.kafka
@pytest.mark.slow
def test_broker_starts_and_stops(penstock: Run, tmp_path: Path) -> None:
    data = ("--data", tmp_path / "broker")
    assert penstock("broker", "status", *data).returncode == 1
    try:
        started = penstock(
            "broker", "start", *data, "--port", 0, "--json", "--config", "log.retention.hours=1"
        )
        assert (started.returncode, started.stderr) == (0, "")
        status = json.loads(started.stdout)
        assert status["running"]
        assert json.loads(penstock("broker", "status", *data, "--json").stdout) == status
        log = ("--log", status["log"])
        assert penstock("topics", "create", "kept", *log).returncode == 0
        # Defaults are those of this broker.
        described = penstock("topics", "describe", "kept", "--all-settings", "--json", *log)
        assert json.loads(described.stdout)["config"]["retention.ms"] == "3600000"
        # A second start reports the running broker and does not change its port.
        again = penstock("broker", "start", *data, "--json")
        assert json.loads(again.stdout) == status
        assert again.stderr == "The broker is already running.\n"
        refused = penstock("broker", "start", *data, "--port", 1, "--foreground")
        assert "is already running on port" in refused.stderr
        three = penstock("broker", "start", *data, "--brokers", 3)
        assert "belongs to a cluster of 1 broker, not of 3." in three.stderr
        pid = status["nodes"][0]["pid"]
        assert is_running(pid, f"-Dpenstock.broker={tmp_path / 'broker' / 'node-1'}")
        stopped = penstock("broker", "stop", *data)
        assert stopped.stderr == "Stopped 1 broker.\n"
        assert not is_running(pid, f"-Dpenstock.broker={tmp_path / 'broker' / 'node-1'}")
        assert penstock("broker", "stop", *data).stderr == "No broker was running.\n"
        # The data and the address survive a restart, which needs no network.
        offline = {"https_proxy": "http://127.0.0.1:1", "PENSTOCK_MAVEN_REPOSITORY": "file:///no"}
        restarted = penstock("broker", "start", *data, "--json", **offline)
        assert json.loads(restarted.stdout)["log"] == status["log"]
        listed = penstock("topics", "list", "--json", *log).stdout
        assert json.loads(listed)["name"] == "kept"
    finally:
        LocalCluster(tmp_path / "broker").stop(kill=True)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.kafka
def test_port_in_use_fails(penstock: Run, tmp_path: Path, taken_port: int) -> None:
    ran = penstock("broker", "start", "--data", tmp_path, "--port", taken_port)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"penstock: error: Port {taken_port} is in use")
    assert LocalCluster(tmp_path).status().running is False


def test_missing_java_fails_with_advice(penstock: Run, tmp_path: Path) -> None:
    ran = penstock("broker", "start", "--data", tmp_path, PATH=str(tmp_path), JAVA_HOME="",
                   PENSTOCK_CACHE=str(tmp_path))
    assert ran.returncode == 1
    assert "Kafka needs Java 17 or newer. JAVA_HOME is not set" in ran.stderr


@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_failed_download_names_the_repository(
    penstock: Run, tmp_path: Path
) -> None:
    nowhere = (tmp_path / "empty").as_uri()
    ran = penstock(
        "broker", "start", "--data", tmp_path / "data", PENSTOCK_CACHE=str(tmp_path / "cache"),
        PENSTOCK_MAVEN_REPOSITORY=nowhere,
    )
    assert ran.returncode == 1
    assert f"the download from {nowhere} failed" in ran.stderr
    assert "PENSTOCK_MAVEN_REPOSITORY" in ran.stderr
    # The cache stays empty.
    assert list((tmp_path / "cache" / f"kafka-{jars.VERSION}").iterdir()) == []
