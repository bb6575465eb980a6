"""What a task must know about topics before it writes to them."""

from __future__ import annotations

from penstock.engine.shape import Shape
from penstock.log.base import Log
from penstock.log.errors import UnknownTopic


class TopicFacts:
    """How many partitions topics have and how large their records may be.

    Topics that the topology names are as the shape says. Others, which are chosen for each record,
    are looked up in the log, once a batch: they may be made or deleted at any time.
    """

    def __init__(self, log: Log, shape: Shape) -> None:
        self._log = log
        self._shape = shape
        self._batch = -1
        #: Topic -> (partitions, largest record); None: there is no such topic.
        self._found: dict[str, tuple[int, int] | None] = {}

    def new_batch(self, number: int) -> None:
        """Look again."""
        if number != self._batch:
            self._batch = number
            self._found.clear()

    def partitions_of(self, topic: str) -> int | None:
        """How many partitions a topic has, None if there is no such topic."""
        count = self._shape.partitions.get(topic)
        if count is not None:
            return count
        found = self._find(topic)
        return None if found is None else found[0]

    def max_record_bytes(self, topic: str) -> int | None:
        """How large a record may be; what the shuffle carries has no limit."""
        if topic in self._shape.direct:
            return None
        found = self._find(topic)
        return None if found is None else found[1]

    def _find(self, topic: str) -> tuple[int, int] | None:
        if topic not in self._found:
            try:
                found = self._log.topic(topic)
            except UnknownTopic:
                self._found[topic] = None
            else:
                self._found[topic] = (found.partitions, int(found.setting("max.message.bytes")))
        return self._found[topic]
