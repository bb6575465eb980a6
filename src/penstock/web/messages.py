"""`RecentMessages`: the last warnings and errors of penstock's loggers, for the page."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

LIMIT = 100
MAX_CHARACTERS = 2_000


class RecentMessages(logging.Handler):
    """Keeps the last messages. Attach it to a logger."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._messages: deque[dict[str, Any]] = deque(maxlen=LIMIT)
        #: How many there were.
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        try:
            text = record.getMessage()
        except Exception:
            # A mistake in a log call must not fail its caller.
            self.handleError(record)
            return
        self.count += 1
        self._messages.append({
            "time": round(record.created * 1000), "level": record.levelname,
            "logger": record.name, "text": text[:MAX_CHARACTERS],
        })

    def newest_first(self) -> list[dict[str, Any]]:
        """Return the messages."""
        return list(reversed(self._messages))
