"""Deadlines and pauses of requests that are retried. Retries wait only here."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from penstock.log.kafka.client.errors import error_of

#: The shortest timeout of a call, also after the deadline.
_MIN_CALL_S = 0.1


class Retry:
    """The deadline of one operation, and the pause between its attempts.

    The pause doubles up to `longest_pause_s`. It stays the same without that argument.
    """

    def __init__(
        self, timeout_s: float, pause_s: float = 0.0, longest_pause_s: float = 0.0
    ) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = pause_s
        self._longest_pause_s = max(pause_s, longest_pause_s)

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self._deadline

    def wait(self) -> None:
        """Pause before the next attempt."""
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._longest_pause_s)

    def wait_or_raise(self, error: Exception) -> None:
        """Pause before the next attempt, or raise the error after the deadline."""
        if self.is_over:
            raise error
        self.wait()

    def call_timeout(self) -> float:
        """Return the timeout for one blocking call, in seconds."""
        return max(_MIN_CALL_S, self._deadline - time.monotonic())


def retry_producer_call(call: Callable[[float], object], timeout: float) -> None:
    """Repeat a call of a transactional producer while its error is retriable.

    The calls block, so there is no pause between them.
    """
    retry = Retry(timeout)
    while True:
        try:
            call(retry.call_timeout())
        except KafkaException as raised:
            error = error_of(raised)
            if not error.retriable() or error.txn_requires_abort() or retry.is_over:
                raise
        else:
            return
