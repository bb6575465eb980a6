"""Start, stop and status of the brokers of one data directory.

`broker.json` in the directory lists the nodes, their ports and process ids. Commands write it under
a lock, so that two commands do not start the same node twice. A node is running if its process is
alive and was started for this directory, regardless of the file.
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

_READY_MESSAGE = "Kafka Server started"
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The current state of a node."""

    id: int
    port: int
    pid: int | None
    running: bool


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The current state of a cluster. `bootstrap_servers` is empty before the first start."""

    data: str
    running: bool
    bootstrap_servers: str
    nodes: tuple[NodeStatus, ...]
    kafka: str = jars.VERSION

    @property
    def address(self) -> str:
        """The address for `open_log` and `--log`."""
        return f"kafka://{self.bootstrap_servers}"

    def as_json(self) -> dict[str, object]:
        """Return the output of `penstock broker status --json`."""
        return {**asdict(self), "log": self.address if self.nodes else None}


@dataclass(frozen=True, slots=True)
class _ClusterState:
    """The content of `broker.json`."""

    cluster_id: str
    nodes: tuple[BrokerNode, ...] = ()
    pids: tuple[int | None, ...] = ()


class LocalCluster:
    """The brokers of one data directory. Keeps nothing open between calls."""

    def __init__(self, data: str | os.PathLike[str]) -> None:
        self.data = Path(data).absolute()

    def start(
        self, options: BrokerOptions, on_jar: Callable[[str], None] | None = None
    ) -> ClusterStatus:
        """Start the nodes that are not running, and wait until they accept clients."""
        program = jars.java()
        class_path = jars.class_path(on_jar)
        self.data.mkdir(parents=True, exist_ok=True)
        with self._locked():
            state = self._plan(self._read(), options)
            stopped = [
                n for n, node in enumerate(state.nodes)
                if not processes.is_running(state.pids[n], self._marker(node))
            ]
            for n in stopped:
                ports.check_free(state.nodes[n].port)
            java = _JavaCommand(program, class_path, options)
            pids = list(state.pids)
            log_offsets: dict[int, int] = {}
            try:
                for n in stopped:
                    node = state.nodes[n]
                    self._write_properties(node, state, options)
                    if not (self._directory(node) / "meta.properties").exists():
                        self._format(node, state.cluster_id, java)
                    log_offsets[n] = _file_size(self._log_file(node))
                    pids[n] = self._launch(node, java)
                    state = replace(state, pids=tuple(pids))
                    self._write(state)
                self._wait_until_ready(state, log_offsets)
            except BaseException:
                self._stop_nodes([state.nodes[n] for n in log_offsets], state)
                raise
        return self.status()

    def stop(self, *, node: int | None = None, kill: bool = False) -> ClusterStatus:
        """Stop all nodes, or one of them, by process id."""
        if self.data.is_dir():
            with self._locked():
                state = self._read()
                chosen = [one for one in state.nodes if node in {None, one.id}]
                if node is not None and not chosen:
                    known = ", ".join(str(one.id) for one in state.nodes) or "none"
                    raise BrokerError(
                        f"Node {node} does not exist in '{self.data}'. Nodes: {known}."
                    )
                self._stop_nodes(chosen, state, kill=kill)
        return self.status()

    def status(self) -> ClusterStatus:
        """Return the current state."""
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
        """Run the cluster during the block, at most as long as this process. For tests."""
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
        """Return the path of a node's log file."""
        return self.data / f"node-{node}.log"

    def _plan(self, state: _ClusterState, options: BrokerOptions) -> _ClusterState:
        """Return the nodes with their ports, which do not change while a node is running."""
        if state.nodes and len(state.nodes) != options.brokers:
            count = "1 broker" if len(state.nodes) == 1 else f"{len(state.nodes)} brokers"
            raise BrokerError(
                f"The data directory '{self.data}' belongs to a cluster of {count}, not of "
                f"{options.brokers}. Choose another directory with --data."
            )
        running = [
            processes.is_running(pid, self._marker(node))
            for node, pid in zip(state.nodes, state.pids, strict=True)
        ]
        if any(running):
            first = state.nodes[0].port
            if options.port not in {None, 0, first}:
                raise BrokerError(
                    f"The broker of '{self.data}' is already running on port {first}. "
                    "Stop it before you change its port."
                )
            return state
        nodes = ports.assign_ports(state.nodes, options)
        return _ClusterState(state.cluster_id or new_cluster_id(), nodes, (None,) * len(nodes))

    def _marker(self, node: BrokerNode) -> str:
        return f"-Dpenstock.broker={self._directory(node)}"

    def _directory(self, node: BrokerNode) -> Path:
        return self.data / f"node-{node.id}"

    def _log_file(self, node: BrokerNode) -> Path:
        return self.log_file(node.id)

    def _properties(self, node: BrokerNode) -> Path:
        return self.data / f"node-{node.id}.properties"

    def _write_properties(
        self, node: BrokerNode, state: _ClusterState, options: BrokerOptions
    ) -> None:
        text = server_properties(node, state.nodes, self._directory(node), options)
        self._properties(node).write_text(text, encoding="utf-8")

    def _format(self, node: BrokerNode, cluster_id: str, java: _JavaCommand) -> None:
        result = subprocess.run(
            java.arguments("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id,
                           "--config", str(self._properties(node))),
            capture_output=True, text=True, check=False, timeout=_START_TIMEOUT_S,
        )
        if result.returncode:
            raise BrokerError(
                f"Kafka could not format the data directory of node {node.id}.\n"
                f"{(result.stderr or result.stdout).strip()[-2000:]}"
            )

    def _launch(self, node: BrokerNode, java: _JavaCommand) -> int:
        with open(self._log_file(node), "ab") as log:
            process = subprocess.Popen(
                java.arguments("kafka.Kafka", str(self._properties(node)),
                               flags=(self._marker(node),)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self.data,
            )
        # The process outlives this one. Popen must not warn about it.
        process.returncode = 0
        return process.pid

    def _wait_until_ready(self, state: _ClusterState, log_offsets: dict[int, int]) -> None:
        """Wait until the log of every started node contains the ready message."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        waiting = dict(log_offsets)
        while waiting:
            for n, offset in list(waiting.items()):
                node = state.nodes[n]
                output = _read_from(self._log_file(node), offset)
                if _READY_MESSAGE in output:
                    del waiting[n]
                elif not processes.is_running(state.pids[n], self._marker(node)):
                    raise self._start_error(node, output)
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"The broker did not start within {_START_TIMEOUT_S:.0f} s. "
                    f"See '{self._log_file(state.nodes[0])}'."
                )
            if waiting:
                time.sleep(_POLL_S)

    def _start_error(self, node: BrokerNode, output: str) -> BrokerError:
        if "Address already in use" in output:
            return PortInUse(node.port)
        lines = output.strip().splitlines()
        errors = [line for line in lines if "ERROR" in line or "Exception" in line] or lines
        return BrokerError(
            f"Node {node.id} exited during startup.\n  " + "\n  ".join(errors[-6:]) +
            f"\nSee '{self._log_file(node)}' for its full output."
        )

    def _stop_nodes(
        self, nodes: Sequence[BrokerNode], state: _ClusterState, *, kill: bool = False
    ) -> None:
        pids = dict(zip((node.id for node in state.nodes), state.pids, strict=True))
        for node in reversed(nodes):
            pid = pids[node.id]
            if pid is not None and processes.is_running(pid, self._marker(node)):
                processes.stop(pid, self._marker(node), _STOP_TIMEOUT_S, kill=kill)
            pids[node.id] = None
        self._write(replace(state, pids=tuple(pids.values())))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.data / "broker.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> _ClusterState:
        try:
            text = (self.data / "broker.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return _ClusterState("")
        stored = json.loads(text)
        nodes = tuple(
            BrokerNode(one["id"], one["port"], one["controller_port"]) for one in stored["nodes"]
        )
        return _ClusterState(
            stored["cluster_id"], nodes, tuple(one["pid"] for one in stored["nodes"])
        )

    def _write(self, state: _ClusterState) -> None:
        stored = {
            "kafka": jars.VERSION,
            "cluster_id": state.cluster_id,
            "nodes": [
                {**asdict(node), "pid": pid}
                for node, pid in zip(state.nodes, state.pids, strict=True)
            ],
        }
        new = self.data / "broker.json.new"
        new.write_text(json.dumps(stored, indent=2), encoding="utf-8")
        new.replace(self.data / "broker.json")


@dataclass(frozen=True, slots=True)
class _JavaCommand:
    """Builds command lines of Kafka's Java programs."""

    program: str
    class_path: str
    options: BrokerOptions

    def arguments(self, main: str, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs the class `main`."""
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if self.options.for_tests else []
        return [
            self.program, f"-Xmx{self.options.heap_mb}m", *quick, *flags,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
            "-cp", self.class_path, main, *arguments,
        ]


def kafka_tool_command(main: str, *arguments: str) -> list[str]:
    """Return the command line of one of Kafka's own tools, such as the console consumer."""
    options = BrokerOptions(heap_mb=256, for_tests=True)
    return _JavaCommand(jars.java(), jars.class_path(), options).arguments(main, *arguments)


def new_cluster_id() -> str:
    """Return a random id that does not start with a dash: Kafka's tools would read an option."""
    while True:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not cluster_id.startswith("-"):
            return cluster_id


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read_from(path: Path, offset: int) -> str:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read().decode("utf-8", "replace")
