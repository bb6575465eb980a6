"""penstock beside other Python stream processors: one broker, the same topics, one run.

    W1  stateless: filter, map, write
    W2  count by key (100,000 keys), every update written (but see Pathway and Structured
        Streaming)

The programs are in `bench/peers/`, written as the documentation of each project does, with its
default settings unless they say otherwise. The packages are installed in virtualenvs of their own,
in `peers/` of penstock's cache directory (`~/.cache/penstock`), when they are missing: 3.3 GB.
A peer that cannot be installed or that fails is reported and has no figure.

    penstock              one application on Spark `local[2]`, continuous and batch mode
    Quix Streams          2 processes in a consumer group, RocksDB with changelogs; exactly once
                          with a commit every second, because outputs are visible after a commit
    Bytewax               a cluster of 2 processes, state snapshots every 10 s
    Faust                 2 workers in a consumer group, tables in memory with changelogs
    Pathway               2 processes in a consumer group, snapshots of the input on disk every
                          10 s; W2 writes an update for each key and micro-batch, and a retraction
                          of the count before, which does not count as an output
    PyFlink               one job in a local cluster, parallelism 2 (functions in 2 processes),
                          state in memory with checkpoints every 10 s; exactly once with a
                          checkpoint every second, because outputs are visible after a checkpoint
    Structured Streaming  one application on Spark `local[2]`, state store in memory with
                          checkpoints; W2 writes an update for each key and micro-batch, not for
                          each order. It runs on Spark 4.0.0, an older version than penstock's: for
                          newer ones, Maven Central lacks a jar that the Kafka connector needs

The rate is the same for all: the application runs and has processed two warm-ups of 20,000 orders.
Its processes are suspended (SIGSTOP) while the orders are appended to the input topic. The time
runs from the moment when they resume until a read_committed consumer has seen the last output.
So starting is excluded, all input exists at the start, and the last commit is included. The number
of outputs is checked, for W2 also the last count of every key. The length of the suspension is
reported: from 45 s on, a member of a consumer group loses its partitions.

    python bench/peers.py [--records 200000 1000000] [--only quix ...] [--workloads W1 W2]
                          [--rounds 2]

Needs Linux and Java.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peer_programs
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from orders import Orders, orders
from peer_programs import PEERS, Peer, PeerFailed, Program

import engine
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import open_log

WORKLOADS = ("W1", "W2")
WARM_UPS, WARM_UP_ORDERS = 2, 20_000
_START_TIMEOUT_S = 180


class Reader:
    """A read_committed consumer of an output topic, which sums up what it has seen."""

    def __init__(
        self, broker: str, topic: str, read_count: Callable[[bytes], int | None] | None
    ) -> None:
        """`read_count` decodes the counts of W2, see `Peer`."""
        self.outputs = 0
        #: The newest counts of all keys, and their sum.
        self.counts: dict[bytes, int] = {}
        self.counted = 0
        self._read_count = read_count
        self._consumer = Consumer({
            "bootstrap.servers": broker, "group.id": "bench-reader", "enable.auto.commit": False,
            "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
        })
        self._consumer.assign([TopicPartition(topic, n, 0) for n in range(engine.PARTITIONS)])

    @property
    def progress(self) -> int:
        """The outputs of W1, or the orders that are counted in those of W2."""
        return self.outputs if self._read_count is None else self.counted

    def read(self) -> bool:
        """Read what is available. Returns whether there was any."""
        first = self._consumer.poll(0.05)
        if first is None:
            return False
        # `consume` with a timeout would wait for all of them, or for the whole timeout.
        for message in (first, *self._consumer.consume(10_000, 0)):
            if message.error() is not None:
                continue
            if self._read_count is not None:
                key, count = message.key(), self._read_count(message.value())
                if count is None:
                    continue
                self.counted += count - self.counts.get(key, 0)
                self.counts[key] = count
            self.outputs += 1
        return True

    def read_until(self, progress: int, program: Program, timeout_s: float) -> None:
        """Read up to a progress, or raise `PeerFailed`."""
        deadline = time.monotonic() + timeout_s
        while self.progress < progress:
            if not self.read():
                program.check()
            if time.monotonic() > deadline:
                raise PeerFailed(
                    f"not complete after {timeout_s:.0f} s: {self.progress:,} of {progress:,}"
                )

    def read_rest(self, quiet_s: float = 1.0) -> None:
        """Read until nothing has come for a while."""
        end = time.monotonic() + quiet_s
        while time.monotonic() < end:
            if self.read():
                end = time.monotonic() + quiet_s

    def close(self) -> None:
        self._consumer.close()


class Bench:
    """A broker and the orders, for one run after the other."""

    def __init__(self, folder: Path, broker: str, timeout_s: float) -> None:
        self._site = engine.Site(folder, None, open_log(f"kafka://{broker}"))
        self._broker = broker
        self._folder = folder
        self._timeout_s = timeout_s
        self._admin = AdminClient({"bootstrap.servers": broker})
        self._warm_up = orders(WARM_UP_ORDERS, seed=11)
        self._runs = 0

    def measure(self, peer: Peer, workload: str, measured: Orders) -> dict[str, Any]:
        """Run a workload once. Returns its rate and outputs, or `failed` with the reason."""
        self._runs += 1
        name = f"peer-{self._runs}"
        folder = self._folder / name
        folder.mkdir()
        source, target = (self._site.topic(f"{name}-{end}") for end in ("orders", "outputs"))
        reader = Reader(self._broker, target, peer.read_count if workload == "W2" else None)
        settings = {
            "broker": self._broker, "input": source, "output": target, "application": name,
            "workload": workload,
        }
        try:
            with peer_programs.running(peer, folder, **settings) as program:
                if peer.members:
                    self._await_members(name, peer.members, program)
                for _ in range(WARM_UPS):
                    self._site.fill(source, self._warm_up)
                    wanted = reader.progress + _expected(workload, self._warm_up)
                    reader.read_until(wanted, program, _START_TIMEOUT_S)
                    reader.read_rest()
                return self._timed(program, reader, source, workload, measured)
        except PeerFailed as failure:
            return {"failed": str(failure)}
        finally:
            reader.close()
            self._site.log.delete_topic(source)
            self._site.log.delete_topic(target)

    def _timed(
        self, program: Program, reader: Reader, source: str, workload: str, measured: Orders
    ) -> dict[str, Any]:
        outputs, progress = reader.outputs, reader.progress
        expected = _expected(workload, measured)
        suspended = time.perf_counter()
        program.suspend()
        self._site.fill(source, measured)
        program.resume()
        begun = time.perf_counter()
        reader.read_until(progress + expected, program, self._timeout_s)
        seconds = time.perf_counter() - begun
        reader.read_rest()
        if reader.progress != progress + expected:
            raise PeerFailed(f"{reader.progress - progress:,} instead of {expected:,} outputs")
        if workload == "W2" and reader.counts != self._final_counts(measured):
            raise PeerFailed("the last counts of some keys are wrong")
        return {
            "records_per_second": round(len(measured.keys) / seconds),
            "seconds": round(seconds, 2), "suspended_seconds": round(begun - suspended, 1),
            "outputs": reader.outputs - outputs,
        }

    def _final_counts(self, measured: Orders) -> dict[bytes, int]:
        return Counter(measured.keys + WARM_UPS * self._warm_up.keys)

    def _await_members(self, group: str, count: int, program: Program) -> None:
        """Wait until all members have partitions, so that no record is processed before."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            program.check()
            # The group has no coordinator before its first member joins.
            with contextlib.suppress(KafkaException):
                found = self._admin.describe_consumer_groups([group])[group].result()
                members = [each for each in found.members if each.assignment.topic_partitions]
                if found.state == ConsumerGroupState.STABLE and len(members) == count:
                    return
            time.sleep(0.2)
        raise PeerFailed(f"its members did not share the partitions in {_START_TIMEOUT_S} s")

    def close(self) -> None:
        self._site.log.close()


