"""An application on an embedded log whose batches run on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.harness import Application, config_of
from penstock import StreamsConfig, Topology
from penstock.engine.spark import compute_on
from penstock.engine.spark.backend import PARALLELISM, SparkBackend


class SparkApplication(Application):
    """The test harness of the engine, with Spark instead of this process."""

    def __init__(
        self, backend: SparkBackend, topology: Topology, directory: Path,
        topics: Mapping[str, int], *, config: StreamsConfig | None = None, parallelism: int = 2,
        **options: Any,
    ) -> None:
        self._backend = backend
        config = config if config is not None else config_of()
        config = config.with_(extra={**config.extra, PARALLELISM: str(parallelism)})
        super().__init__(
            topology, directory, topics, config=config, parallelism=parallelism, **options
        )

    def start(self) -> None:
        super().start()
        self.compute.close()
        self.compute = compute_on(  # type: ignore[assignment]
            self._backend, self.topology, self.config, self.graph, self.log
        )
