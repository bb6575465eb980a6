"""`WarmUp`: starts Spark and its workers while another instance runs the application.

A JVM and Python workers take seconds to start. Neither needs the lease, so a standby starts both
ahead of time, in a separate thread that does not delay the attempts to acquire the lease. A warm-up
writes nothing.
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
    """A started `Compute`, with the graph and the configuration that it was started for."""

    graph: ExecutionGraph
    config: StreamsConfig
    compute: Compute


class WarmUp:
    """Warms up once, in a separate thread. The instance takes the result when it takes over."""

    def __init__(self, warm_up: Callable[[], WarmCompute | None]) -> None:
        """`warm_up` returns None if it is too early, for example because a topic is missing."""
        self._function = warm_up
        self._result: WarmCompute | None = None
        #: A configuration error with which this instance can never run.
        self._config_error: ConfigException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-warm-up", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except ConfigException as error:
            self._config_error = error
        except Exception as error:
            # A permanent error occurs again, and is reported, when the instance takes over.
            log.warning("This instance is not ready to take over yet: %s", error)

    def check(self) -> None:
        """Raise the error that prevents the instance from ever running."""
        if self._config_error is not None:
            raise self._config_error

    def take(self, graph: ExecutionGraph, config: StreamsConfig) -> Compute | None:
        """Wait for the result and return it, or None if it does not fit."""
        self._thread.join()
        result, self._result = self._result, None
        if result is None:
            return None
        if (result.graph, result.config) == (graph, config):
            return result.compute
        result.compute.close()
        return None

    def close(self) -> None:
        """Wait for the result and discard it."""
        self._thread.join()
        result, self._result = self._result, None
        if result is not None:
            result.compute.close()
