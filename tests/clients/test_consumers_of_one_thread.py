"""Several consumers of a group in one thread, polled in turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.clients import Consumer
from penstock.log import Log

Until = Callable[..., None]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_three_consumers_of_a_thread_divide_the_partitions(
    log: Log, until: Until, strategy: str
) -> None:
    """A poll returns although the group waits for the poll of another consumer."""
    log.create_topic("logs", 2)
    settings: dict[str, Any] = {
        "log": log.address, "group.id": "one-thread", "partition.assignment.strategy": strategy,
    }
    with ExitStack() as stack:
        consumers = [stack.enter_context(Consumer(settings)) for _ in range(3)]
        for consumer in consumers:
            consumer.subscribe(["logs"])

        def assigned() -> list[int]:
            for consumer in consumers:
                consumer.consume(timeout=0.05)
            return sorted(len(consumer.assignment()) for consumer in consumers)

        until(lambda: assigned() == [0, 1, 1])
