"""A lane, driven step by step over its connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock import Serdes, StreamsBuilder, StreamsConfig, Topology
from penstock.engine.continuous.lane import Lane
from penstock.engine.continuous.messages import Ended, Ready, Start, decode_from_lane, encode
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.worker.worker import Worker
from penstock.log import Lease, Log
from penstock.record import TaskId

#: The only task of the application.
TASK = TaskId(0, 0)


class Driver:
    """The driver's end of the connection of a lane that runs in `receive`."""

    def __init__(self, lane: Lane, connection: Connection) -> None:
        self.lane = lane
        self._connection = connection

    def send(self, message: object) -> None:
        self._connection.send_bytes(encode(message))

    def receive(self, *kinds: type) -> Any:
        """Run the lane until it sends a message of one of these kinds."""
        while True:
            self.lane.step(0.001)
            for message in self.messages():
                if isinstance(message, kinds):
                    return message

    def messages(self) -> Iterator[Any]:
        """Yield the messages that the lane has sent."""
        while self._connection.poll():
            yield decode_from_lane(self._connection.recv_bytes())

    def run_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.lane.step(0.001)


def counts() -> Topology:
    """Counts words in the store "counts"."""
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(store="counts")
    return builder.build()


@contextmanager
def open_driver(
    log: Log, lease: Lease, state_dir: Path, topology: Topology | None = None, **settings: Any
) -> Iterator[Driver]:
    """Start a lane of an application; by default it counts words."""
    topology = topology or counts()
    config = StreamsConfig(
        application_id="words", log=log.address, state_dir=str(state_dir),
        execution="continuous", default_key_serde=Serdes.string(),
        default_value_serde=Serdes.string(), **settings,
    )
    graph = build_graph_for_log(log, topology, config)
    ensure_internal_topics(log, graph, -1)
    worker = Worker(
        Bundle.load(Bundle(topology, config, graph, log.address, 1).dump()), own_process=False
    )
    ours, lanes = Pipe()
    lane = Lane(worker, lanes, 1, own_process=False)
    driver = Driver(lane, ours)
    driver.send(Start(lease.create_writer(), lease.member_token(), "first"))
    driver.receive(Ready)
    try:
        yield driver
    finally:
        lane.close(Ended())
        worker.close()
