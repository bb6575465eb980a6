"""Who is in a group, and who works on what.

Each member has a *target*, its share of the partitions, and what it *owns*: all that it may be
working on. A partition moves in two steps: its owner leaves it out of a heartbeat, then the next
heartbeat of the member that has it as a target gets it. So no two members ever own the same one.
"""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.log.base import Member
from penstock.log.embedded.assignors import ASSIGNORS, Shares
from penstock.log.embedded.database import Database
from penstock.log.errors import Fenced
from penstock.log.types import Assignment, MemberDescription, TopicPartition


class _Row(NamedTuple):
    """A member as it is stored."""

    member_id: str
    token: str
    client_id: str
    topics: str
    strategy: str
    session_timeout_ms: int
    beat: int
    seen_ms: int
    owned: frozenset[TopicPartition]
    target: frozenset[TopicPartition]


def _text(partitions: Iterable[TopicPartition]) -> str:
    return json.dumps(sorted(partitions))


def _parsed(text: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for topic, partition in json.loads(text))


def _members(db: sqlite3.Connection, group: str) -> dict[str, _Row]:
    rows = db.execute(
        "SELECT member_id, token, client_id, topics, strategy, session_timeout_ms, beat, seen_ms, "
        "owned, target FROM members WHERE group_name = ? ORDER BY member_id",
        (group,),
    )
    return {
        row[0]: _Row._make((*row[:8], _parsed(row[8]), _parsed(row[9]))) for row in rows
    }


def live_members(
    db: sqlite3.Connection, group: str, now_ms: int
) -> tuple[MemberDescription, ...]:
    """Who gave a sign within the session timeout, by the time of day: good enough for people."""
    return tuple(
        MemberDescription(row.member_id, row.client_id, tuple(sorted(row.owned)))
        for row in _members(db, group).values()
        if now_ms - row.seen_ms < row.session_timeout_ms
    )


def check_owns(
    db: sqlite3.Connection, group: str, member: Member, partitions: Iterable[TopicPartition]
) -> None:
    """Raise `Fenced` unless the member is in the group and owns them all."""
    if not isinstance(member, EmbeddedMember) or member.group != group:
        raise ValueError(f"The member '{member.member_id}' is not one of group '{group}'.")
    lost = {TopicPartition(*which) for which in partitions} - member.row(db).owned
    if lost:
        topic, partition = min(lost)
        raise Fenced(
            f"'{topic}' [{partition}] does not belong to member '{member.member_id}' of group "
            f"'{group}' any more."
        )


def _changed(db: sqlite3.Connection, group: str) -> None:
    """Let every member hear of it."""
    db.execute(
        "INSERT INTO groups (name, generation, version) VALUES (?, 0, 1) "
        "ON CONFLICT (name) DO UPDATE SET version = version + 1",
        (group,),
    )


def _divide(db: sqlite3.Connection, group: str, members: dict[str, _Row]) -> dict[str, _Row]:
    """Give every member its target, if members or topics are not what they were."""
    all_counts: dict[str, int] = dict(db.execute("SELECT name, partitions FROM topics"))
    subscriptions = {
        name: frozenset(_matching(json.loads(row.topics), all_counts))
        for name, row in members.items()
    }
    wanted = frozenset().union(*subscriptions.values())
    counts = {topic: all_counts[topic] for topic in sorted(wanted)}
    divided = json.dumps(
        [[(row.member_id, row.token, row.topics, row.strategy) for row in members.values()], counts]
    )
    before = db.execute("SELECT divided FROM groups WHERE name = ?", (group,)).fetchone()
    if before is not None and before[0] == divided:
        return members
    assignor = ASSIGNORS[next(iter(members.values())).strategy]
    had: Shares = {name: set(row.target) for name, row in members.items()}
    shares = assignor(subscriptions, counts, had)
    db.executemany(
        "UPDATE members SET target = ? WHERE group_name = ? AND member_id = ?",
        [(_text(share), group, name) for name, share in shares.items()],
    )
    _changed(db, group)
    db.execute(
        "UPDATE groups SET generation = generation + 1, divided = ? WHERE name = ?",
        (divided, group),
    )
    return {
        name: row._replace(target=frozenset(shares[name])) for name, row in members.items()
    }


