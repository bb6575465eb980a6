"""Sends offsets as part of a transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.producers import TransactionClient
from penstock.log.kafka.client.retry import retry_producer_call
from penstock.log.types import CommittedOffset, TopicPartition

#: A call that takes longer hangs forever.
_HANG_S = 10.0


def send_offsets(
    producer: TransactionClient, offsets: Mapping[TopicPartition, CommittedOffset], metadata: Any,
    timeout: float,
) -> bool:
    """Send offsets. Returns False if the call hangs: then abandon the producer.

    librdkafka may hang here, whatever its timeout, while the coordinator moves.
    """
    wanted = [
        KafkaPartition(topic, partition, offset, text)
        for (topic, partition), (offset, text) in offsets.items()
    ]
    call = _BackgroundCall(
        lambda left: producer.send_offsets_to_transaction(wanted, metadata, left), timeout
    )
    return call.wait(_HANG_S)


class _BackgroundCall:
    """A call of the producer in its own thread, so that the caller can give it up."""

    def __init__(self, call: Callable[[float], object], timeout: float) -> None:
        self._call = call
        self._timeout = timeout
        self._raised: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="penstock-kafka-call", daemon=True).start()

    def _run(self) -> None:
        try:
            retry_producer_call(self._call, self._timeout)
        except BaseException as raised:
            self._raised = raised
        finally:
            self._done.set()

    def wait(self, timeout: float) -> bool:
        """Wait for the call, and raise its error. Returns False after the timeout."""
        if not self._done.wait(timeout):
            return False
        if self._raised is not None:
            raise self._raised
        return True
