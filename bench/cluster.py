"""Scale-out on a Spark standalone cluster whose workers are separate hosts, with a Kafka broker.

    scale   records/s with 1, 2 and 4 executors of one slot, for a stateless and a stateful topology
    loss    a worker host is killed during a run, and returns: time without progress, exact results
    restore a store of about 630,000 keys is restored on an empty host with one executor: rows/s
    driver  what a commit message of a lane costs the driver, without Spark and Kafka
    wide    256 partitions and 50 stores: start, restore, records/s, memory, open files

Each host is a set of Linux namespaces with its own network, processes, host name and files, see
`tests/faults/cluster_hosts.py`: a driver, a broker, and a worker with the master for each executor.
Nothing is left behind, however the program ends. Needs root and iproute2.

The machine may have fewer cores than executors. So a record costs a sleep, not CPU: 50
microseconds, slept once for the records of 10 ms, because shorter sleeps are not precise. It shows
what the engine adds to the work, and that it does not serialize the executors; not what a core can
do.

    python bench/cluster.py [--only scale|loss|restore|driver|wide] [--execution continuous|batch]
        [--topology stateless|stateful] [--executors 1 2 4] [--cost-us 50]
        [--local [--brokers 3]]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from faults import cluster_hosts
from faults.cluster_hosts import Network
from faults.engine_processes import processes
from faults.host_broker import running_broker
from faults.spark_cluster import SparkCluster
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.engine.batch_report import BatchReport
from penstock.engine.continuous.messages import Committed, decode_from_lane, encode
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.outcome import TaskOutcome, decode_outcome, encode_outcome
from penstock.record import TaskId
from penstock.task.result import TaskState

HERE = Path(__file__).parent
PARTITIONS = 16
#: How long a run with a backlog should take.
RUN_S = 12
GOALS = {1: 1.0, 2: 1.8, 4: 3.4}
#: A lost host: records/s, the seconds of the run, and when the host is lost and returns.
LOSS_RATE, LOSS_RUN_S, LOST_AT_S, RETURNS_AT_S = 2_000, 60, 8, 20


class Site:
    """The hosts, the broker, and the Spark cluster on them. Without workers: this machine, with
    Spark `local[2]`, and the embedded log or brokers on loopback."""

    def __init__(
        self, folder: Path, workers: int, heap_mb: int, log_level: str = "WARNING",
        local_brokers: int = 0,
    ) -> None:
        """`log_level`: of the driver, whose log goes to standard error."""
        self._log_level = log_level
        self.workers = [f"worker{n}" for n in range(1, workers + 1)]
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._runs = 0
        #: The process of the driver, if it runs on this machine.
        self._driver = 0
        self.log = str(folder / "log.db")
        self.network: Network | None = None
        self.spark: SparkCluster | None = None
        if not workers:
            if local_brokers:
                cluster = LocalCluster(folder / "kafka")
                # One replica: the partitions, and the open files for them, are divided.
                options = BrokerOptions(
                    port=0, brokers=local_brokers, heap_mb=heap_mb,
                    properties={"default.replication.factor": "1", "min.insync.replicas": "1"},
                )
                self.log = self._stack.enter_context(cluster.for_this_process(options)).address
            return
        try:
            hosts = ["driver", "broker", *self.workers]
            self.network = self._stack.enter_context(Network(folder / "hosts", hosts))
            self.log = self._stack.enter_context(
                running_broker(self.network.hosts["broker"], self.network.private, heap_mb)
            )
            self.spark = self._stack.enter_context(
                SparkCluster(folder / "spark", self.workers, self.network)
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def driver(self, **spec: Any) -> Iterator[tuple[subprocess.Popen[str], Iterator[Any]]]:
        """Run `cluster_app.py` on the driver's host. Yields the process and its events."""
        given = json.dumps({
            "log": self.log, "cost_us": 0, "log_level": self._log_level, **spec
        })
        command = [sys.executable, str(HERE.resolve() / "cluster_app.py"), given]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        if self.network is not None:
            host = self.network.hosts["driver"]
            command = host.command(*command, directory=self.network.private)
            environment |= {"SPARK_LOCAL_IP": host.address, "TMPDIR": str(self.network.private)}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, env=environment, cwd=self._folder,
        )
        self._driver = process.pid
        assert process.stdout is not None
        try:
            yield process, (json.loads(line) for line in process.stdout if line[0] == "{")
            if process.wait(60):
                raise RuntimeError("The driver has failed.")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()

    def fill(self, topic: str, records: int, **spec: Any) -> str:
        spec = {"partitions": PARTITIONS, "keys": 20_000, **spec}
        with self.driver(command="fill", topic=topic, records=records, **spec) as (_, events):
            assert [each["event"] for each in events] == ["filled"]
        return topic

    def run(
        self, on_event: Callable[[dict[str, Any]], object] = lambda event: None, **spec: Any
    ) -> dict[str, Any]:
        """Run an application until it has caught up. Returns its figures, with the check."""
        self._runs += 1
        spec = {
            "application": f"app-{self._runs}", "output": f"out-{self._runs}",
            "state_dir": f"state-{self._runs}", "settings": {}, **spec,
        }
        spec["master"] = spec.get("master") or (self.spark.master if self.spark else "local[2]")
        figures: dict[str, Any] = {}
        with self.driver(command="run", **spec) as (process, events):
            for event in events:
                on_event(event)
                if event["event"] == "caught-up":
                    assert process.stdin is not None
                    process.stdin.write("\n")
                    process.stdin.flush()
                if event.pop("event") != "progress":
                    figures |= event
        if figures["wrong"]:
            raise SystemExit(f"{figures['wrong']} results of {spec} are wrong: {figures}")
        for name, topic in (("input", spec["source"]), ("output", spec["output"]),
                            ("changelog", f"{spec['application']}-counts-changelog")):
            figures[f"{name}_bytes"] = self._bytes(topic)
        return figures

    def _bytes(self, topic: str) -> int:
        """The bytes of a topic in the broker's files, without indexes."""
        if self.network is None:
            return 0
        kafka = self.network.hosts["broker"].directory / "kafka" / "node-1"
        return sum(
            path.stat().st_size for path in kafka.glob(f"{topic}-*/*.log")
            if path.parent.name.rpartition("-")[0] == topic
        )

    def lanes(self) -> list[int]:
        """The Python processes of lanes, on all hosts."""
        if self.network is None:
            found = processes(self._driver).values()
        else:
            assert self.spark is not None
            found = {each.pid: each for each in self.spark.all()}.values()
        return [each.pid for each in found if re.search(r"spark\.daemon", each.command)]