def _matching(wanted: list[str], topics: Iterable[str]) -> set[str]:
    patterns = [re.compile(text) for text in wanted if text.startswith("^")]
    return {
        topic for topic in topics
        if topic in wanted or any(pattern.match(topic) for pattern in patterns)
    }


class EmbeddedMember(Member):
    """A place in a group. `_beats` is what it saw of the others, and when that last changed."""

    def __init__(self, db: Database, group: str, member_id: str, token: str) -> None:
        self.group = group
        self.member_id = member_id
        self._db = db
        self._token = token
        self._version = -1
        self._beats: dict[str, tuple[str, int, float]] = {}

    def row(self, db: sqlite3.Connection) -> _Row:
        """What is stored of it; `Fenced` if that is another's by now."""
        return self._own(_members(db, self.group))

    def _own(self, members: dict[str, _Row]) -> _Row:
        row = members.get(self.member_id)
        if row is None or row.token != self._token:
            raise Fenced(
                f"The member '{self.member_id}' is not in group '{self.group}' any more: it gave "
                "no sign in time, or another took its place. Join again."
            )
        return row

    def heartbeat(self, owned: Collection[TopicPartition]) -> Assignment:
        """See `Member.heartbeat`."""
        with self._db.writing() as db:
            members = _members(db, self.group)
            mine = self._own(members)
            for silent in self._silent(members):
                del members[silent]
                _remove(db, self.group, silent)
            kept = mine.owned & {TopicPartition(*which) for which in owned}
            if kept != mine.owned:
                _changed(db, self.group)
            members[self.member_id] = mine._replace(owned=kept)
            members = _divide(db, self.group, members)
            taken = frozenset[TopicPartition]().union(
                *(row.owned for name, row in members.items() if name != self.member_id)
            )
            given = members[self.member_id].target - taken
            db.execute(
                "UPDATE members SET beat = beat + 1, seen_ms = ?, owned = ? "
                "WHERE group_name = ? AND member_id = ?",
                (self._db.options.clock(), _text(kept | given), self.group, self.member_id),
            )
            generation, version = db.execute(
                "SELECT generation, version FROM groups WHERE name = ?", (self.group,)
            ).fetchone()
        self._version = version
        return Assignment(generation, given)

    def _silent(self, members: dict[str, _Row]) -> list[str]:
        """The others that did not move for their session timeout while this one watched."""
        now = self._db.options.monotonic()
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
        with self._db.reading() as db:
            row = db.execute("SELECT version FROM groups WHERE name = ?", (self.group,)).fetchone()
        return row is None or row[0] != self._version

    def leave(self) -> None:
        """See `Member.leave`."""
        with self._db.writing() as db:
            row = _members(db, self.group).get(self.member_id)
            if row is not None and row.token == self._token:
                _remove(db, self.group, self.member_id)


def _remove(db: sqlite3.Connection, group: str, member_id: str) -> None:
    db.execute(
        "DELETE FROM members WHERE group_name = ? AND member_id = ?", (group, member_id)
    )
    _changed(db, group)


class Members:
    """The part of the log that lets members in."""

    _db: Database

    def join_group(
        self,
        group: str,
        topics: Collection[str],
        *,
        client_id: str = "",
        member_id: str | None = None,
        session_timeout_ms: int = 45_000,
        strategy: str = "sticky",
    ) -> Member:
        """See `Log.join_group`."""
        if strategy not in ASSIGNORS:
            raise ValueError(
                f"No strategy '{strategy}'. Strategies: {', '.join(sorted(ASSIGNORS))}."
            )
        if isinstance(topics, str):
            raise TypeError(f"topics must be a collection of names, not the text '{topics}'.")
        token = uuid.uuid4().hex
        name = member_id or f"{client_id or 'member'}-{token}"
        with self._db.writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, '[]', '[]')",
                (group, name, token, client_id, json.dumps(sorted(topics)), strategy,
                 session_timeout_ms, self._db.options.clock()),
            )
            _changed(db, group)
        return EmbeddedMember(self._db, group, name, token)