def _expected(workload: str, records: Orders) -> int:
    if workload == "W2":
        return len(records.keys)
    return sum(b'"orderType":"GENERAL"' in value for value in records.values)


# ---- the run ---------------------------------------------------------------------------------


#: By the number of orders, peer and workload.
Figures = dict[int, dict[str, dict[str, dict[str, Any]]]]


def compare(
    bench: Bench, counts: list[int], names: list[str], workloads: list[str], rounds: int
) -> Figures:
    """The better round of each peer and workload. The peers take turns."""
    figures: Figures = {count: {name: {} for name in names} for count in counts}
    for count in counts:
        measured = orders(count)
        for workload in workloads:
            for name in names * rounds:
                found = bench.measure(PEERS[name], workload, measured)
                title = f"{_column(workload, count)}, {PEERS[name].title}"
                print(f"{title}: {_describe(found)}", flush=True)
                best = figures[count][name].setdefault(workload, found)
                if _rate(found) > _rate(best):
                    figures[count][name][workload] = found
    return figures


def _rate(found: dict[str, Any]) -> int:
    return int(found.get("records_per_second", 0))


def _column(workload: str, count: int) -> str:
    return f"{workload}, {count:,} orders"


def _describe(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"failed: {found['failed']}"
    return (
        f"{found['records_per_second']:,} records/s, {found['outputs']:,} outputs in "
        f"{found['seconds']} s after a suspension of {found['suspended_seconds']} s"
    )


def table(figures: Figures, workloads: list[str]) -> str:
    """The figures in Markdown, as in docs/performance.md."""
    columns = [(count, workload) for count in figures for workload in workloads]
    rows = [
        ["records/s", "guarantee", *(_column(workload, count) for count, workload in columns)],
        ["---"] * (2 + len(columns)),
    ]
    for name in next(iter(figures.values())):
        rates = [_rate(figures[count][name][workload]) for count, workload in columns]
        cells = [f"{rate:,}" if rate else "failed" for rate in rates]
        rows.append([PEERS[name].versioned_name, PEERS[name].guarantee, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def ratios(figures: Figures) -> Iterator[str]:
    """The ratios of penstock to the others, as in the README."""
    for count, peers in figures.items():
        found = [
            _rate(own) / _rate(peers[name][workload])
            for workload, own in peers.get("penstock", {}).items()
            for name in peers if PEERS[name].package and _rate(peers[name][workload])
        ]
        if found:
            span = f"{min(found):.2g}x to {max(found):.2g}x"
            yield f"penstock to the others, {count:,} orders: {span}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument(
        "--rounds", type=int, default=2,
        help="The better round counts, because the machine is shared.",
    )
    parser.add_argument(
        "--timeout", type=float, default=1_800, help="seconds for the orders of one round"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        cluster = LocalCluster(Path(folder) / "kafka")
        with cluster.for_this_process(BrokerOptions(port=0, heap_mb=1024)) as status:
            bench = Bench(Path(folder), status.bootstrap_servers, options.timeout)
            figures = compare(
                bench, options.records, options.only, options.workloads, options.rounds
            )
            bench.close()
    print(table(figures, options.workloads), *ratios(figures), sep="\n")
    print(json.dumps({
        "bench": "peers", "rounds": options.rounds, "python": platform.python_version(),
        "pyspark": importlib.metadata.version("pyspark"),
        "packages": {name: PEERS[name].package for name in options.only if PEERS[name].package},
        "figures": figures,
    }))


if __name__ == "__main__":
    main()
