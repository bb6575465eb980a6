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
def settings_of(config: str) -> TopicSettings:
    """What the stored text of a topic's settings means."""
    return TopicSettings.of(json.loads(config))


class Topic(NamedTuple):
    """A row of the table of topics."""

    id: int
    name: str
    partitions: int
    config: str

    @property
    def settings(self) -> TopicSettings:
        """Its settings."""
        return settings_of(self.config)

    def described(self, log_id: str) -> TopicDescription:
        """As the contract has it."""
        return TopicDescription(
            self.name, f"{log_id}-{self.id}", self.partitions, json.loads(self.config)
        )


def find_topic(db: sqlite3.Connection, name: str) -> Topic:
    """The topic of that name, or `UnknownTopic`."""
    row = db.execute(
        "SELECT id, name, partitions, config FROM topics WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        known = [other for (other,) in db.execute("SELECT name FROM topics ORDER BY name")]
        raise UnknownTopic(name, known)
    return Topic._make(row)


def find_partition(db: sqlite3.Connection, topic: str, partition: int) -> Topic:
    """The topic, if it has the partition."""
    found = find_topic(db, topic)
    if not 0 <= partition < found.partitions:
        raise UnknownPartition(topic, partition, found.partitions)
    return found


def all_topics(db: sqlite3.Connection) -> list[Topic]:
    """All topics, by name."""
    rows = db.execute("SELECT id, name, partitions, config FROM topics ORDER BY name")
    return [Topic._make(row) for row in rows]


class Topics:
    """The part of the log that knows topics."""

    id: str
    _db: Database

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> TopicDescription:
        """See `Log.create_topic`."""
        check_topic_name(name)
        check_partitions(partitions)
        settings = json.dumps(checked_config(config or {}), sort_keys=True)
        with self._db.writing() as db:
            if db.execute("SELECT 1 FROM topics WHERE name = ?", (name,)).fetchone():
                raise TopicExists(name)
            cursor = db.execute(
                "INSERT INTO topics (name, partitions, config) VALUES (?, ?, ?)",
                (name, partitions, settings),
            )
            topic = Topic(int(cursor.lastrowid or 0), name, partitions, settings)
            _insert_partitions(db, topic.id, range(partitions))
        return topic.described(self.id)

    def topics(self) -> list[TopicDescription]:
        """See `Log.topics`."""
        with self._db.reading() as db:
            return [topic.described(self.id) for topic in all_topics(db)]

    def topic(self, name: str) -> TopicDescription:
        """See `Log.topic`."""
        with self._db.reading() as db:
            return find_topic(db, name).described(self.id)

    def alter_topic(self, name: str, config: Mapping[str, object | None]) -> TopicDescription:
        """See `Log.alter_topic`."""
        given = checked_config({k: v for k, v in config.items() if v is not None})
        removed = {k for k, v in config.items() if v is None}
        for setting in removed:
            check_setting_name(setting)
        with self._db.writing() as db:
            topic = find_topic(db, name)
            settings = {**json.loads(topic.config), **given}
            text = json.dumps(
                {k: v for k, v in settings.items() if k not in removed}, sort_keys=True
            )
            db.execute("UPDATE topics SET config = ? WHERE id = ?", (text, topic.id))
        return topic._replace(config=text).described(self.id)

    def add_partitions(self, name: str, partitions: int) -> TopicDescription:
        """See `Log.add_partitions`."""
        with self._db.writing() as db:
            topic = find_topic(db, name)
            if partitions < topic.partitions:
                raise InvalidTopic(
                    f"Topic '{name}' has {topic.partitions} partitions; "
                    f"it cannot have {partitions}: partitions are only ever added."
                )
            _insert_partitions(db, topic.id, range(topic.partitions, partitions))
            db.execute("UPDATE topics SET partitions = ? WHERE id = ?", (partitions, topic.id))
        return topic._replace(partitions=partitions).described(self.id)

    def delete_topic(self, name: str) -> None:
        """See `Log.delete_topic`. The blobs are left to `clean`, which takes small steps."""
        with self._db.writing() as db:
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
        """See `Log.delete_records`."""
        with self._db.writing() as db:
            found = find_partition(db, topic, partition)
            start, end = db.execute(
                'SELECT start, "end" FROM partitions WHERE topic_id = ? AND partition = ?',
                (found.id, partition),
            ).fetchone()
            if not 0 <= before <= end:
                raise OffsetOutOfRange(topic, partition, before, (start, end))
            if before > start:
                drop_batches(db, found.id, partition, before)
                start = before
                set_start(db, found.id, partition, start)
        return int(start)


def _insert_partitions(db: sqlite3.Connection, topic_id: int, numbers: range) -> None:
    db.executemany(
        "INSERT INTO partitions (topic_id, partition) VALUES (?, ?)",
        [(topic_id, number) for number in numbers],
    )


def drop_batches(db: sqlite3.Connection, topic_id: int, partition: int, before: int) -> None:
    """Remove the batches that end below an offset; their blobs wait for `clean`."""
    which = (topic_id, partition, before)
    db.execute(
        "INSERT INTO aside (blob_id, token, created_ms, facts) SELECT blob_id, '', 0, '' "
        "FROM batches WHERE topic_id = ? AND partition = ? AND last_offset < ?", which,
    )
    db.execute(
        "DELETE FROM batches WHERE topic_id = ? AND partition = ? AND last_offset < ?", which
    )


def set_start(db: sqlite3.Connection, topic_id: int, partition: int, start: int) -> None:
    """Move the start of a partition up."""
    db.execute(
        "UPDATE partitions SET start = max(start, ?), cleaned_to = max(cleaned_to, ?) "
        "WHERE topic_id = ? AND partition = ?",
        (start, start, topic_id, partition),
    )
