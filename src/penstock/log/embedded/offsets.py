"""Committed offsets, and groups as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from penstock.log.base import Member
from penstock.log.embedded.database import Database
from penstock.log.embedded.members import check_owns, groups_with_members, live_members
from penstock.log.embedded.offset_rows import (
    OffsetRow,
    delete_offsets_of_group,
    groups_with_offsets,
    read_offset_rows,
    write_offset_rows,
)
from penstock.log.embedded.topics import TopicRow, find_topic, topic_names
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
    topics: dict[str, TopicRow] = {}
    rows = []
    for (topic, partition), given in offsets.items():
        committed = CommittedOffset(given) if isinstance(given, int) else given
        if committed.offset < 0:
            raise ValueError(f"An offset must not be negative: {committed.offset}.")
        found = topics.get(topic) or topics.setdefault(topic, find_topic(db, topic))
        found.check_partition(partition)
        rows.append(
            OffsetRow(group, found.id, partition, committed.offset, committed.metadata, now)
        )
    write_offset_rows(db, group, rows)


def _read_offsets(db: sqlite3.Connection, group: str) -> dict[TopicPartition, CommittedOffset]:
    rows = read_offset_rows(db, group)
    names = topic_names(db, {row.topic_id for row in rows})
    found = {
        TopicPartition(names[row.topic_id], row.partition): CommittedOffset(
            row.offset, row.metadata
        )
        for row in rows
    }
    return dict(sorted(found.items()))


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
        with self._database.snapshot() as db:
            found = _read_offsets(db, group)
        if partitions is None:
            return found
        return {which: found[which] for which in partitions if which in found}

    def groups(self) -> list[str]:
        """Return the names of groups with members or offsets."""
        with self._database.snapshot() as db:
            return sorted(groups_with_offsets(db) | groups_with_members(db))

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
            delete_offsets_of_group(db, name)
            db.execute("DELETE FROM members WHERE group_name = ?", (name,))
            db.execute("DELETE FROM groups WHERE name = ?", (name,))
