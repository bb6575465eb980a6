"""What an instance that stands by has ready, so that it can take over at once.

A JVM takes seconds to start, and so do Python workers that have never seen the application. Neither
needs the lease: both are started while another instance runs, in a thread of their own, so that the
lease is looked at all the while. Nothing is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import StreamsConfig
from penstock.errors import ConfigException

if TYPE_CHECKING:
    from penstock.engine.compute import Compute
    from penstock.engine.layout.execution_graph import ExecutionGraph

log = logging.getLogger(__name__)


class WarmCompute(NamedTuple):
    """Something that computes, and for what."""

    graph: ExecutionGraph
    config: StreamsConfig
    compute: Compute


class WarmUp:
    """Gets ready once; whoever takes over asks for what it was made for."""

    def __init__(self, get_ready: Callable[[], WarmCompute | None]) -> None:
        """`get_ready` answers None if it is too early: a topic is missing, say."""
        self._get_ready = get_ready
        self._ready: WarmCompute | None = None
        #: A setting with which this instance could never run.
        self._wrong: ConfigException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-readiness", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._ready = self._get_ready()
        except ConfigException as wrong:
            self._wrong = wrong
        except Exception as trouble:
            # What is no passing trouble is met again, and told, when the instance takes over.
            log.warning("This instance is not ready to take over yet: %s", trouble)

    def check(self) -> None:
        """Raise what would keep the instance from ever running."""
        if self._wrong is not None:
            raise self._wrong

    def take(self, graph: ExecutionGraph, config: StreamsConfig) -> Compute | None:
        """What is ready, once it is; None if it was made for something else."""
        self._thread.join()
        ready, self._ready = self._ready, None
        if ready is None:
            return None
        if (ready.graph, ready.config) == (graph, config):
            return ready.compute
        ready.compute.close()
        return None

    def close(self) -> None:
        """Nothing is needed any more."""
        self._thread.join()
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.compute.close()
