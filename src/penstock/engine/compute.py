"""`Compute`: runs the tasks of a batch. `inline.py` and `spark/` implement it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.config import StreamsConfig
from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.plan.batch_plan import BatchPlan


class Compute(Protocol):
    """Runs the tasks of a batch, in Spark or in this process."""

    def compute(self, plan: BatchPlan) -> list[bytes]:
        """Run all tasks of the plan and return their encoded outcomes. Nothing is written."""
        ...

    def cancel(self) -> None:
        """Cancel the running batch and refuse further ones. Any thread may call it."""
        ...

    def close(self) -> None:
        """Release the resources."""
        ...


#: Starts a `Compute` for an application on a log.
ComputeFactory = Callable[[Topology, StreamsConfig, "ExecutionGraph", Log], Compute]


class BatchCancelled(StreamsException):
    """A running batch was cancelled.

    Raised by `Compute.compute`, and by the engine before a commit. Nothing is committed.
    """

    def __init__(self, application_id: str, batch: int) -> None:
        super().__init__(
            f"Batch {batch} of '{application_id}' was cancelled. Nothing of it was committed. "
            "The next start processes the same records again."
        )
