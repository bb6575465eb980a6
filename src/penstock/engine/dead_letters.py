"""Dead letter queues: their topics, and the dead letters of a record that stops the application.

Dead letters of skipped records are outputs of the batch. If a handler fails the batch, nothing of
it is written, except the dead letters of the failed record: they get a transaction of their own.
A record in the topic of the task records lists the failed records whose dead letters are written,
so that an application that restarts and fails again does not write them again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from penstock.config import StreamsConfig
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.worker.outcome import TaskOutcome, count_records
from penstock.errors import ConfigException
from penstock.log.base import Lease, Log
from penstock.log.errors import LogError
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns
from penstock.suggestions import did_you_mean

log = logging.getLogger(__name__)

#: The key of the list of failed records. Task records have other keys.
_KEY = b"dead-letters"
#: The list has at most this many records.
_MAX_LISTED = 1000


class FailedRecord(NamedTuple):
    """A record that failed a batch, and the processor that failed."""

    topic: str
    partition: int
    offset: int
    processor: str


class _FailedRecords(msgspec.Struct, frozen=True):
    """The failed records whose dead letters are written, the newest last."""

    records: list[FailedRecord]
    #: All records of the topic have it, so that readers of the others can skip this one.
    format_version: int = 1


def check_dead_letter_topics(log: Log, config: StreamsConfig) -> None:
    """Raise if the topic of a dead letter queue does not exist."""
    topics = config.dead_letter_topics()
    if not topics:
        return
    existing = {topic.name for topic in log.topics()}
    for topic in topics:
        if topic not in existing:
            raise ConfigException(
                f"The topic '{topic}' of the dead letter queue does not exist."
                f"{did_you_mean(topic, existing)} Create it with "
                f"'penstock topics create {topic}', or change "
                "errors.dead.letter.queue.topic.name."
            )


def write_dead_letters(
    target: Log, lease: Lease, application_id: str, outcomes: Iterable[TaskOutcome]
) -> None:
    """Write the dead letters of failed outcomes, unless an earlier failure has written them.

    An error of the log is logged: the failure of the batch is more important.
    """
    failed = [outcome for outcome in outcomes if outcome.failure is not None and outcome.outputs]
    if not failed:
        return
    try:
        _write(target, lease, application_id, failed)
    except LogError as error:
        log.error("The dead letters of the failed batch could not be written: %s", error)


def _write(
    target: Log, lease: Lease, application_id: str, failed: list[TaskOutcome]
) -> None:
    topic = tasks_topic(application_id)
    listed = _read_listed(target, topic)
    new = []
    for outcome in failed:
        record = _failed_record(outcome)
        if record is not None and record in listed:
            log.warning(
                "The dead letter queue has the record at topic '%s', partition %d, offset %d "
                "already.", *record[:3],
            )
            continue
        new.append(outcome)
        if record is not None:
            listed.append(record)
    if not new:
        return
    with target.transaction(lease) as transaction:
        for outcome in new:
            for append in outcome.outputs:
                transaction.append(*append)
        value = msgspec.json.encode(_FailedRecords(listed[-_MAX_LISTED:]))
        transaction.append(topic, 0, RecordColumns([_KEY], [value]))
    log.warning(
        "Dead letters of the failed batch: %d written. Nothing else of the batch is committed.",
        sum(count_records(outcome.outputs) for outcome in new),
    )


def _failed_record(outcome: TaskOutcome) -> FailedRecord | None:
    """Return the failed record; None if it is unknown, or a punctuation failed."""
    failure = outcome.failure
    if failure is None or failure.topic is None or failure.processor is None:
        return None
    return FailedRecord(failure.topic, failure.partition, failure.offset, failure.processor)


def _read_listed(source: Log, topic: str) -> list[FailedRecord]:
    at = TopicPartition(topic, 0)
    bounds = source.offsets([at])[at]
    listed: list[FailedRecord] = []
    for batch in source.read(*at, bounds.start, bounds.end):
        columns = batch.columns()
        for key, value in zip(columns.keys, columns.values, strict=True):
            if key == _KEY and value is not None:
                listed = msgspec.json.decode(value, type=_FailedRecords).records
    return listed
