"""The actions of the page: pause, resume, and replay of dead letters.

Actions are off unless the operator allows them. A request must have the header `X-Penstock-Action`:
a form or a link of another web site cannot send it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.handlers import ERROR_HEADER_PREFIX
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.queries.http.problems import Problem
from penstock.record import RecordColumns
from penstock.web.records import bounds_of

ACTION_HEADER = "x-penstock-action"


def check_allowed(headers: Mapping[str, str], *, allowed: bool) -> None:
    """Refuse an action that the operator has not allowed, or that another site may have sent."""
    if not allowed:
        raise Problem(403, "Actions are not allowed. Start the dashboard with --allow-actions.")
    if ACTION_HEADER not in headers:
        raise Problem(403, "The header X-Penstock-Action is missing.")


def replay(
    log: Log, letter: TopicPartition, offset: int, letter_topics: Sequence[str],
    reads: Callable[[str], bool],
) -> dict[str, Any]:
    """Append the record of a dead letter to the topic and partition that it came from.

    The headers that describe the error are left out. A header names the topic, and whoever may
    write to the dead letter topic may have set it. So only topics that the application reads are
    written to.

    Args:
        log: The log.
        letter: The topic and partition of the dead letter.
        offset: Its offset.
        letter_topics: The dead letter topics of the application. Others are refused.
        reads: Whether the application reads a topic.
    """
    if letter.topic not in letter_topics:
        raise Problem(
            403, f"'{letter.topic[:200]}' is not a dead letter topic of the application."
        )
    bounds = bounds_of(log, letter)
    if not bounds.start <= offset < bounds.end:
        raise Problem(404, f"No record at offset {offset} of {letter.topic}, {letter.partition}.")
    for batch in log.read(*letter, offset, offset + 1):
        rows = batch.columns()
        headers = () if rows.headers is None else rows.headers[0] or ()
        target = _source(dict(headers))
        _check_target(log, target, reads)
        kept = [(name, data) for name, data in headers if not name.startswith(ERROR_HEADER_PREFIX)]
        appended = log.append(
            *target,
            RecordColumns([rows.keys[0]], [rows.values[0]], [rows.timestamps[0]], [kept]),
        )
        return {"topic": target.topic, "partition": target.partition,
                "offset": appended.base_offset}
    raise Problem(404, f"The record at offset {offset} was deleted.")


def _source(headers: dict[str, bytes | None]) -> TopicPartition:
    topic = headers.get(f"{ERROR_HEADER_PREFIX}topic")
    partition = headers.get(f"{ERROR_HEADER_PREFIX}partition")
    if topic is None or partition is None:
        raise Problem(409, "The record does not name the topic that it came from.")
    try:
        return TopicPartition(topic.decode(), int(partition))
    except ValueError:
        raise Problem(
            409, "The headers of the record do not name a topic and a partition. The record "
            "cannot be replayed."
        ) from None


def _check_target(log: Log, target: TopicPartition, reads: Callable[[str], bool]) -> None:
    if not reads(target.topic):
        raise Problem(
            409, f"The record came from topic '{target.topic[:200]}', which the application does "
            "not read. Replay it with the application that reads the topic."
        )
    try:
        bounds_of(log, target)
    except Problem as missing:
        raise Problem(409, f"The record cannot be replayed. {missing}") from None
