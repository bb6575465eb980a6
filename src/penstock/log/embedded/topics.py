"""Topics and their partitions."""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from penstock.log.embedded.database import Database
from penstock.log.errors import (
    InvalidTopic,
    OffsetOutOfRange,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from penstock.log.topic_config import (
    TopicSettings,
    check_partitions,
    check_setting_name,
    check_topic_name,
    checked_config,
)
from penstock.log.types import TopicDescription


@functools.lru_cache(maxsize=1024)
def _parse_settings(config: str) -> TopicSettings:
    return TopicSettings.of(json.loads(config))


class TopicRow(NamedTuple):
    """A row of the table `topics`."""

    id: int
    name: str
    partitions: int
    #: A JSON object with the settings that were given.
    config: str

    @property
    def settings(self) -> TopicSettings:
        """The parsed settings."""
        return _parse_settings(self.config)

    def describe(self, log_id: str) -> TopicDescription:
        """Return the description that the contract defines."""
        return TopicDescription(
            self.name, f"{log_id}-{self.id}", self.partitions, json.loads(self.config)
        )


def find_topic(db: sqlite3.Connection, name: str) -> TopicRow:
    """Return the topic, or raise `UnknownTopic`."""
    row = db.execute(
        "SELECT id, name, partitions, config FROM topics WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        known = [other for (other,) in db.execute("SELECT name FROM topics ORDER BY name")]
        raise UnknownTopic(name, known)
    return TopicRow._make(row)


def find_partition(db: sqlite3.Connection, topic: str, partition: int) -> TopicRow:
    """Return the topic of a partition, or raise `UnknownTopic` or `UnknownPartition`."""
    found = find_topic(db, topic)
    if not 0 <= partition < found.partitions:
        raise UnknownPartition(topic, partition, found.partitions)
    return found


def all_topics(db: sqlite3.Connection) -> list[TopicRow]:
    """Return all topics, ordered by name."""
    rows = db.execute("SELECT id, name, partitions, config FROM topics ORDER BY name")
    return [TopicRow._make(row) for row in rows]


class TopicCatalog:
    """Creates, describes, changes and deletes topics."""

    def __init__(self, database: Database, log_id: str) -> None:
        self._database = database
        self._log_id = log_id

    def create(
        self, name: str, partitions: int, config: Mapping[str, object]
    ) -> TopicDescription:
        """Create a topic with its partitions."""
        check_topic_name(name)
        check_partitions(partitions)
        settings = json.dumps(checked_config(config), sort_keys=True)
        with self._database.writing() as db:
            if db.execute("SELECT 1 FROM topics WHERE name = ?", (name,)).fetchone():
                raise TopicExists(name)
            cursor = db.execute(
                "INSERT INTO topics (name, partitions, config) VALUES (?, ?, ?)",
                (name, partitions, settings),
            )
            topic = TopicRow(int(cursor.lastrowid or 0), name, partitions, settings)
            _insert_partitions(db, topic.id, range(partitions))
        return topic.describe(self._log_id)

    def describe_all(self) -> list[TopicDescription]:
        """Describe all topics, ordered by name."""
        with self._database.reading() as db:
            return [topic.describe(self._log_id) for topic in all_topics(db)]

    def describe(self, name: str) -> TopicDescription:
        """Describe one topic."""
        with self._database.reading() as db:
            return find_topic(db, name).describe(self._log_id)

    def alter(self, name: str, config: Mapping[str, object | None]) -> TopicDescription:
        """Change settings; None removes one."""
        given = checked_config({k: v for k, v in config.items() if v is not None})
        removed = {k for k, v in config.items() if v is None}
        for setting in removed:
            check_setting_name(setting)
        with self._database.writing() as db:
            topic = find_topic(db, name)
            settings = {**json.loads(topic.config), **given}
            encoded = json.dumps(
                {k: v for k, v in settings.items() if k not in removed}, sort_keys=True
            )
            db.execute("UPDATE topics SET config = ? WHERE id = ?", (encoded, topic.id))
        return topic._replace(config=encoded).describe(self._log_id)

    def add_partitions(self, name: str, partitions: int) -> TopicDescription:
        """Increase the number of partitions to `partitions`."""
        with self._database.writing() as db:
            topic = find_topic(db, name)
            if partitions < topic.partitions:
                raise InvalidTopic(
                    f"Topic '{name}' has {topic.partitions} partitions and cannot be reduced to "
                    f"{partitions}. Partitions can only be added."
                )
            _insert_partitions(db, topic.id, range(topic.partitions, partitions))
            db.execute("UPDATE topics SET partitions = ? WHERE id = ?", (partitions, topic.id))
        return topic._replace(partitions=partitions).describe(self._log_id)

    def delete(self, name: str) -> None:
        """Delete a topic. Its blobs are left to `clean`, which deletes them in small steps."""
        with self._database.writing() as db:
            topic = find_topic(db, name)
            db.execute(
                "INSERT INTO aside (blob_id, token, created_ms, facts) "
                "SELECT blob_id, '', 0, '' FROM batches WHERE topic_id = ?",
                (topic.id,),
            )
            for table in ("batches", "partitions", "group_offsets"):
                db.execute(f"DELETE FROM {table} WHERE topic_id = ?", (topic.id,))
            db.execute("DELETE FROM topics WHERE id = ?", (topic.id,))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Move the start of a partition up to `before`. Returns the new start."""
        with self._database.writing() as db:
            found = find_partition(db, topic, partition)
            start, end = db.execute(
                'SELECT start, "end" FROM partitions WHERE topic_id = ? AND partition = ?',
                (found.id, partition),
            ).fetchone()
            if not 0 <= before <= end:
                raise OffsetOutOfRange(topic, partition, before, (start, end))
            if before > start:
                delete_batches_before(db, found.id, partition, before)
                start = before
                advance_start(db, found.id, partition, start)
        return int(start)


def _insert_partitions(db: sqlite3.Connection, topic_id: int, numbers: range) -> None:
    db.executemany(
        "INSERT INTO partitions (topic_id, partition) VALUES (?, ?)",
        [(topic_id, number) for number in numbers],
    )


def delete_batches_before(
    db: sqlite3.Connection, topic_id: int, partition: int, before: int
) -> None:
    """Delete the batches that end below an offset. Their blobs are left to `clean`."""
    which = (topic_id, partition, before)
    db.execute(
        "INSERT INTO aside (blob_id, token, created_ms, facts) SELECT blob_id, '', 0, '' "
        "FROM batches WHERE topic_id = ? AND partition = ? AND last_offset < ?", which,
    )
    db.execute(
        "DELETE FROM batches WHERE topic_id = ? AND partition = ? AND last_offset < ?", which
    )


def advance_start(db: sqlite3.Connection, topic_id: int, partition: int, start: int) -> None:
    """Move the start of a partition up."""
    db.execute(
        "UPDATE partitions SET start = max(start, ?), cleaned_to = max(cleaned_to, ?) "
        "WHERE topic_id = ? AND partition = ?",
        (start, start, topic_id, partition),
    )
