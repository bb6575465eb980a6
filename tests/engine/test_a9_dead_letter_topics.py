"""The topic of a dead letter queue must exist when an application starts."""

from __future__ import annotations

import pytest

from engine.instances import CreateStreams
from penstock import LogAndContinueExceptionHandler
from penstock.log import Log


def test_missing_dead_letter_topic_ends_the_application_at_start(
    log: Log, create_streams: CreateStreams
) -> None:
    streams = create_streams(errors_dead_letter_queue_topic_name="dead")
    with pytest.raises(Exception, match="topic 'dead' of the dead letter queue does not exist"):
        streams.run_until_caught_up(60)


def test_topic_of_a_handler_is_checked_as_well(log: Log, create_streams: CreateStreams) -> None:
    handler = LogAndContinueExceptionHandler("own")
    streams = create_streams(deserialization_exception_handler=handler)
    with pytest.raises(Exception, match="topic 'own' of the dead letter queue does not exist"):
        streams.run_until_caught_up(60)
