"""The command line on a real broker, and the broker's own commands."""

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

from kafka.cluster import swept
from penstock.broker import jars
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.processes import is_running
from penstock.cli.main import main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def penstock() -> Run:
    """Runs the command as a process of its own."""

    def run(
        *words: object, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli", *map(str, words)], input=stdin, text=True,
            capture_output=True, timeout=180, check=False, env={**os.environ, **variables},
        )

    return run


@pytest.mark.kafka
def test_every_command_works_on_kafka(
    penstock_broker: ClusterStatus, monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", swept(penstock_broker.address))

    def told(*words: object, stdin: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin.encode())))
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        assert code == 0, err.decode()
        return out.decode()

    told("topics", "create", "orders", "--partitions", 2, "--config", "retention.ms=60000")
    lines = "a:1\nb:2\nc:3\n"
    told("produce", "orders", "--key-separator", ":", stdin=lines)
    told("produce", "orders", "--key-separator", ":", "--atomic", stdin="d:4\n")
    (described,) = [json.loads(line) for line in told(
        "topics", "describe", "orders", "--json").splitlines()]
    assert described["config"] == {"retention.ms": "60000"}
    shown = told("consume", "orders", "--format", "key-value", "--key-separator", ":")
    assert sorted(shown.splitlines()) == ["a:1", "b:2", "c:3", "d:4"]
    assert len(told("consume", "orders", "--group", "audit").splitlines()) == 4
    assert told("consume", "orders", "--group", "audit") == ""
    (group,) = [json.loads(line) for line in told("groups", "list", "--json").splitlines()]
    assert group == {"group": "audit", "members": 0, "lag": 0, "topics": ["orders"]}
    # Kafka does not tell the generation of a group.
    assert "Generation: -\n" in told("groups", "describe", "audit")
    told("topics", "alter", "orders", "--unset", "retention.ms", "--partitions", 3)
    cleaned = json.loads(told("topics", "clean", "orders", "--json"))
    assert (cleaned["name"], cleaned["records_compacted"]) == ("orders", 0)
    told("groups", "reset-offsets", "audit", "--all-topics", "--to-beginning", "--execute")
    assert len(told("consume", "orders", "--group", "audit").splitlines()) == 4
    told("groups", "delete", "audit")
    assert told("groups", "list", "--json") == ""
    told("topics", "delete", "orders", "--yes")
    assert told("topics", "list", "--json") == ""


@pytest.mark.kafka
@pytest.mark.slow
def test_an_application_is_run_watched_and_reset_on_kafka(
    penstock_broker: ClusterStatus, penstock: Run, tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from penstock import Serdes, StreamsBuilder\n\n"
        "builder, text = StreamsBuilder(), Serdes.string()\n"
        'builder.table("words", key=text, value=text, store="kept").to_stream().to("copied")\n'
    )
    log = {"PENSTOCK_LOG": swept(penstock_broker.address)}
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
            assert f"-{one.process.pid}-" in refused.stderr
            assert "--force" in refused.stderr
            penstock("produce", "words", "--key-separator", ":", stdin="a:1\n", **log)
            one.process.terminate()
            assert one.process.wait(60) == 143
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
    """A command that runs, and what it says to standard error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._said = ""

    def wait_for(self, text: str) -> None:
        """Until it has said so; if it ends before, that is a failure."""
        assert self.process.stderr is not None
        while text not in self._said:
            line = self.process.stderr.readline()
            assert line, f"it ended and has only said: {self._said}"
            self._said += line


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
            process.wait(60)
            ended.cancel()


@pytest.mark.kafka
@pytest.mark.slow
def test_a_broker_is_started_found_and_stopped(penstock: Run, tmp_path: Path) -> None:
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
        # What was not set is as the broker has it, not as it usually is.
        described = penstock("topics", "describe", "kept", "--all-settings", "--json", *log)
        assert json.loads(described.stdout)["config"]["retention.ms"] == "3600000"
        # A second start finds it running; another port it does not get.
        again = penstock("broker", "start", *data, "--json")
        assert (json.loads(again.stdout), again.stderr) == (status, "It was running already.\n")
        refused = penstock("broker", "start", *data, "--port", 1, "--foreground")
        assert "runs already" in refused.stderr
        three = penstock("broker", "start", *data, "--brokers", 3)
        assert f"'{tmp_path / 'broker'}' is of 1 broker, not of 3." in three.stderr
        pid = status["nodes"][0]["pid"]
        assert is_running(pid, f"-Dpenstock.broker={tmp_path / 'broker' / 'node-1'}")
        stopped = penstock("broker", "stop", *data)
        assert stopped.stderr == "Stopped 1 broker.\n"
        assert not is_running(pid, f"-Dpenstock.broker={tmp_path / 'broker' / 'node-1'}")
        assert penstock("broker", "stop", *data).stderr == "No broker was running.\n"
        # What was written is there after the next start, at the same address; with the jars in
        # the cache no network is needed.
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
def test_a_port_that_is_in_use_is_named(penstock: Run, tmp_path: Path, taken_port: int) -> None:
    ran = penstock("broker", "start", "--data", tmp_path, "--port", taken_port)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"penstock: error: Port {taken_port} is in use")
    assert LocalCluster(tmp_path).status().running is False


def test_without_java_one_is_told_to_install_it(penstock: Run, tmp_path: Path) -> None:
    ran = penstock("broker", "start", "--data", tmp_path, PATH=str(tmp_path), JAVA_HOME="",
                   PENSTOCK_CACHE=str(tmp_path))
    assert ran.returncode == 1
    assert "Kafka needs Java 17 or newer. JAVA_HOME is not set" in ran.stderr


@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_without_a_network_and_a_cache_one_is_told_where_it_looked(
    penstock: Run, tmp_path: Path
) -> None:
    nowhere = (tmp_path / "empty").as_uri()
    ran = penstock(
        "broker", "start", "--data", tmp_path / "data", PENSTOCK_CACHE=str(tmp_path / "cache"),
        PENSTOCK_MAVEN_REPOSITORY=nowhere,
    )
    assert ran.returncode == 1
    assert f"could not be fetched from {nowhere}" in ran.stderr
    assert "PENSTOCK_MAVEN_REPOSITORY" in ran.stderr
    # Nothing is left that looks like jars.
    assert list((tmp_path / "cache" / f"kafka-{jars.VERSION}").iterdir()) == []