def one_slot(executors: int) -> dict[str, str]:
    """Spark settings for so many executors of one slot."""
    return {
        "spark.cores.max": str(executors), "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
    }


# ---- scale -----------------------------------------------------------------------------------


def scale(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    per_executor = round(RUN_S * 1e6 / options.cost_us)
    for executors in options.executors:
        site.fill(f"orders-{executors}", per_executor * executors)
    for execution in options.execution:
        for topology in options.topology:
            rates: dict[int, int] = {}
            for executors in options.executors:
                result = site.run(
                    topology=topology, execution=execution, source=f"orders-{executors}",
                    cost_us=options.cost_us, settings=one_slot(executors),
                )
                rates[executors] = result["rate"]
                ratio = result["rate"] / rates[options.executors[0]]
                goal = f" (goal {GOALS[executors]}x)" if executors in GOALS else ""
                figures.setdefault(execution, {}).setdefault(topology, {})[str(executors)] = {
                    **result, "ratio": round(ratio, 2),
                }
                print(
                    f"{execution} {topology}, {executors} executor(s): {result['rate']:>7,} "
                    f"records/s, {ratio:.2f}x{goal}; {result['checked']:,} results checked",
                    flush=True,
                )
    return figures


# ---- a lost host -----------------------------------------------------------------------------


def loss(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Kill a worker host during a run with two executors, and let it return."""
    figures: dict[str, Any] = {}
    for topology in options.topology:
        site.fill(f"orders-loss-{topology}", 100_000)
        steps = Loss(site)
        result = site.run(
            steps.observe, topology=topology, execution="continuous",
            source=f"orders-loss-{topology}", settings=one_slot(2),
            steady={"rate": LOSS_RATE, "seconds": LOSS_RUN_S},
        )
        pauses = result.pop("pauses_s")
        half = len(pauses) // 2
        figures[topology] = {
            **result, "rate": LOSS_RATE, "lost_for_s": RETURNS_AT_S - LOST_AT_S,
            "tasks_of_the_lost_host_pause_s": pauses[half:], "other_tasks_pause_s": pauses[:half],
        }
        print(
            f"loss, {topology}: {result['checked']:,} results are right; longest time without a "
            f"commit at {LOSS_RATE:,} records/s: of a task of the lost host {pauses[-1]:.1f} s, of "
            f"another task {pauses[half - 1]:.1f} s, of all tasks "
            f"{result['longest_common_pause_s']:.1f} s", flush=True,
        )
    return figures


class Loss:
    """Kills a worker host, and starts it again, some time after the start of a steady input."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._started_at = 0.0
        self._steps = [(LOST_AT_S, self._lose), (RETURNS_AT_S, self._return)]

    def observe(self, event: dict[str, Any]) -> None:
        if event["event"] == "steady":
            self._started_at = time.monotonic()
        if self._started_at and self._steps:
            due, step = self._steps[0]
            if time.monotonic() - self._started_at > due:
                del self._steps[0]
                step()

    def _lose(self) -> None:
        # The master runs on the first worker.
        assert self._site.network is not None
        self._site.network.kill(self._site.workers[1])

    def _return(self) -> None:
        assert self._site.spark is not None
        assert self._site.network is not None
        self._site.network.start(self._site.workers[1])
        self._site.spark.add_workers([self._site.workers[1]])


# ---- restore and the driver ------------------------------------------------------------------


def restore(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Compare a start with the state of a store to a start without it."""
    keys = 1_000_000
    site.fill("orders-restore", keys, keys=keys)
    spec = {
        "topology": "stateful", "execution": "continuous", "source": "orders-restore",
        "application": "restore", "output": "restore-out", "settings": one_slot(1),
    }
    first = site.run(**spec, state_dir="state-a")
    figures = []
    for number, state in enumerate(("state-a", "state-b")):
        # A lane reports a restore with its next commit, so each task needs a record.
        site.fill("orders-restore", 1_000, keys=keys, seed=number)
        figures.append(site.run(**spec, state_dir=state))
    kept, empty = figures
    seconds = empty["caught_up_after_s"] - kept["caught_up_after_s"]
    rate = round(empty["restored_records"] / seconds)
    print(f"restore: {empty['restored_records']:,} changelog records in {seconds:.1f} s, "
          f"{rate:,}/s in one lane", flush=True)
    return {
        "changelog_records": empty["restored_records"], "seconds": round(seconds, 2),
        "records_per_second": rate, "start_with_state_s": kept["caught_up_after_s"],
        "start_without_state_s": empty["caught_up_after_s"],
        "changelog_bytes": first["changelog_bytes"],
    }


def driver(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The driver's work for a commit message: decode it, take it over, and summarize it."""
    figures = {}
    for tasks in (1, 8, 64):
        outcomes = tuple(
            encode_outcome(TaskOutcome(
                TaskId(0, n), TaskRecord(5, 7, TaskState(), {"counts": 100}),
                offsets={("orders", n): 1_000}, records_consumed=100,
                counters={f"{name}-total": 100 for name in ("process", "dropped", "cache", "put")},
            ))
            for n in range(tasks)
        )
        message = encode(Committed(outcomes, {("orders", n): 1_000 for n in range(tasks)}, (0, 0)))
        rounds = 20_000 // tasks
        begun = time.process_time()
        for _ in range(rounds):
            received = decode_from_lane(message)
            assert isinstance(received, Committed)
            decoded = [decode_outcome(data) for data in received.outcomes]
            BatchReport.of(1, decoded, seconds=(0.0, 0.0, 0.0), lag=0)
        cost_us = (time.process_time() - begun) / rounds * 1e6
        figures[str(tasks)] = {"us_per_message": round(cost_us, 1), "bytes": len(message)}
        print(f"driver: a commit of {tasks} task(s) costs {cost_us:.0f} us, {len(message):,} bytes",
              flush=True)
    return figures


# ---- many partitions and stores --------------------------------------------------------------


def wide(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """Start, catch up, stop; then restore everything on empty hosts."""
    site.fill("wide", options.wide_records, partitions=options.partitions, keys=500_000)
    spec = {
        "topology": "wide", "execution": "continuous", "source": "wide", "application": "wide",
        "output": "wide-out", "stores": options.stores, "timeout_s": 1_200,
        "settings": one_slot(2) if site.spark else {},
    }
    figures: dict[str, Any] = {
        "partitions": options.partitions, "stores": options.stores,
        "changelog_partitions": options.partitions * options.stores,
    }
    for name, state in (("first", "state-a"), ("restore", "state-b")):
        lanes: list[dict[str, int]] = []

        def sample(event: dict[str, Any], into: list[dict[str, int]] = lanes) -> None:
            if event["event"] == "caught-up":
                into += [usage(pid) for pid in site.lanes()]

        result = site.run(sample, **spec, state_dir=state)
        figures[name] = {**result, "lanes": [each for each in lanes if each["lmdb_maps"]]}
        print(f"wide, {name} start: {figures[name]}", flush=True)
        site.fill(
            "wide", 10_000, partitions=options.partitions, keys=500_000, seed=11
        )
    return figures


def usage(pid: int) -> dict[str, int]:
    """Memory in MB, open files, and mapped LMDB files of a process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {
        "anonymous_mb": int(status["RssAnon"].split()[0]) // 1024,
        "resident_mb": int(status["VmRSS"].split()[0]) // 1024,
        "open_files": len(os.listdir(f"/proc/{pid}/fd")),
        "lmdb_maps": sum("data.mdb" in line for line in maps),
    }


# ---- the run ---------------------------------------------------------------------------------

PARTS = {"scale": scale, "loss": loss, "restore": restore, "driver": driver, "wide": wide}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--execution", nargs="+", choices=("continuous", "batch"),
                        default=["continuous", "batch"])
    parser.add_argument("--topology", nargs="+", choices=("stateless", "stateful"),
                        default=["stateless", "stateful"])
    parser.add_argument("--executors", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--cost-us", type=float, default=50.0, help="what a record costs")
    parser.add_argument("--partitions", type=int, default=256, help="of the part 'wide'")
    parser.add_argument("--stores", type=int, default=50, help="of the part 'wide'")
    parser.add_argument("--wide-records", type=int, default=250_000)
    parser.add_argument("--local", action="store_true",
                        help="the part 'wide' with Spark local[2] and the embedded log")
    parser.add_argument("--brokers", type=int, default=0,
                        help="with --local: so many Kafka brokers instead of the embedded log")
    parser.add_argument("--log-level", default="WARNING", help="of the driver")
    return parser.parse_args()


def main() -> None:
    options = parse()
    reason = None if options.local else cluster_hosts.why_not()
    if reason is not None:
        raise SystemExit(f"The hosts of the cluster cannot be created: {reason}.")
    # Ctrl-C and SIGTERM stop the hosts, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.local:
        options.only = ["wide"]
    workers = max(options.executors) if "scale" in options.only else 2
    if options.local:
        workers = 0
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as folder:
        heap_mb = 2048 if "wide" in options.only else 1024
        site = Site(Path(folder), workers, heap_mb, options.log_level, options.brokers)
        with contextlib.closing(site):
            for name in options.only:
                begun = time.perf_counter()
                where = f"_{options.brokers}_brokers" if options.brokers else "_local"
                figures[name + (where if options.local else "")] = PARTS[name](site, options)
                print(f"({name}: {time.perf_counter() - begun:.0f} s)", flush=True)
    print(json.dumps({
        "bench": "cluster", "python": platform.python_version(), "cpus": os.cpu_count(),
        "cost_us": options.cost_us, "sleeps": "one for the records of 10 ms", **figures,
    }))


if __name__ == "__main__":
    main()
