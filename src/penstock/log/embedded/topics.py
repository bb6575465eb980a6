"""Topics and their partitions."""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.log.embedded import totals
from penstock.log.embedded.batch_rows import delete_batches
from penstock.log.embedded.checksums import TOPICS, Damage
from penstock.log.embedded.database import Database
from penstock.log.embedded.offset_rows import delete_offsets_of_topic
from penstock.log.embedded.partitions import (
    PartitionRow,
    read_partition,
    write_partition,
)
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
    checksum: int

    @classmethod
    def of(cls, topic_id: int, name: str, partitions: int, config: str) -> TopicRow:
        """Create a row with its checksum."""
        return cls(
            topic_id, name, partitions, config, TOPICS.of((topic_id, name, partitions, config))
        )

    @property
    def settings(self) -> TopicSettings:
        """The parsed settings."""
        return _parse_settings(self.config)

    def check_partition(self, partition: int) -> None:
        """Raise `UnknownPartition` if the topic has no such partition."""
        if not 0 <= partition < self.partitions:
            raise UnknownPartition(self.name, partition, self.partitions)

    def describe(self, log_id: str) -> TopicDescription:
        """Return the description that the contract defines."""
        return TopicDescription(
            self.name, f"{log_id}-{self.id}", self.partitions, json.loads(self.config)
        )


_SELECT = "SELECT id, name, partitions, config, checksum FROM topics"


def _checked(row: tuple[object, ...]) -> TopicRow:
    if not TOPICS.matches(row):
        raise Damage(f"The row of the topic '{row[1]}' is damaged")
    return TopicRow._make(row)


def find_topic(db: sqlite3.Connection, name: str) -> TopicRow:
    """Return the topic, or raise `UnknownTopic`."""
    row = db.execute(f"{_SELECT} WHERE name = ?", (name,)).fetchone()
    if row is None:
        known = [topic.name for topic in all_topics(db)]
        if name in known:
            raise Damage("The index of the topics is damaged")
        raise UnknownTopic(name, known)
    return _checked(row)


def find_partition(
    db: sqlite3.Connection, topic: str, partition: int
) -> tuple[TopicRow, PartitionRow]:
    """Return a partition and its topic. `UnknownTopic` or `UnknownPartition`.

    Use one snapshot.
    """
    found = find_topic(db, topic)
    found.check_partition(partition)
    row = read_partition(db, found.id, partition)
    assert row is not None
    return found, row


def all_topics(db: sqlite3.Connection) -> list[TopicRow]:
    """Return all topics, ordered by name. Use one snapshot."""
    # The order of ids reads the table and not its index, which may have fewer rows.
    topics = [_checked(row) for row in db.execute(f"{_SELECT} ORDER BY id")]
    totals.check_total(
        db, totals.TOPICS, (topic.checksum for topic in topics), "The table of topics is damaged"
    )
    return sorted(topics, key=lambda topic: topic.name)


def topic_names(db: sqlite3.Connection, ids: Collection[int]) -> dict[int, str]:
    """Return the names of topics that must exist."""
    marks = ", ".join("?" * len(ids))
    rows = db.execute(f"{_SELECT} WHERE id IN ({marks})", tuple(ids))
    names = {topic.id: topic.name for topic in map(_checked, rows)}
    if len(names) != len(ids):
        raise Damage("The table of topics is damaged")
    return names


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
            if any(topic.name == name for topic in all_topics(db)):
                raise TopicExists(name)
            totals.check_last_topic_id(db)
            cursor = db.execute(
                "INSERT INTO topics (name, partitions, config, checksum) VALUES (?, ?, ?, 0)",
                (name, partitions, settings),
            )
            topic = TopicRow.of(int(cursor.lastrowid or 0), name, partitions, settings)
            _update_topic(db, topic, 0)
            totals.delete_total(db, totals.LAST_TOPIC_ID)
            totals.add_to_total(db, totals.LAST_TOPIC_ID, topic.id)
            _insert_partitions(db, topic.id, range(partitions))
        return topic.describe(self._log_id)

    def describe_all(self) -> list[TopicDescription]:
        """Describe all topics, ordered by name."""
        with self._database.snapshot() as db:
            return [topic.describe(self._log_id) for topic in all_topics(db)]

    def describe(self, name: str) -> TopicDescription:
        """Describe one topic."""
        with self._database.snapshot() as db:
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
            altered = TopicRow.of(topic.id, name, topic.partitions, encoded)
            _update_topic(db, altered, topic.checksum)
        return altered.describe(self._log_id)

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
            altered = TopicRow.of(topic.id, name, partitions, topic.config)
            _update_topic(db, altered, topic.checksum)
        return altered.describe(self._log_id)

    def delete(self, name: str) -> None:
        """Delete a topic. Its blobs are left to `clean`, which deletes them in small steps."""
        with self._database.writing() as db:
            topic = find_topic(db, name)
            delete_batches(db, topic.id)
            delete_offsets_of_topic(db, topic.id)
            db.execute("DELETE FROM partitions WHERE topic_id = ?", (topic.id,))
            db.execute("DELETE FROM topics WHERE id = ?", (topic.id,))
            totals.add_to_total(db, totals.TOPICS, -topic.checksum)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Move the start of a partition up to `before`. Returns the new start."""
        with self._database.writing() as db:
            row = find_partition(db, topic, partition)[1]
            if not 0 <= before <= row.end:
                raise OffsetOutOfRange(topic, partition, before, (row.start, row.end))
            if before > row.start:
                row = delete_batches_before(db, row, before)
        return row.start


def _update_topic(db: sqlite3.Connection, topic: TopicRow, old_checksum: int) -> None:
    db.execute(
        "UPDATE topics SET partitions = ?, config = ?, checksum = ? WHERE id = ?",
        (topic.partitions, topic.config, topic.checksum, topic.id),
    )
    totals.add_to_total(db, totals.TOPICS, topic.checksum - old_checksum)


def _insert_partitions(db: sqlite3.Connection, topic_id: int, numbers: range) -> None:
    for number in numbers:
        write_partition(db, PartitionRow(topic_id, number))


def delete_batches_before(
    db: sqlite3.Connection, row: PartitionRow, before: int
) -> PartitionRow:
    """Delete the batches that end below an offset, and move the start of the partition up."""
    delete_batches(db, row.topic_id, row.partition, before)
    moved = row._replace(
        start=max(row.start, before), cleaned_to=max(row.cleaned_to, before)
    )
    write_partition(db, moved)
    return moved
