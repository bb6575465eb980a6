"""Group members. Kafka assigns the partitions.

A member is a consumer that only joins the group; its partitions are read with `Log.read`. A given
member id makes it a static member of Kafka (`group.instance.id`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from penstock.log.base import Member
from penstock.log.errors import Fenced
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.errors import MEMBER_FENCED, translate
from penstock.log.kafka.membership import GroupMembership, MembershipConfig
from penstock.log.types import Assignment, CommittedOffset, TopicPartition

_STRATEGIES = {
    "range": "range", "roundrobin": "roundrobin", "sticky": "cooperative-sticky",
}


def check_member(group: str, member: Member | None) -> KafkaMember | None:
    """Return the member, or raise `ValueError` if it belongs to another group or log."""
    if member is None:
        return None
    if not isinstance(member, KafkaMember) or member.group != group:
        raise ValueError(f"The member '{member.member_id}' does not belong to group '{group}'.")
    return member


class KafkaMember(Member):
    """A member of a group."""

    def __init__(self, membership: GroupMembership, member_id: str) -> None:
        self.group = membership.config.group
        self.member_id = member_id
        self._membership = membership
        #: The number of rebalances at the last heartbeat.
        self._seen_rebalances = 0
        #: The partitions that heartbeats have assigned and not revoked.
        self._owned: set[TopicPartition] = set()

    def heartbeat(
        self, owned: Collection[TopicPartition], *, wait_s: float | None = None
    ) -> Assignment:
        """See `Member.heartbeat`. The first heartbeat waits for the first rebalance."""
        membership = self._membership
        membership.heartbeat(self._owned & {TopicPartition(*where) for where in owned})
        membership.wait_until_joined(wait_s)
        with membership.changed:
            state = membership.state
            self._check_ended()
            assigned = state.assigned - state.revoking
            # Revoked partitions may be committed while they are still processed.
            self._owned = assigned | (state.revoking & state.processing)
            state.processing |= assigned
            self._seen_rebalances = state.rebalances
            return Assignment(state.rebalances, frozenset(assigned))

    def needs_heartbeat(self) -> bool:
        """See `Member.needs_heartbeat`."""
        state = self._membership.state
        return bool(state.ended) or state.rebalances != self._seen_rebalances

    def leave(self) -> None:
        """See `Member.leave`."""
        self._membership.close()

    # Called by the log

    def check_owns(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise `Fenced` unless the member is in the group and owns all the partitions."""
        self._check_ended()
        lost = set(partitions) - self._owned
        if lost:
            topic, partition = min(lost)
            raise Fenced(
                f"The member '{self.member_id}' of group '{self.group}' no longer owns '{topic}' "
                f"[{partition}]."
            )

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets as this member."""
        self.check_owns(offsets)
        error = self._membership.commit(offsets)
        if error is None:
            return
        if error.code() in MEMBER_FENCED:
            raise self._fenced(error.str())
        what = f"Committing the offsets of group '{self.group}' failed"
        raise translate(error, what, self.group)

    def group_metadata(self) -> Any:
        """Return the group metadata for a transaction."""
        self._check_ended()
        return self._membership.metadata()

    def _check_ended(self) -> None:
        if self._membership.state.ended:
            raise self._fenced(self._membership.state.ended)

    def _fenced(self, reason: str) -> Fenced:
        return Fenced(
            f"The member '{self.member_id}' is no longer in group '{self.group}': {reason}. "
            "Join again."
        )


class KafkaMembers:
    """Adds members to groups."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def join(
        self,
        group: str,
        topics: Collection[str],
        *,
        client_id: str,
        member_id: str | None,
        session_timeout_ms: int,
        strategy: str,
    ) -> KafkaMember:
        """Add a member to a group."""
        self._connection.check_open()
        if strategy not in _STRATEGIES:
            raise ValueError(
                f"Unknown strategy '{strategy}'. Strategies: {', '.join(sorted(_STRATEGIES))}."
            )
        if isinstance(topics, str):
            raise TypeError(f"topics must be a collection of names, not the string '{topics}'.")
        config = MembershipConfig(
            group, tuple(topics), session_timeout_ms, _STRATEGIES[strategy], client_id,
            member_id or "",
        )
        membership = GroupMembership(self._connection, config)
        name = member_id or f"{client_id or 'member'}-{id(membership):x}"
        return KafkaMember(membership, name)
