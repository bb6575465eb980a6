"""Brokers that can be killed and restarted on the same ports and data."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from faults.engine_app import APPLICATION_ID
from penstock.broker import processes
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.errors import PortInUse
from penstock.broker.ports import free_ports
from penstock.broker.properties import HOST, BrokerOptions

#: The topic of the transaction coordinators.
TRANSACTIONS = "__transaction_state"
METADATA_TIMEOUT_S = 120.0


class Brokers:
    """One broker, or three. They exit with this process.

    Clients connect to `address` directly, or to `proxied` through a proxy whose target is
    `listener`.
    """

    def __init__(self, directory: Path, *, brokers: int = 1) -> None:
        self._cluster = LocalCluster(directory)
        [first, controller, self.listener, self.proxy_port] = free_ports(4)
        if brokers == 1:
            plain = f"PLAINTEXT://{HOST}:{first}"
            self._options = BrokerOptions(
                port=first, heap_mb=512, for_tests=True,
                properties={
                    "controller.quorum.voters": f"1@{HOST}:{controller}",
                    "listeners": f"{plain},CONTROLLER://{HOST}:{controller},"
                                 f"PROXIED://{HOST}:{self.listener}",
                    "advertised.listeners": f"{plain},PROXIED://{HOST}:{self.proxy_port}",
                    "listener.security.protocol.map":
                        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
                    # Transactions that time out are aborted soon, but not while the broker
                    # starts: until it knows its topics, it completes an abort without writing the
                    # markers, and the transaction stays open in the partitions without end.
                    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
                },
            )
        else:
            self._options = BrokerOptions(port=0, brokers=brokers, heap_mb=256, for_tests=True)
        #: Node -> the process that kills it when this process exits.
        self._watchers: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cluster.stop(kill=True)
        for node in list(self._watchers):
            self._forget(node)

    @property
    def address(self) -> str:
        """The address for `open_log`."""
        return self._cluster.status().address

    @property
    def proxied(self) -> str:
        """The address through the proxy."""
        return f"kafka://{HOST}:{self.proxy_port}"

    @property
    def count(self) -> int:
        return self._options.brokers

    def start(self) -> None:
        """Start the stopped brokers and wait until they accept clients."""
        status = self._start_on_free_ports()
        for node in status.nodes:
            if node.id not in self._watchers and node.pid is not None:
                marker = f"-Dpenstock.broker={self._cluster.data / f'node-{node.id}'}"
                self._watchers[node.id] = processes.kill_with_parent(node.pid, marker)

    def _start_on_free_ports(self) -> ClusterStatus:
        """Retry while a client uses the port of a killed broker: a client that reconnects may
        connect to itself, until it notices."""
        deadline = time.monotonic() + METADATA_TIMEOUT_S
        while True:
            try:
                return self._cluster.start(self._options)
            except PortInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def kill(self, node: int) -> None:
        """Kill a node with SIGKILL."""
        self._cluster.stop(node=node, kill=True)
        self._forget(node)

    def _forget(self, node: int) -> None:
        self._watchers.pop(node).communicate()

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition."""
        return self._leaders(topic)[partition]

    def coordinator(self) -> int:
        """The transaction coordinator of the application."""
        leaders = self._leaders(TRANSACTIONS)
        return leaders[_java_hash(APPLICATION_ID) % len(leaders)]

    def _leaders(self, topic: str) -> dict[int, int]:
        servers = self.address.removeprefix("kafka://")
        # No client logs: one of the nodes may have been killed.
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        metadata: Any = admin.list_topics(topic, timeout=METADATA_TIMEOUT_S)
        return {at: one.leader for at, one in metadata.topics[topic].partitions.items()}


def _java_hash(text: str) -> int:
    """Java's string hash, not negative: Kafka's partition of a transactional id depends on it."""
    number = 0
    for character in text:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >> 31 else number
    return 0 if signed == -(1 << 31) else abs(signed)
