"""Group members and their partitions.

Each member has a *target*, the partitions assigned to it, and it *owns* all partitions that it may
be processing. A partition moves in two steps: its owner leaves it out of a heartbeat, and then the
next heartbeat of the member that has it as a target receives it. Two members never own the same
partition.
"""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.log.base import Member
from penstock.log.embedded.assignors import ASSIGNORS, Assignments
from penstock.log.embedded.checksums import Damage
from penstock.log.embedded.database import Database
from penstock.log.errors import Fenced
from penstock.log.types import Assignment, MemberDescription, TopicPartition


class _MemberRow(NamedTuple):
    """A row of the table `members`."""

    member_id: str
    token: str
    client_id: str
    topics: str
    strategy: str
    session_timeout_ms: int
    #: Grows with every heartbeat.
    beat: int
    seen_ms: int
    owned: frozenset[TopicPartition]
    target: frozenset[TopicPartition]


def _encode(partitions: Iterable[TopicPartition]) -> str:
    return json.dumps(sorted(partitions))


def _decode(encoded: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for topic, partition in json.loads(encoded))


def _members(db: sqlite3.Connection, group: str) -> dict[str, _MemberRow]:
    rows = db.execute(
        "SELECT member_id, token, client_id, topics, strategy, session_timeout_ms, beat, seen_ms, "
        "owned, target FROM members WHERE group_name = ? ORDER BY member_id",
        (group,),
    )
    try:
        return {
            row[0]: _MemberRow._make((*row[:8], _decode(row[8]), _decode(row[9]))) for row in rows
        }
    except (TypeError, ValueError):
        raise Damage(f"The members of group '{group}' are damaged") from None


def groups_with_members(db: sqlite3.Connection) -> set[str]:
    """Return the names of the groups that have members."""
    names = {name for (name,) in db.execute("SELECT group_name FROM members")}
    if not all(isinstance(name, str) for name in names):
        raise Damage("The members of groups are damaged")
    return names


def live_members(
    db: sqlite3.Connection, group: str, now_ms: int
) -> tuple[MemberDescription, ...]:
    """Return the members with a heartbeat within their session timeout.

    Uses the wall clock, which is accurate enough for display.
    """
    return tuple(
        MemberDescription(row.member_id, row.client_id, tuple(sorted(row.owned)))
        for row in _members(db, group).values()
        if now_ms - row.seen_ms < row.session_timeout_ms
    )


def check_owns(
    db: sqlite3.Connection, group: str, member: Member, partitions: Iterable[TopicPartition]
) -> None:
    """Raise `Fenced` unless the member is in the group and owns all the partitions."""
    if not isinstance(member, EmbeddedMember) or member.group != group:
        raise ValueError(f"The member '{member.member_id}' does not belong to group '{group}'.")
    lost = {TopicPartition(*which) for which in partitions} - member.row(db).owned
    if lost:
        topic, partition = min(lost)
        raise Fenced(
            f"The member '{member.member_id}' of group '{group}' no longer owns '{topic}' "
            f"[{partition}]."
        )


def _notify_members(db: sqlite3.Connection, group: str) -> None:
    """Make `needs_heartbeat` of every member return True."""
    db.execute(
        "INSERT INTO groups (name, generation, version) VALUES (?, 0, 1) "
        "ON CONFLICT (name) DO UPDATE SET version = version + 1",
        (group,),
    )


def _assign_targets(
    db: sqlite3.Connection, group: str, members: dict[str, _MemberRow]
) -> dict[str, _MemberRow]:
    """Assign new targets if the members or the topics have changed."""
    all_counts: dict[str, int] = dict(db.execute("SELECT name, partitions FROM topics"))
    subscriptions = {
        name: frozenset(_subscribed(json.loads(row.topics), all_counts))
        for name, row in members.items()
    }
    subscribed = frozenset().union(*subscriptions.values())
    counts = {topic: all_counts[topic] for topic in sorted(subscribed)}
    inputs = json.dumps(
        [[(row.member_id, row.token, row.topics, row.strategy) for row in members.values()], counts]
    )
    before = db.execute("SELECT divided FROM groups WHERE name = ?", (group,)).fetchone()
    if before is not None and before[0] == inputs:
        return members
    assignor = ASSIGNORS[next(iter(members.values())).strategy]
    previous: Assignments = {name: set(row.target) for name, row in members.items()}
    assigned = assignor(subscriptions, counts, previous)
    db.executemany(
        "UPDATE members SET target = ? WHERE group_name = ? AND member_id = ?",
        [(_encode(partitions), group, name) for name, partitions in assigned.items()],
    )
    _notify_members(db, group)
    db.execute(
        "UPDATE groups SET generation = generation + 1, divided = ? WHERE name = ?",
        (inputs, group),
    )
    return {
        name: row._replace(target=frozenset(assigned[name])) for name, row in members.items()
    }


