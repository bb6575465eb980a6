"""The application of `bench/cluster.py`, as its driver runs it.

Reads one JSON object from the command line, and prints JSON objects, one per line:

    fill    create a topic and append orders to it
    run     run an application until it has caught up, and compare its results with its input

Topologies: `stateless` writes each record, `stateful` counts by key, `wide` counts in many stores
of one sub-topology. A record costs time, not CPU, so that more executors than cores can be used:
see `Cost`.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from typing import Any

from orders import orders

from penstock import (
    Serdes,
    StateRestoreListener,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from penstock.engine.batch_report import BatchReport
from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.partitioning import partition_of
from penstock.record import TaskId

STRING, LONG = Serdes.string(), Serdes.long()
KEYS = 20_000
#: A sleep of microseconds takes longer than that, so the time of many records is slept together.
SLEEP_S = 0.010
#: How often progress is printed, and how often committed offsets are read.
PROGRESS_S, SAMPLE_S = 0.5, 0.1
#: The first seconds of a steady input are not watched.
WARM_UP_S = 3.0


class Cost:
    """Lets each record take the same time. A sleep that takes too long shortens the next one."""

    def __init__(self, microseconds: float) -> None:
        self._seconds = microseconds / 1e6
        self._owed = 0.0

    def spend(self, value: str) -> str:
        self._owed += self._seconds
        if self._owed >= SLEEP_S:
            begun = time.perf_counter()
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - begun
        return value


def emit(**values: Any) -> None:
    print(json.dumps(values), flush=True)


# ---- the topologies --------------------------------------------------------------------------


def build(spec: dict[str, Any]) -> Topology:
    builder = StreamsBuilder()
    source = builder.stream(spec["source"], key=STRING, value=STRING)
    if spec["cost_us"]:
        source = source.map_values(Cost(spec["cost_us"]).spend)
    if spec["topology"] == "stateless":
        source.to(spec["output"], key=STRING, value=STRING)
    elif spec["topology"] == "stateful":
        counts = source.group_by_key().count(store="counts").to_stream()
        counts.to(spec["output"], key=STRING, value=LONG)
    else:
        for number in range(spec["stores"]):
            chosen = source.filter(
                lambda key, value, of=spec["stores"], number=number: int(key[-6:]) % of == number
            )
            counts = chosen.group_by_key().count(store=f"counts-{number}").to_stream()
            counts.to(spec["output"], key=STRING, value=LONG)
    return builder.build()


def fill(log: Log, spec: dict[str, Any]) -> None:
    """Append orders to all partitions. Their keys end in six digits."""
    topic, partitions = spec["topic"], spec["partitions"]
    if not any(each.name == topic for each in log.topics()):
        log.create_topic(topic, partitions, {"retention.ms": "-1"})
    chance = orders(spec["records"], keys=spec["keys"], seed=spec.get("seed", 7))
    parts: dict[int, list[int]] = {}
    keys = [b"customer_%06d" % int(key.rpartition(b"_")[2]) for key in chance.keys]
    for number, key in enumerate(keys):
        parts.setdefault(partition_of(key, partitions), []).append(number)
    for partition, numbers in parts.items():
        log.append(topic, partition, RecordColumns(
            [keys[n] for n in numbers], [chance.values[n] for n in numbers],
            [chance.timestamps[n] for n in numbers],
        ))
    emit(event="filled", records=spec["records"])


# ---- the results -----------------------------------------------------------------------------


def columns(log: Log, topic: str) -> Any:
    """The keys and values of all records of a topic, by partition in the order of the log."""
    for partition in range(log.topic(topic).partitions):
        bounds = log.offsets([TopicPartition(topic, partition)])
        (found,) = bounds.values()
        for batch in log.read(topic, partition, found.start, found.end):
            read = batch.columns()
            yield from zip(read.keys, read.values, strict=True)


def check(log: Log, spec: dict[str, Any]) -> dict[str, Any]:
    """Compare the output with the input: all records, or the last count of every key."""
    if spec["topology"] == "stateless":
        expected = Counter(columns(log, spec["source"]))
        found = Counter(columns(log, spec["output"]))
        wrong = sum(((expected - found) + (found - expected)).values())
        return {"checked": sum(expected.values()), "wrong": wrong}
    counts = Counter(key for key, _ in columns(log, spec["source"]))
    last = {key: int.from_bytes(value, "big") for key, value in columns(log, spec["output"])}
    wrong = len(counts.keys() ^ last.keys()) + sum(
        last[key] != count for key, count in counts.items() if key in last
    )
    return {"checked": len(counts), "wrong": wrong}


# ---- the run ---------------------------------------------------------------------------------


class Input(threading.Thread):
    """Appends records to all partitions at a steady rate, for a while."""

    def __init__(self, log: Log, topic: str, rate: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._log = open_log(log.address)
        self._topic = topic
        self._partitions = log.topic(topic).partitions
        self._count = round(seconds / SAMPLE_S)
        self._each = max(1, round(rate * SAMPLE_S / self._partitions))

    def run(self) -> None:
        begun = time.monotonic()
        for number in range(self._count):
            time.sleep(max(0.0, begun + number * SAMPLE_S - time.monotonic()))
            with self._log.transaction() as transaction:
                for partition in range(self._partitions):
                    keys = [b"steady_%02d_%04d" % (partition, n) for n in range(self._each)]
                    transaction.append(
                        self._topic, partition, RecordColumns(keys, [b"x"] * self._each)
                    )
        self._log.close()


class Restores(StateRestoreListener):
    """Counts the records of each restored store."""

    def __init__(self) -> None:
        self.totals: list[int] = []

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.totals.append(total)


class Pauses:
    """Finds the longest times without a commit while records arrive at a steady rate."""

    def __init__(self, reports: list[tuple[float, BatchReport]]) -> None:
        """`reports`: of the time in which records arrived."""
        #: Task -> its longest time without a commit.
        self.of_tasks: dict[TaskId, float] = {}
        self.of_all = 0.0
        last: dict[TaskId, float] = {}
        for at, report in reports:
            tasks = [task_id for task_id, counts in report.counters.items()
                     if counts.get("process-total")]
            if tasks:
                self.of_all = max(self.of_all, at - max(last.values(), default=at))
            for task_id in tasks:
                pause = at - last.get(task_id, at)
                self.of_tasks[task_id] = max(self.of_tasks.get(task_id, 0.0), pause)
                last[task_id] = at


def run(log: Log, spec: dict[str, Any]) -> None:
    """Run until everything is processed; wait for a line; stop, and check the results."""
    started = time.perf_counter()
    reports: list[tuple[float, BatchReport]] = []
    output = spec["output"]
    if not any(each.name == output for each in log.topics()):
        log.create_topic(output, log.topic(spec["source"]).partitions, {"retention.ms": "-1"})
    config = StreamsConfig(
        application_id=spec["application"], log=log.address, execution=spec["execution"],
        state_dir=spec["state_dir"], extra={"auto.offset.reset": "earliest", **spec["settings"]},
    )
    streams = Streams(
        build(spec), config, master=spec["master"],
        on_batch=lambda report: reports.append((time.perf_counter(), report)),
    )
    restores = Restores()
    streams.set_global_state_restore_listener(restores)
    steady = spec.get("steady")
    running_at: list[float] = []
    streams.set_state_listener(
        lambda new, old: running_at.append(time.perf_counter()) if new.name == "RUNNING" else None
    )
    ended = threading.Event()
    with streams:
        threading.Thread(target=report_progress, args=(reports, ended), daemon=True).start()
        pauses = {}
        if steady:
            streams.run_until_caught_up(timeout=spec.get("timeout_s", 170))
            emit(event="steady")
            arriving = Input(log, spec["source"], **steady)
            arriving.start()
            time.sleep(WARM_UP_S)
            before = len(reports)
            arriving.join()
            found = Pauses(reports[before:])
            pauses = {
                "pauses_s": sorted(round(pause, 2) for pause in found.of_tasks.values()),
                "longest_common_pause_s": round(found.of_all, 2),
            }
        streams.run_until_caught_up(timeout=spec.get("timeout_s", 170))
        ended.set()
        busy = [(end, report) for end, report in reports if report.records]
        records = sum(report.input_records for _, report in busy)
        seconds = busy[-1][0] - (busy[0][0] - busy[0][1].seconds) if busy else 0.0
        emit(
            event="caught-up", records=records, seconds=round(seconds, 3),
            rate=round(records / seconds) if seconds else 0, commits=len(busy),
            outputs=sum(report.outputs for _, report in busy),
            changes=sum(report.changes for _, report in busy),
            running_after_s=round(running_at[0] - started, 2) if running_at else None,
            caught_up_after_s=round(time.perf_counter() - started, 2),
            restored_stores=len(restores.totals), restored_records=sum(restores.totals),
            threads={
                each.thread_name: len(each.active_tasks)
                for each in streams.metadata_for_local_threads()
            },
            **pauses,
        )
        sys.stdin.readline()
    emit(event="checked", **check(log, spec))


def report_progress(reports: list[tuple[float, BatchReport]], ended: threading.Event) -> None:
    while not ended.wait(PROGRESS_S):
        emit(event="progress", records=sum(each.input_records for _, each in list(reports)))


def main() -> None:
    spec = json.loads(sys.argv[1])
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("penstock").setLevel(spec.get("log_level", "WARNING"))
    with open_log(spec["log"]) as log:
        (fill if spec["command"] == "fill" else run)(log, spec)


if __name__ == "__main__":
    main()
