"""Sends what a producer has collected: one append to the log for all that waits.

An append that fails has not happened, so it can be tried again without doubling a record: every
producer is idempotent. One bad record must not fail its neighbours: what the log refuses is
divided until the bad ones stand alone; the order of a partition stays.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.clients.errors import KafkaError, as_kafka_error
from penstock.clients.producer.buffer import Outbox, Pending
from penstock.clients.types import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
)
from penstock.log.base import Log
from penstock.log.errors import InvalidRecord, LogBusy, LogError, UnknownPartition, UnknownTopic
from penstock.log.types import Append, AppendResult
from penstock.record import RecordColumns

logger = logging.getLogger(__name__)

#: One outcome of a record.
Outcome = tuple[Pending, KafkaError | None, "Message | None"]


@dataclass(frozen=True, slots=True)
class SendRules:
    """How hard to try."""

    #: False: acks=0, nobody is told what became of a record.
    acknowledge: bool
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    delivery_timeout_ms: int


def by_partition(records: Iterable[Pending]) -> dict[tuple[str, int], list[Pending]]:
    """The records of each partition, in order."""
    groups: dict[tuple[str, int], list[Pending]] = {}
    for pending in records:
        place = (pending.topic, pending.partition)
        if place in groups:
            groups[place].append(pending)
        else:
            groups[place] = [pending]
    return groups


def columns(records: list[Pending]) -> RecordColumns:
    """Records of one partition as the log takes them."""
    headers = [record.headers for record in records]
    return RecordColumns(
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp for record in records],
        headers if any(headers) else None,
    )


def delivered(records: list[Pending], appended: AppendResult) -> list[Outcome]:
    """The reports of records that were appended together to one partition."""
    outcomes: list[Outcome] = []
    offset = appended.base_offset
    for pending in records:
        message = None
        if pending.callback is not None or pending.future is not None:
            if appended.timestamp >= 0:
                timestamp = (TIMESTAMP_LOG_APPEND_TIME, appended.timestamp)
            else:
                timestamp = (TIMESTAMP_CREATE_TIME, pending.timestamp)
            message = pending.message(offset, timestamp, None)
        outcomes.append((pending, None, message))
        offset += 1
    return outcomes


def failed(records: Iterable[Pending], error: KafkaError) -> list[Outcome]:
    """The reports of records that were not appended."""
    return [
        (record, error, record.message(
            OFFSET_INVALID, (TIMESTAMP_CREATE_TIME, record.timestamp), error))
        for record in records
    ]


class Sender(threading.Thread):
    """The thread that sends. Ends when the outbox is closed and empty."""

    def __init__(
        self, log: Log, outbox: Outbox, rules: SendRules, forget_topic: Callable[[str], None]
    ) -> None:
        super().__init__(name="penstock-producer", daemon=True)
        self._log = log
        self._outbox = outbox
        self._rules = rules
        self._forget_topic = forget_topic
        self._giving_up = threading.Event()

    def run(self) -> None:
        """Send until the outbox is closed."""
        while records := self._outbox.take():
            try:
                outcomes = self._send(records)
            except Exception as error:
                # Whatever it is, nobody waits for ever.
                logger.exception("Records could not be sent")
                outcomes = failed(records, KafkaError(KafkaError._FAIL, repr(error)))
            self._outbox.sent(self._told(outcomes))

    def give_up(self) -> None:
        """Try nothing again; what cannot be sent at once has failed."""
        self._giving_up.set()

    def _told(self, outcomes: list[Outcome]) -> list[Outcome]:
        if self._rules.acknowledge:
            return outcomes
        told: list[Outcome] = []
        for pending, error, message in outcomes:
            if error is not None:
                logger.warning("A record of topic '%s' was not written: %s", pending.topic, error)
            timestamp = (TIMESTAMP_CREATE_TIME, pending.timestamp)
            report = message and pending.message(OFFSET_INVALID, timestamp, None)
            told.append((pending, None, report))
        return told

    def _send(self, records: list[Pending]) -> list[Outcome]:
        try:
            return self._append(records)
        except UnknownTopic as error:
            return self._without_unknown(records, error)
        except InvalidRecord as error:
            if len(records) == 1:
                return failed(records, as_kafka_error(error))
            half = len(records) // 2
            return self._send(records[:half]) + self._send(records[half:])
        except LogError as error:
            return failed(records, as_kafka_error(error))

    def _without_unknown(self, records: list[Pending], error: UnknownTopic) -> list[Outcome]:
        """Fail the records of a topic, or a partition, that is not there; send the others."""
        self._forget_topic(error.topic)
        partition = error.partition if isinstance(error, UnknownPartition) else None

        def is_lost(record: Pending) -> bool:
            return record.topic == error.topic and partition in {None, record.partition}

        lost = [record for record in records if is_lost(record)]
        others = [record for record in records if not is_lost(record)]
        if not lost:
            return failed(records, as_kafka_error(error))
        outcomes = failed(lost, as_kafka_error(error))
        return outcomes + self._send(others) if others else outcomes

    def _append(self, records: list[Pending]) -> list[Outcome]:
        groups = by_partition(records)
        appends = [
            Append(topic, partition, columns(group))
            for (topic, partition), group in groups.items()
        ]
        outcomes: list[Outcome] = []
        for group, appended in zip(
            groups.values(), self._append_patiently(appends, records[0].since), strict=True
        ):
            outcomes += delivered(group, appended)
        return outcomes

    def _append_patiently(self, appends: list[Append], since: float) -> list[AppendResult]:
        rules = self._rules
        backoff_ms = rules.retry_backoff_ms
        attempt = 0
        while True:
            try:
                return self._log.append_many(appends, together=False)
            except LogBusy:
                attempt += 1
                waited_ms = (time.monotonic() - since) * 1000
                if (
                    attempt > rules.retries
                    or not rules.acknowledge
                    or waited_ms + backoff_ms > rules.delivery_timeout_ms
                    or self._giving_up.wait(backoff_ms / 1000)
                ):
                    raise
                backoff_ms = min(2 * backoff_ms, rules.retry_backoff_max_ms)
