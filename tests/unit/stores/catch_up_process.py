"""A process that catches up a replica. Tests run several at the same time and kill them.

Arguments: file of the log, directory of the replica, target offset, records per chunk.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock import Serdes, Stores
from penstock.config import StreamsConfig
from penstock.engine.failpoints import failpoint
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.log import TopicPartition, open_log
from penstock.record import TaskId
from penstock.stores.bytes.store import OpenBytesStore
from penstock.stores.replica import task_replica
from penstock.stores.replica.protocol import ReplicaStore, ReplicaTarget
from penstock.stores.replica.task_replica import TaskReplica
from penstock.task.result import TaskState
from penstock.task.runtime import Environment, Runtime

STRING = Serdes.string()
TOPIC = "changelog"


def build(open_bytes: OpenBytesStore) -> Any:
    store = Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("s"), STRING, STRING
    ).build(open_bytes)
    config = StreamsConfig(application_id="app")
    store.init(Runtime(config, TaskId(0, 0), Environment(), TaskState(), {}))
    return store


def replica_in(directory: Path, log_id: str) -> TaskReplica:
    return TaskReplica.open(directory, log_id, (ReplicaStore("s", True, build),))


def main(log_file: str, directory: str, target: str, chunk: str) -> None:
    task_replica.CHUNK_RECORDS = int(chunk)
    with open_log(log_file) as log:
        replica = replica_in(Path(directory), log.id)
        topics = {"s": TopicPartition(TOPIC, 0)}
        replica.catch_up(ReplicaTarget({"s": int(target)}), LogChangelogs(log, topics), failpoint)
        with replica.snapshot(ReplicaTarget({"s": int(target)})) as snapshot:
            print(snapshot.open_bytes("s").count())
        replica.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
