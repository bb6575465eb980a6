"""Members of groups: Kafka divides the partitions among them.

A member is a consumer that only has a place in the group; what it is given is read with
`Log.read`. Names of one's own are Kafka's static members (`group.instance.id`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from penstock.log.base import Member
from penstock.log.errors import Fenced
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.errors import GENERATION_OVER, translated
from penstock.log.kafka.group_member import GroupConnection, PlaceRules
from penstock.log.types import Assignment, CommittedOffset, TopicPartition

_STRATEGIES = {
    "range": "range", "roundrobin": "roundrobin", "sticky": "cooperative-sticky",
}


def checked_member(group: str, member: Member | None) -> KafkaMember | None:
    """A member of this log and this group, or nobody."""
    if member is None:
        return None
    if not isinstance(member, KafkaMember) or member.group != group:
        raise ValueError(f"The member '{member.member_id}' is not one of group '{group}'.")
    return member


class KafkaMember(Member):
    """A place in a group. `_heard` is the round that the last heartbeat has told of."""

    def __init__(self, place: GroupConnection, member_id: str) -> None:
        self.group = place.rules.group
        self.member_id = member_id
        self._place = place
        self._heard = 0
        #: What the owner may be working on: what heartbeats have given and not taken back.
        self._owned: set[TopicPartition] = set()

    def heartbeat(self, owned: Collection[TopicPartition]) -> Assignment:
        """See `Member.heartbeat`. The first one waits until the group has heard of the member."""
        place = self._place
        place.sign(self._owned & {TopicPartition(*where) for where in owned})
        place.wait_for_round()
        with place.changed:
            state = place.state
            self._check_lost()
            given = state.assigned - state.leaving
            # What is on its way out and still worked on may be committed, and nothing else.
            self._owned = given | (state.leaving & state.worked_on)
            state.worked_on |= given
            self._heard = state.rounds
            return Assignment(state.rounds, frozenset(given))

    def needs_heartbeat(self) -> bool:
        """See `Member.needs_heartbeat`."""
        state = self._place.state
        return bool(state.lost) or state.rounds != self._heard

    def leave(self) -> None:
        """See `Member.leave`."""
        self._place.close()

    # What the log asks for

    def check_owns(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise `Fenced` unless the member is in the group and owns them all."""
        self._check_lost()
        lost = set(partitions) - self._owned
        if lost:
            topic, partition = min(lost)
            raise Fenced(
                f"'{topic}' [{partition}] does not belong to member '{self.member_id}' of group "
                f"'{self.group}' any more."
            )

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit as this member."""
        self.check_owns(offsets)
        error = self._place.commit(offsets)
        if error is None:
            return
        if error.code() in GENERATION_OVER:
            raise self._fenced(error.str())
        raise translated(error, f"Offsets of group '{self.group}' were refused", self.group)

    def group_metadata(self) -> Any:
        """What a transaction of Kafka needs to know of the member."""
        self._check_lost()
        return self._place.metadata()

    def _check_lost(self) -> None:
        if self._place.state.lost:
            raise self._fenced(self._place.state.lost)

    def _fenced(self, why: str) -> Fenced:
        return Fenced(
            f"The member '{self.member_id}' is not in group '{self.group}' any more: {why}. "
            "Join again."
        )


class Members:
    """The part of the log that lets members in."""

    _connection: Connection

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
        self._connection.check_open()
        if strategy not in _STRATEGIES:
            raise ValueError(
                f"No strategy '{strategy}'. Strategies: {', '.join(sorted(_STRATEGIES))}."
            )
        if isinstance(topics, str):
            raise TypeError(f"topics must be a collection of names, not the text '{topics}'.")
        rules = PlaceRules(
            group, tuple(topics), session_timeout_ms, _STRATEGIES[strategy], client_id,
            member_id or "",
        )
        place = GroupConnection(self._connection, rules)
        return KafkaMember(place, member_id or f"{client_id or 'member'}-{id(place):x}")
