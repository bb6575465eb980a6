"""The application of the crash tests on Kafka, and the faults there.

    driver, worker      killed at a failpoint, as on the embedded log
    broker              killed while a process is stopped at a failpoint; the process resumes before
                        the broker restarts, or after that ("broker, back first")
    leader              of three brokers, the leader of a partition that the batch writes to
    coordinator         of three brokers, the transaction coordinator of the application
    late lane           in continuous mode, a lane is stopped at a failpoint until the driver has
                        replaced it, then resumed
    standby             in continuous mode, another instance joins the group, and leaves it, while
                        lanes commit
    late driver         stopped at a failpoint until another instance has taken over, then resumed;
                        in continuous mode on Spark, its lanes keep running
    state               in continuous mode, the state of all lanes is deleted while one of them is
                        stopped at a failpoint
    executor            in continuous mode, killed at a failpoint of a lane
    response, request, outage
                        a proxy loses a message of the driver (`kafka_proxy.py`)

Drivers and their workers connect to a single broker through the proxy; the trial does not.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, cast, get_args

from faults.campaign import Fault
from faults.engine_app import OUTPUTS, PARTITIONS, Row, append, everything, is_read
from faults.engine_processes import (
    BATCH_FAILPOINTS,
    LANE_FAILPOINTS,
    Execution,
    Instance,
    Victim,
    send,
    wait_until,
)
from faults.engine_trial import Kill, Trial
from faults.kafka_brokers import Brokers
from faults.kafka_ends import all_visible
from faults.kafka_proxy import APIS, LOSSES, Api, Loss, Proxy, Rule
from faults.lane_faults import (
    KEEP_PROCESSES,
    LANE_FAULT_POINTS,
    LANE_TARGETS,
    inject_lane_fault,
    resume_lane,
    wait_until_replaced,
)
from penstock.engine.failpoints import FailpointName
from penstock.log.types import TopicPartition

Pieces = Iterator[Callable[[], None]]
Target = Literal[
    "driver", "worker", "executor", "broker", "broker, back first", "leader", "coordinator",
    "late driver", "late lane", "state", "standby", "response", "request", "outage",
]
TARGETS: tuple[Target, ...] = get_args(Target)
#: The processes that are killed at a failpoint.
VICTIMS: tuple[Victim, ...] = get_args(Victim)
#: The table that changes throughout the run, and the stream that joins it.
JOINED = frozenset(("customers", "orders"))
#: The session timeout of the group, six seconds, is between the two.
OUTAGE_S, LONG_OUTAGE_S = 2.0, 7.5
STANDS_BY = "becomes a standby"


def faults_of(*targets: Target, execution: Execution = "batch") -> tuple[Fault, ...]:
    """All faults of the targets."""
    failpoints: dict[Target, tuple[str, ...]]
    if execution == "batch":
        failpoints = {
            **dict.fromkeys(TARGETS, BATCH_FAILPOINTS), **dict.fromkeys(LOSSES, APIS),
            "late driver": ("before-commit", "in-commit"),
        }
    else:
        failpoints = {
            **dict.fromkeys(TARGETS, LANE_FAILPOINTS),
            **dict.fromkeys(LANE_TARGETS, LANE_FAULT_POINTS),
        }
    return tuple(Fault(each, when) for each in targets for when in failpoints[each])


class KafkaTrial(Trial):
    """A trial on its own brokers. `injected` counts the faults."""

    def __init__(
        self, directory: Path, seed: int, master: str = "inline", *, brokers: int = 1,
        execution: Execution = "batch",
    ) -> None:
        with ExitStack() as stack:
            self.brokers = stack.enter_context(Brokers(directory / "kafka", brokers=brokers))
            self._proxy = stack.enter_context(
                Proxy(self.brokers.listener, self.brokers.proxy_port)
            )
            #: The joined topic of the last append.
            self._joined = ""
            self.injected: Counter[Fault] = Counter()
            super().__init__(
                directory, seed, master, address=self.brokers.address, execution=execution,
                settings=KEEP_PROCESSES if execution == "continuous" else (),
            )
            if brokers == 1:
                self.driver_address = self.brokers.proxied
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Stop all processes."""
        with self._stack:
            super().close()

    # ---- input ---------------------------------------------------------------------------

    def new_wave(self) -> Pieces:
        """Start a wave. In continuous mode, its customers are processed before everything else.

        A lane fetches partitions one by one, so an order could overtake a customer.
        """
        pieces = super().new_wave()
        if self.execution == "continuous":
            self.append_piece(self._input.customers(len(self.waves) - 1))
            self.drain()
        return pieces

    def append_piece(self, rows: list[Row]) -> None:
        """Append a piece of the current wave."""
        if self.execution == "continuous":
            rows = [row for row in rows if row[0] != "customers"] or rows
        append(self.log, rows, before_run=self._settle)
        self.waves[-1].append(rows)
        self.counts.pieces += 1

    def _settle(self, topic: str) -> None:
        """Make the sequence of orders and customers independent of plans.

        A plan reads the end offsets of all partitions. One broker returns them within microseconds.
        Three brokers return them one by one, so an old offset may be combined with a new one.
        There, the application reads one of the two topics before the trial appends to the other,
        unless a process is stopped at a failpoint and makes no plans.
        """
        if topic not in JOINED:
            return
        if self._joined not in {"", topic} and self.brokers.count > 1:
            wait_until(
                f"all of {self._joined} was read",
                lambda: self.instance is None or self.instance.stopped()
                or is_read(
                    self.log, JOINED.__contains__, continuous=self.execution == "continuous"
                ),
                meanwhile=self._alive,
            )
        self._joined = topic

    # ---- faults ------------------------------------------------------------------

    def inject(self, *faults: Fault) -> None:
        """Process one wave of input with some faults, one after the other."""
        pieces = self.new_wave()
        for fault in faults:
            if fault.target in LOSSES:
                self._lose_message(cast("Loss", fault.target), cast("Api", fault.when), pieces)
            elif fault.target == "late driver" and self.master == "inline":
                self._stop_past_the_lease(fault.when, pieces)
            elif fault.target in LANE_TARGETS:
                inject_lane_fault(self, fault, pieces)
            elif fault.target == "standby":
                self._join_and_leave(fault.when, pieces)
            elif fault.target in VICTIMS:
                kill = Kill(cast("Victim", fault.target), cast("FailpointName", fault.when))
                self.kill(kill, pieces)
            else:
                self._kill_node(fault, pieces)
            self.injected[fault] += 1
        self.finish_wave(pieces)

    def _kill_node(self, fault: Fault, pieces: Pieces) -> None:
        self.reach(fault.when, pieces)
        self.brokers.kill(self._node(cast("Target", fault.target)))
        instance = self.start()
        if fault.target == "broker, back first":
            self.brokers.start()
            instance.resume()
            return
        instance.resume()
        if self.brokers.count > 1 and self.rng.random() < 0.5:
            # Two of three brokers are sufficient.
            self.finish_wave(pieces)
        self.brokers.start()

    def _node(self, target: Target) -> int:
        if target == "leader":
            return self.brokers.leader(self.rng.choice(OUTPUTS), self.rng.randrange(PARTITIONS))
        return self.brokers.coordinator() if target == "coordinator" else 1

    def _lose_message(self, loss: Loss, api: Api, pieces: Pieces) -> None:
        assert self.driver_address == self.brokers.proxied, "nobody comes through the proxy"
        self.start()
        outage_s = self.rng.choice((OUTAGE_S, LONG_OUTAGE_S)) if loss == "outage" else 0.0
        injection = self._proxy.inject(Rule(api, loss, outage_s))
        wait_until(f"the proxy met {api}", injection.started.is_set, meanwhile=self.feeder(pieces))
        wait_until("the proxy passed all messages again", injection.finished.is_set)

    def lose_lane_in_transaction(self, number: signal.Signals) -> None:
        """Kill the only lane, or stop it until it is replaced, when it commits its transaction.

        Its offsets have arrived then; the proxy drops the request to commit.
        """
        pieces = self.new_wave()
        # Only lanes commit transactions now.
        injection = self._proxy.inject(Rule("EndTxn", "request", OUTAGE_S))
        wait_until("a lane commits", injection.started.is_set, meanwhile=self.feeder(pieces))
        [lane] = self.start().lanes()
        send(lane, number)
        wait_until("the proxy passed all messages again", injection.finished.is_set)
        if number == signal.SIGSTOP:
            resume_lane(self, wait_until_replaced(self, lane, pieces))
        self.finish_wave(pieces)

    def outlast_transaction(self) -> None:
        """Stop the only lane, and its driver, while its transaction is open, until the broker has
        aborted the transaction because of its timeout. Then resume both."""
        pieces = self.new_wave()
        injection = self._proxy.inject(Rule("EndTxn", "request", OUTAGE_S))
        wait_until("a lane commits", injection.started.is_set, meanwhile=self.feeder(pieces))
        instance = self.start()
        send(instance.pid, signal.SIGSTOP)
        wait_until("the proxy passed all messages again", injection.finished.is_set)
        assert not self._is_everything_visible(), "no transaction is open"
        wait_until("the broker had aborted the transaction", self._is_everything_visible)
        instance.resume()
        self.finish_wave(pieces)

    def _is_everything_visible(self) -> bool:
        """Whether no transaction is open on the topics that lanes write."""
        partitions = [
            TopicPartition(topic.name, number)
            for topic in self.log.topics() for number in range(topic.partitions)
        ]
        bounds = self.log.offsets(partitions)
        return all_visible(self.log.address, {at: each.end for at, each in bounds.items()})

    def _stop_past_the_lease(self, failpoint: str, pieces: Pieces) -> None:
        """Another instance takes over while the first one is stopped; then the first one resumes,
        publishes nothing, and becomes a standby."""
        self.reach(failpoint, pieces)
        first = self.start()
        second = self.start_other("second")
        try:
            wait_until("the second instance had taken over", self.is_drained)
            self._resume_without_the_lease(first)
            self.finish_wave(pieces)
            assert second.is_alive
        finally:
            second.end()

    def _join_and_leave(self, failpoint: str, pieces: Pieces) -> None:
        """Another instance joins while a lane is stopped, and is killed while another one is: each
        changes the generation of the group before a commit."""
        self.reach(failpoint, pieces)
        standby = self.start_other("standby")
        try:
            wait_until(
                "the other instance was a standby",
                lambda: "This instance is a standby" in standby.output.read_text(),
                meanwhile=self.start().resume,
            )
            self.reach(failpoint, pieces)
        finally:
            standby.end()
        self.start().resume()

    def _resume_without_the_lease(self, first: Instance) -> None:
        before = everything(self.log)
        size = first.output.stat().st_size
        assert [process.pid for process in first.stopped()] == [first.pid]
        first.resume()
        wait_until(
            "the first one had noticed", lambda: STANDS_BY in first.output.read_text()[size:]
        )
        assert everything(self.log) == before, "an instance has published without the lease"