def _subscribed(subscription: list[str], topics: Iterable[str]) -> set[str]:
    patterns = [re.compile(name) for name in subscription if name.startswith("^")]
    return {
        topic for topic in topics
        if topic in subscription or any(pattern.match(topic) for pattern in patterns)
    }


class EmbeddedMember(Member):
    """A member of a group.

    `_beats` holds, for every other member, its token, its last heartbeat counter, and the time
    since when that has not changed.
    """

    def __init__(self, database: Database, group: str, member_id: str, token: str) -> None:
        self.group = group
        self.member_id = member_id
        self._database = database
        self._token = token
        self._version = -1
        self._beats: dict[str, tuple[str, int, float]] = {}

    def row(self, db: sqlite3.Connection) -> _MemberRow:
        """Return the stored row. `Fenced` if the member was removed or replaced."""
        return self._own_row(_members(db, self.group))

    def _own_row(self, members: dict[str, _MemberRow]) -> _MemberRow:
        row = members.get(self.member_id)
        if row is None or row.token != self._token:
            raise Fenced(
                f"The member '{self.member_id}' is no longer in group '{self.group}'. Its session "
                "timed out, or another process joined with its id. Join again."
            )
        return row

    def heartbeat(
        self, owned: Collection[TopicPartition], *, wait_s: float | None = None
    ) -> Assignment:
        """See `Member.heartbeat`. It does not wait."""
        with self._database.writing() as db:
            members = _members(db, self.group)
            mine = self._own_row(members)
            for silent in self._find_silent(members):
                del members[silent]
                _remove(db, self.group, silent)
            kept = mine.owned & {TopicPartition(*which) for which in owned}
            if kept != mine.owned:
                _notify_members(db, self.group)
            members[self.member_id] = mine._replace(owned=kept)
            members = _assign_targets(db, self.group, members)
            taken = frozenset[TopicPartition]().union(
                *(row.owned for name, row in members.items() if name != self.member_id)
            )
            assigned = members[self.member_id].target - taken
            db.execute(
                "UPDATE members SET beat = beat + 1, seen_ms = ?, owned = ? "
                "WHERE group_name = ? AND member_id = ?",
                (self._database.options.clock(), _encode(kept | assigned), self.group,
                 self.member_id),
            )
            generation, version = db.execute(
                "SELECT generation, version FROM groups WHERE name = ?", (self.group,)
            ).fetchone()
        self._version = version
        return Assignment(generation, assigned)

    def _find_silent(self, members: dict[str, _MemberRow]) -> list[str]:
        """Return the other members whose counter did not change for their session timeout."""
        now = self._database.options.monotonic()
        beats: dict[str, tuple[str, int, float]] = {}
        silent = []
        for name, row in members.items():
            if name == self.member_id:
                continue
            token, beat, since = self._beats.get(name, ("", -1, now))
            if (token, beat) != (row.token, row.beat):
                since = now
            beats[name] = (row.token, row.beat, since)
            if now - since >= row.session_timeout_ms / 1000:
                silent.append(name)
        self._beats = beats
        return silent

    def needs_heartbeat(self) -> bool:
        """See `Member.needs_heartbeat`."""
        with self._database.reading() as db:
            row = db.execute("SELECT version FROM groups WHERE name = ?", (self.group,)).fetchone()
        return row is None or row[0] != self._version

    def leave(self) -> None:
        """See `Member.leave`."""
        with self._database.writing() as db:
            row = _members(db, self.group).get(self.member_id)
            if row is not None and row.token == self._token:
                _remove(db, self.group, self.member_id)


def _remove(db: sqlite3.Connection, group: str, member_id: str) -> None:
    db.execute(
        "DELETE FROM members WHERE group_name = ? AND member_id = ?", (group, member_id)
    )
    _notify_members(db, group)


class GroupMembers:
    """Adds members to groups."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def join(
        self,
        group: str,
        topics: Collection[str],
        *,
        client_id: str,
        member_id: str | None,
        session_timeout_ms: int,
        strategy: str,
    ) -> EmbeddedMember:
        """Add a member to a group."""
        if strategy not in ASSIGNORS:
            raise ValueError(
                f"Unknown strategy '{strategy}'. Strategies: {', '.join(sorted(ASSIGNORS))}."
            )
        if isinstance(topics, str):
            raise TypeError(f"topics must be a collection of names, not the string '{topics}'.")
        token = uuid.uuid4().hex
        name = member_id or f"{client_id or 'member'}-{token}"
        with self._database.writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, '[]', '[]')",
                (group, name, token, client_id, json.dumps(sorted(topics)), strategy,
                 session_timeout_ms, self._database.options.clock()),
            )
            _notify_members(db, group)
        return EmbeddedMember(self._database, group, name, token)
