"""`SharedLog`: one connection to the log for all requests of the page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.config import StreamsConfig
from penstock.log import open_log
from penstock.log.base import Log

T = TypeVar("T")


class SharedLog:
    """Opens the log at the first call. Any thread may call it; one caller uses it at a time."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._using = threading.Lock()
        self._log: Log | None = None

    def call(self, use: Callable[[Log], T]) -> T:
        """Call a function with the log."""
        with self._using:
            if self._log is None:
                assert self._config.log is not None
                self._log = open_log(
                    self._config.log, connection=self._config.connection_settings()
                )
            return use(self._log)

    def close(self) -> None:
        """Close the connection."""
        with self._using:
            if self._log is not None:
                self._log.close()
                self._log = None
