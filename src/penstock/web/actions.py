"""The actions of the page: pause, resume, and replay of dead letters.

Actions are off unless the operator allows them. A request must have the header `X-Penstock-Action`:
a form or a link of another web site cannot send it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.queries.http.problems import Problem
from penstock.record import RecordColumns
from penstock.web.records import bounds_of

ACTION_HEADER = "x-penstock-action"
_PREFIX = "__streams.errors."


def check_allowed(headers: Mapping[str, str], *, allowed: bool) -> None:
    """Refuse an action that the operator has not allowed, or that another site may have sent."""
    if not allowed:
        raise Problem(403, "Actions are not allowed. Start the dashboard with --allow-actions.")
    if ACTION_HEADER not in headers:
        raise Problem(403, "The header X-Penstock-Action is missing.")


def replay(
    log: Log, letter: TopicPartition, offset: int, letter_topics: Sequence[str]
) -> dict[str, Any]:
    """Append the record of a dead letter to the topic and partition that it came from.

    The headers that describe the error are left out.

    Args:
        log: The log.
        letter: The topic and partition of the dead letter.
        offset: Its offset.
        letter_topics: The dead letter topics of the application. Others are refused.
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
        kept = [(name, data) for name, data in headers if not name.startswith(_PREFIX)]
        appended = log.append(
            *target,
            RecordColumns([rows.keys[0]], [rows.values[0]], [rows.timestamps[0]], [kept]),
        )
        return {"topic": target.topic, "partition": target.partition,
                "offset": appended.base_offset}
    raise Problem(404, f"The record at offset {offset} was deleted.")


def _source(headers: dict[str, bytes | None]) -> TopicPartition:
    topic, partition = headers.get(f"{_PREFIX}topic"), headers.get(f"{_PREFIX}partition")
    if topic is None or partition is None:
        raise Problem(409, "The record does not name the topic that it came from.")
    return TopicPartition(topic.decode(), int(partition))
