"""Committed offsets, and groups as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from penstock.log.base import Member
from penstock.log.embedded.database import Database
from penstock.log.embedded.members import check_owns, live_members
from penstock.log.embedded.topics import find_partition
from penstock.log.errors import GroupNotEmpty
from penstock.log.types import CommittedOffset, GroupDescription, TopicPartition


def write_offsets(
    db: sqlite3.Connection,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset | int],
    member: Member | None,
    now: int,
) -> None:
    """Commit offsets of a group, inside a write transaction."""
    if member is not None:
        check_owns(db, group, member, offsets)
    for (topic, partition), given in offsets.items():
        committed = CommittedOffset(given) if isinstance(given, int) else given
        if committed.offset < 0:
            raise ValueError(f"An offset must not be negative: {committed.offset}.")
        found = find_partition(db, topic, partition)
        db.execute(
            "INSERT OR REPLACE INTO group_offsets VALUES (?, ?, ?, ?, ?, ?)",
            (group, found.id, partition, committed.offset, committed.metadata, now),
        )


def _read_offsets(db: sqlite3.Connection, group: str) -> dict[TopicPartition, CommittedOffset]:
    rows = db.execute(
        'SELECT name, partition, "offset", metadata FROM group_offsets '
        "JOIN topics ON topics.id = topic_id WHERE group_name = ? ORDER BY name, partition",
        (group,),
    )
    return {
        TopicPartition(topic, partition): CommittedOffset(offset, metadata)
        for topic, partition, offset, metadata in rows
    }


class GroupOffsets:
    """Owns the committed offsets. Describes and deletes groups."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None,
    ) -> None:
        """Commit offsets of a group."""
        with self._database.writing() as db:
            write_offsets(db, group, offsets, member, self._database.options.clock())

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of the given partitions, or of all."""
        with self._database.reading() as db:
            found = _read_offsets(db, group)
        if partitions is None:
            return found
        return {which: found[which] for which in partitions if which in found}

    def groups(self) -> list[str]:
        """Return the names of groups with members or offsets."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT group_name FROM group_offsets UNION SELECT group_name FROM members "
                "ORDER BY 1"
            )
            return [name for (name,) in rows]

    def describe_group(self, name: str) -> GroupDescription:
        """Describe a group. An unknown group is empty."""
        now = self._database.options.clock()
        with self._database.snapshot() as db:
            row = db.execute("SELECT generation FROM groups WHERE name = ?", (name,)).fetchone()
            members = live_members(db, name, now)
            return GroupDescription(name, row[0] if row else 0, members, _read_offsets(db, name))

    def delete_group(self, name: str) -> None:
        """Delete a group without live members."""
        now = self._database.options.clock()
        with self._database.writing() as db:
            live = live_members(db, name, now)
            if live:
                raise GroupNotEmpty(name, [member.member_id for member in live])
            for table in ("group_offsets", "members"):
                db.execute(f"DELETE FROM {table} WHERE group_name = ?", (name,))
            db.execute("DELETE FROM groups WHERE name = ?", (name,))
