"""`server.properties` of a broker: broker and controller in one process, on loopback only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One broker of a cluster and its ports."""

    id: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerOptions:
    """How to run a cluster."""

    #: Port of the first broker; the others get the following ports. None: the ports of the last
    #: start, or 9092. 0: the ports of the last start if they are free, otherwise any free ports.
    port: int | None = None
    brokers: int = 1
    heap_mb: int = 512
    #: Prefer a quick start and few internal partitions over throughput.
    for_tests: bool = False
    #: Kafka's own settings; they override all others.
    properties: Mapping[str, str] = field(default_factory=dict)


def server_properties(
    node: BrokerNode, nodes: Sequence[BrokerNode], data: Path, options: BrokerOptions
) -> str:
    """Return the text of the node's `server.properties`."""
    replicas = min(3, len(nodes))
    internal_partitions = 2 if options.for_tests else 8
    voters = ",".join(f"{other.id}@{HOST}:{other.controller_port}" for other in nodes)
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "default.replication.factor": replicas,
        "min.insync.replicas": max(1, replicas - 1),
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": internal_partitions,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": max(1, replicas - 1),
        "transaction.state.log.num.partitions": internal_partitions,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": max(1, replicas - 1),
        "share.coordinator.state.topic.num.partitions": internal_partitions,
        # A misspelled topic is an error, as in the embedded log.
        "auto.create.topics.enable": "false",
        # Members of a local cluster need not wait for others to join.
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    if options.for_tests:
        settings |= {
            "num.network.threads": 2,
            "num.io.threads": 2,
            "group.min.session.timeout.ms": 100,
            "log.cleaner.backoff.ms": 500,
            "log.segment.delete.delay.ms": 1000,
        }
    if len(nodes) > 1:
        # Detect a killed broker within seconds.
        settings |= {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    settings |= dict(options.properties)
    return "".join(f"{name}={value}\n" for name, value in settings.items())
