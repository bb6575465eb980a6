"""The nodes of one data folder: start, stop, status.

`broker.json` in the folder is the truth about which nodes there are, where they listen and which
processes they are; it is written under a lock, so two commands do not start the same node twice.
A node is running if its process lives and was started for this folder, whatever the file says.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.broker import jars, ports, processes
from penstock.broker.errors import BrokerError, PortInUse
from penstock.broker.properties import BrokerNode, BrokerOptions, server_properties

_STARTED = "Kafka Server started"
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as it stands."""

    id: int
    port: int
    pid: int | None
    running: bool


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster as it stands. `bootstrap_servers` is empty while there has been none."""

    data: str
    running: bool
    bootstrap_servers: str
    nodes: tuple[NodeStatus, ...]
    kafka: str = jars.VERSION

    @property
    def address(self) -> str:
        """What `open_log` and `--log` take."""
        return f"kafka://{self.bootstrap_servers}"

    def as_json(self) -> dict[str, object]:
        """For scripts."""
        return {**asdict(self), "log": self.address if self.nodes else None}


@dataclass(frozen=True, slots=True)
class _State:
    """What `broker.json` says."""

    cluster_id: str
    nodes: tuple[BrokerNode, ...] = ()
    pids: tuple[int | None, ...] = ()


class LocalCluster:
    """The brokers whose data is in one folder. Holds nothing open; any process may ask."""

    def __init__(self, data: str | os.PathLike[str]) -> None:
        self.data = Path(data).absolute()

    # What one can do

    def start(
        self, options: BrokerOptions, on_jar: Callable[[str], None] | None = None
    ) -> ClusterStatus:
        """Start the nodes that do not run, and wait until they take clients."""
        program = jars.java()
        class_path = jars.class_path(on_jar)
        self.data.mkdir(parents=True, exist_ok=True)
        with self._locked():
            state = self._planned(self._read(), options)
            missing = [
                at for at, node in enumerate(state.nodes)
                if not processes.is_running(state.pids[at], self._marker(node))
            ]
            for at in missing:
                ports.check_free(state.nodes[at].port)
            command = _Java(program, class_path, options)
            pids = list(state.pids)
            logs: dict[int, int] = {}
            try:
                for at in missing:
                    node = state.nodes[at]
                    self._write_properties(node, state, options)
                    if not (self._folder(node) / "meta.properties").exists():
                        self._format(node, state.cluster_id, command)
                    logs[at] = _size(self._log_file(node))
                    pids[at] = self._launch(node, command)
                    state = replace(state, pids=tuple(pids))
                    self._write(state)
                self._wait(state, logs)
            except BaseException:
                self._end([state.nodes[at] for at in logs], state)
                raise
        return self.status()

    def stop(self, *, node: int | None = None, kill: bool = False) -> ClusterStatus:
        """End the nodes, or one of them, by their process ids. What is not running is left."""
        if self.data.is_dir():
            with self._locked():
                state = self._read()
                chosen = [one for one in state.nodes if node in {None, one.id}]
                if node is not None and not chosen:
                    known = ", ".join(str(one.id) for one in state.nodes) or "none"
                    raise BrokerError(f"No node {node} in '{self.data}'. Nodes: {known}.")
                self._end(chosen, state, kill=kill)
        return self.status()

    def status(self) -> ClusterStatus:
        """How it stands."""
        state = self._read()
        nodes = tuple(
            NodeStatus(node.id, node.port, pid if running else None, running)
            for node, pid in zip(state.nodes, state.pids, strict=True)
            for running in [processes.is_running(pid, self._marker(node))]
        )
        servers = ",".join(node.address for node in state.nodes)
        running = bool(nodes) and all(node.running for node in nodes)
        return ClusterStatus(str(self.data), running, servers, nodes)

    @contextmanager
    def for_this_process(self, options: BrokerOptions) -> Iterator[ClusterStatus]:
        """Run for the time of the block, and not longer than this process: for tests."""
        watchers: list[subprocess.Popen[bytes]] = []
        try:
            status = self.start(options)
            state = self._read()
            for node, pid in zip(state.nodes, state.pids, strict=True):
                if pid is not None:
                    watchers.append(processes.kill_with_parent(pid, self._marker(node)))
            yield status
        finally:
            self.stop(kill=True)
            for watcher in watchers:
                watcher.communicate()

    def log_file(self, node: int) -> Path:
        """Where a node writes what happens to it."""
        return self.data / f"node-{node}.log"

    # Planning

    def _planned(self, state: _State, options: BrokerOptions) -> _State:
        """The nodes with their ports: as they are while one of them runs."""
        if state.nodes and len(state.nodes) != options.brokers:
            many = "1 broker" if len(state.nodes) == 1 else f"{len(state.nodes)} brokers"
            raise BrokerError(
                f"The data in '{self.data}' is of {many}, not of {options.brokers}. "
                "Choose another folder with --data."
            )
        running = [
            processes.is_running(pid, self._marker(node))
            for node, pid in zip(state.nodes, state.pids, strict=True)
        ]
        if any(running):
            first = state.nodes[0].port
            if options.port not in {None, 0, first}:
                raise BrokerError(
                    f"The broker of '{self.data}' runs already, on port {first}. "
                    "Stop it before it can have another."
                )
            return state
        nodes = ports.assign_ports(state.nodes, options)
        return _State(state.cluster_id or new_cluster_id(), nodes, (None,) * len(nodes))

    # Processes

    def _marker(self, node: BrokerNode) -> str:
        return f"-Dpenstock.broker={self._folder(node)}"

    def _folder(self, node: BrokerNode) -> Path:
        return self.data / f"node-{node.id}"

    def _log_file(self, node: BrokerNode) -> Path:
        return self.log_file(node.id)

    def _properties(self, node: BrokerNode) -> Path:
        return self.data / f"node-{node.id}.properties"

    def _write_properties(self, node: BrokerNode, state: _State, options: BrokerOptions) -> None:
        text = server_properties(node, state.nodes, self._folder(node), options)
        self._properties(node).write_text(text, encoding="utf-8")

    def _format(self, node: BrokerNode, cluster_id: str, java: _Java) -> None:
        ran = subprocess.run(
            java.command("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id,
                         "--config", str(self._properties(node))),
            capture_output=True, text=True, check=False, timeout=_START_TIMEOUT_S,
        )
        if ran.returncode:
            raise BrokerError(
                f"The folder of node {node.id} could not be prepared.\n"
                f"{(ran.stderr or ran.stdout).strip()[-2000:]}"
            )

    def _launch(self, node: BrokerNode, java: _Java) -> int:
        with open(self._log_file(node), "ab") as log:
            process = subprocess.Popen(
                java.command("kafka.Kafka", str(self._properties(node)),
                             flags=(self._marker(node),)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self.data,
            )
        # It outlives this process; its id is in the file.
        process.returncode = 0
        return process.pid

    def _wait(self, state: _State, logs: dict[int, int]) -> None:
        """Until every node that was started has said that it is ready."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        waiting = dict(logs)
        while waiting:
            for at, begin in list(waiting.items()):
                node = state.nodes[at]
                said = _text_from(self._log_file(node), begin)
                if _STARTED in said:
                    del waiting[at]
                elif not processes.is_running(state.pids[at], self._marker(node)):
                    raise self._failed(node, said)
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"The broker did not start within {_START_TIMEOUT_S:.0f} s. "
                    f"See '{self._log_file(state.nodes[0])}'."
                )
            if waiting:
                time.sleep(_PAUSE_S)

    def _failed(self, node: BrokerNode, said: str) -> BrokerError:
        if "Address already in use" in said:
            return PortInUse(node.port)
        lines = said.strip().splitlines()
        telling = [line for line in lines if "ERROR" in line or "Exception" in line] or lines
        return BrokerError(
            f"Node {node.id} ended while it started.\n  " + "\n  ".join(telling[-6:]) +
            f"\nAll it said is in '{self._log_file(node)}'."
        )

    def _end(self, nodes: Sequence[BrokerNode], state: _State, *, kill: bool = False) -> None:
        pids = dict(zip((node.id for node in state.nodes), state.pids, strict=True))
        for node in reversed(nodes):
            pid = pids[node.id]
            if pid is not None and processes.is_running(pid, self._marker(node)):
                processes.end(pid, self._marker(node), _STOP_TIMEOUT_S, kill=kill)
            pids[node.id] = None
        self._write(replace(state, pids=tuple(pids.values())))

    # The file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.data / "broker.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> _State:
        try:
            text = (self.data / "broker.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return _State("")
        told = json.loads(text)
        nodes = tuple(
            BrokerNode(one["id"], one["port"], one["controller_port"]) for one in told["nodes"]
        )
        return _State(told["cluster_id"], nodes, tuple(one["pid"] for one in told["nodes"]))

    def _write(self, state: _State) -> None:
        told = {
            "kafka": jars.VERSION,
            "cluster_id": state.cluster_id,
            "nodes": [
                {**asdict(node), "pid": pid}
                for node, pid in zip(state.nodes, state.pids, strict=True)
            ],
        }
        new = self.data / "broker.json.new"
        new.write_text(json.dumps(told, indent=2), encoding="utf-8")
        new.replace(self.data / "broker.json")


@dataclass(frozen=True, slots=True)
class _Java:
    """How java is called for Kafka."""

    program: str
    class_path: str
    options: BrokerOptions

    def command(self, main: str, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
        """A command line."""
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if self.options.for_tests else []
        return [
            self.program, f"-Xmx{self.options.heap_mb}m", *quick, *flags,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
            "-cp", self.class_path, main, *arguments,
        ]


def kafka_tool_command(main: str, *arguments: str) -> list[str]:
    """The command line of one of Kafka's own tools, such as the console consumer."""
    options = BrokerOptions(heap_mb=256, for_tests=True)
    return _Java(jars.java(), jars.class_path(), options).command(main, *arguments)


def new_cluster_id() -> str:
    """A Kafka id. One that begins with a dash would be taken for an option by Kafka's tools."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not made.startswith("-"):
            return made


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _text_from(path: Path, begin: int) -> str:
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read().decode("utf-8", "replace")
