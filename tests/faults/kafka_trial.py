"""The application of the crash tests on Kafka, and all that is done to it there.

    driver, worker      killed in a step, as on the embedded log
    broker              killed while a process stands in a step; the process goes on before the
                        broker is back, or after that ("broker, back first")
    leader              of three brokers, the one that leads a partition that the batch writes to
    coordinator         of three brokers, the one that takes care of the application's transactions
    late driver         stopped in a step until another instance has taken over, then continued
    answer, request, dark
                        what a proxy does to a request of the driver (`kafka_proxy.py`)

Drivers and their workers reach a single broker through the proxy; the trial itself does not.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from faults.engine_app import OUTPUTS, PARTITIONS, Row, append, everything, is_drained, is_read
from faults.engine_kills import Kill, Trial
from faults.engine_processes import STEPS, Instance, StepFiles, Victim, wait_until
from faults.kafka_brokers import Brokers
from faults.kafka_proxy import APIS, LOSSES, Api, Loss, Order, Proxy
from penstock.engine.failpoints import Step

Pieces = Iterator[Callable[[], None]]
Who = Literal[
    "driver", "worker", "broker", "broker, back first", "leader", "coordinator", "late driver",
    "answer", "request", "dark",
]
WHO: tuple[Who, ...] = get_args(Who)
#: The table that changes all the time, and what is joined with it.
JOINED = frozenset(("customers", "orders"))
#: The group gives up a member that it has not heard of for six seconds: one darkness is longer.
DARK_S, DARKER_S = 2.0, 7.5
STANDS_BY = "This instance stands by."


class Fault(NamedTuple):
    """Whom something happens to, and when: in a step of the batch, or with a request."""

    who: Who
    when: str

    def __str__(self) -> str:
        if self.who in LOSSES:
            return f"{self.who} of {self.when}" if self.who != "dark" else f"dark in {self.when}"
        return f"{self.who} in '{self.when}'"


def faults_of(*who: Who) -> list[Fault]:
    """Every fault of those."""
    steps: dict[Who, tuple[str, ...]] = {
        **dict.fromkeys(WHO, STEPS), **dict.fromkeys(LOSSES, APIS),
        "late driver": ("before-commit", "in-commit"),
    }
    return [Fault(each, when) for each in who for when in steps[each]]


class KafkaTrial(Trial):
    """A trial on brokers of its own. `suffered` is what was done so far."""

    def __init__(
        self, directory: Path, seed: int, master: str = "inline", *, brokers: int = 1
    ) -> None:
        with ExitStack() as stack:
            self.brokers = stack.enter_context(Brokers(directory / "kafka", brokers=brokers))
            self._proxy = stack.enter_context(
                Proxy(self.brokers.listener, self.brokers.proxy_port)
            )
            #: Which of the two joined topics was appended to last.
            self._joined = ""
            self._seconds = itertools.count(1)
            self.suffered: Counter[Fault] = Counter()
            super().__init__(directory, seed, master, address=self.brokers.address)
            if brokers == 1:
                self.driver_address = self.brokers.proxied
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Leave nothing running."""
        with self._stack:
            super().close()

    # ---- the input ---------------------------------------------------------------------------

    def append_piece(self, rows: list[Row]) -> None:
        """More of the wave that is under way."""
        append(self.log, rows, before_run=self._settle)
        self.waves[-1].append(rows)
        self.counts.pieces += 1

    def _settle(self, topic: str) -> None:
        """Let the sequence of orders and customers be one, however a plan is made.

        A plan asks for the ends of all partitions. One broker looks at them within microseconds.
        Three are asked one by one: an end of long ago may stand beside one of right now. So there
        what was appended to one of the two topics is read before the other one goes on; or nobody
        makes a plan, because a process stands in a step.
        """
        if topic not in JOINED:
            return
        if self._joined not in {"", topic} and self.brokers.count > 1:
            wait_until(
                f"all of {self._joined} was read",
                lambda: self.instance is None or self.instance.stopped()
                or is_read(self.log, JOINED.__contains__),
                meanwhile=self._alive,
            )
        self._joined = topic

    # ---- what happens to it ------------------------------------------------------------------

    def suffer(self, *faults: Fault) -> None:
        """One wave of input with some faults, one after the other, processed to its end."""
        pieces = self.new_wave()
        for fault in faults:
            if fault.who in LOSSES:
                self._lose(cast("Loss", fault.who), cast("Api", fault.when), pieces)
            elif fault.who == "late driver":
                self._come_late(fault.when, pieces)
            elif fault.who in {"driver", "worker"}:
                self.kill(Kill(cast("Victim", fault.who), cast("Step", fault.when)), pieces)
            else:
                self._kill_node(fault, pieces)
            self.suffered[fault] += 1
        self.finish_wave(pieces)

    def _kill_node(self, fault: Fault, pieces: Pieces) -> None:
        self.reach(fault.when, pieces)
        self.brokers.kill(self._node(fault.who))
        instance = self.start()
        if fault.who == "broker, back first":
            self.brokers.start()
            instance.go_on()
            return
        instance.go_on()
        if self.brokers.count > 1 and self.rng.random() < 0.5:
            # Two of three are enough.
            self.finish_wave(pieces)
        self.brokers.start()

    def _node(self, who: Who) -> int:
        if who == "leader":
            return self.brokers.leader(self.rng.choice(OUTPUTS), self.rng.randrange(PARTITIONS))
        return self.brokers.coordinator() if who == "coordinator" else 1

    def _lose(self, loss: Loss, api: Api, pieces: Pieces) -> None:
        assert self.driver_address == self.brokers.proxied, "nobody comes through the proxy"
        self.start()
        order = Order(api, loss, self.rng.choice((DARK_S, DARKER_S)) if loss == "dark" else 0.0)
        strike = self._proxy.order(order)
        wait_until(f"the proxy met {api}", strike.struck.is_set, meanwhile=self.feeding(pieces))
        wait_until("the proxy passed everything on again", strike.over.is_set)

    def _come_late(self, step: str, pieces: Pieces) -> None:
        """Another instance takes over while the first one stands in the step; then that goes on,
        publishes nothing, and stands by."""
        self.reach(step, pieces)
        first = self.start()
        name = f"second-{next(self._seconds)}"
        second = self.another(
            name, StepFiles(self.directory / f"steps-of-{name}"), state=f"state-of-{name}",
            master="inline",
        )
        try:
            wait_until("the second instance had taken over", lambda: is_drained(self.log))
            self._go_on_without_the_lease(first)
            self.finish_wave(pieces)
            assert second.is_alive
        finally:
            second.end()

    def _go_on_without_the_lease(self, first: Instance) -> None:
        before = everything(self.log)
        said = first.output.stat().st_size
        assert [process.pid for process in first.stopped()] == [first.pid]
        first.go_on()
        wait_until(
            "the first one had noticed", lambda: STANDS_BY in first.output.read_text()[said:]
        )
        assert everything(self.log) == before, "an instance has published without the lease"
