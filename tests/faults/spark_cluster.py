"""A Spark cluster on this machine: a master, and workers that Spark regards as different hosts.

Spark runs a second attempt of a task only on another host, and identifies hosts by their names. All
of 127.0.0.0/8 is this machine, so each worker gets its own address there. No process listens on any
other address. With a `Network`, the workers run on hosts of their own instead.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pyspark

from faults.cluster_hosts import Network
from faults.engine_processes import Process, processes, send, wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
_SPARK_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = "Successfully registered with master"


class SparkCluster:
    """A master, and a worker with one core for each host. Executors run in their folders."""

    def __init__(
        self, directory: Path, hosts: Sequence[str] = HOSTS, network: Network | None = None
    ) -> None:
        """`hosts`: addresses of this machine, or names of hosts in the network. The master runs on
        the first one."""
        directory.mkdir()
        self._directory = directory
        self._network = network
        self._daemons: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        #: Host -> the process session of its worker.
        self._workers: dict[str, int] = {}
        try:
            output = self._start("master", hosts[0], "master.Master")
            wait_until("the master had started", lambda: _MASTER.search(output.read_text()))
            found = _MASTER.search(output.read_text())
            assert found is not None
            #: The master URL for applications.
            self.master = found[1]
            self.add_workers(hosts)
        except BaseException:
            self.close()
            raise

    def add_workers(self, hosts: Sequence[str]) -> None:
        """Start a worker on each host and wait until they have registered."""
        outputs = [
            self._start(
                f"worker-{host}", host, "worker.Worker", "--cores", "1", "--memory", "2g",
                "--work-dir", str(self._private(host, "work")), self.master,
            )
            for host in hosts
        ]
        wait_until(
            "all workers had registered",
            lambda: all(_WORKER in output.read_text() for output in outputs),
        )

    def _start(self, name: str, host: str, kind: str, *arguments: str) -> Path:
        output = self._directory / f"{name}.log"
        self.temporary(host).mkdir(exist_ok=True)
        stream = output.open("wb")
        address = self._address(host)
        command = [
            str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}",
            "--host", address, "--port", "0", "--webui-port", "0", *arguments,
        ]
        if self._network is not None:
            command = self._network.hosts[host].command(*command)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            start_new_session=True, cwd=self._directory,
            env={
                **os.environ, "SPARK_HOME": str(_SPARK_HOME), "SPARK_LOCAL_IP": address,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_DIRS": str(self._private(host, "spark")),
                "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
                # The processes are short-lived.
                "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "TMPDIR": str(self._private(host, "tmp")),
            },
        )
        self._daemons.append((process, stream))
        if kind == "worker.Worker":
            self._workers[host] = process.pid
        return output

    def _address(self, host: str) -> str:
        return host if self._network is None else self._network.hosts[host].address

    def _private(self, host: str, name: str) -> Path:
        """A directory of a host, as its processes see it."""
        if self._network is not None:
            return self._network.private / name
        return self._directory / f"{name}-{host}"

    def temporary(self, host: str) -> Path:
        """The temporary directory of the executors of a host, as this process sees it."""
        if self._network is not None:
            return self._network.hosts[host].directory / "tmp"
        return self._private(host, "tmp")

    def signal_host(self, host: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a host: the worker, executors, Python workers."""
        for pid in processes(self._workers[host]):
            send(pid, number)

    @property
    def sessions(self) -> list[int]:
        """The process sessions of the daemons and of the processes that they start."""
        return [process.pid for process, _ in self._daemons]

    def states(self) -> Iterator[Path]:
        """The state folders of executors."""
        return self._directory.glob("work-*/*/*/state")

    def all(self) -> list[Process]:
        """All running processes of the cluster."""
        return [each for session in self.sessions for each in processes(session).values()]

    def close(self) -> None:
        """Stop all processes."""
        # Workers first: they would wait for a master that has stopped.
        for process, stream in reversed(self._daemons):
            process.kill()
            process.wait()
            stream.close()
        for each in self.all():
            send(each.pid, signal.SIGKILL)
        wait_until("all processes of the cluster had ended", lambda: not self.all())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
