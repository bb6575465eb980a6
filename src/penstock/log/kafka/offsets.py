"""What groups have committed, and who is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupState

from penstock.log.base import Member
from penstock.log.errors import Fenced, GroupNotEmpty
from penstock.log.kafka.client.errors import GroupMissing
from penstock.log.kafka.client.topic_metadata import INTERNAL_PREFIX
from penstock.log.kafka.core import Core
from penstock.log.kafka.members import checked_member
from penstock.log.kafka.pending import as_committed
from penstock.log.types import CommittedOffset, GroupDescription, MemberDescription, TopicPartition


class GroupOffsets(Core):
    """The part of the log that knows what groups committed, and groups as a whole."""

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """See `Log.commit_offsets`. Without a member Kafka takes them only of an empty group."""
        wanted = as_committed(offsets)
        if not wanted:
            return
        for where in wanted:
            self.topic_book.find_partition(*where)
        mine = checked_member(group, member)
        if mine is not None:
            mine.commit(wanted)
        else:
            self._commit_as_stranger(group, wanted)
        self._connection.changed.set()

    def _commit_as_stranger(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        try:
            self.strangers.of(group).commit(offsets)
        except Fenced as error:
            raise GroupNotEmpty(group, [one.member_id for one in self._members(group)]) from error

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """See `Log.committed`."""
        if partitions is None:
            wanted = self.topic_book.partitions()
        else:
            wanted = [TopicPartition(*where) for where in partitions]
        if not wanted:
            return {}
        found = self.strangers.of(group).committed(wanted)
        return {where: found[where] for where in wanted if where in found}

    def groups(self) -> list[str]:
        """See `Log.groups`."""
        def ask() -> Any:
            return self._connection.admin.list_consumer_groups(
                request_timeout=self._connection.request_timeout
            )

        listed: Any = self._connection.ask(ask, "The groups were asked for")
        return sorted(
            one.group_id for one in listed.valid if one.state != ConsumerGroupState.DEAD
        )

    def group(self, name: str) -> GroupDescription:
        """See `Log.group`. Kafka's tools do not tell the generation: it is always 0."""
        return GroupDescription(name, 0, self._members(name), self.committed(name))

    def _members(self, name: str) -> tuple[MemberDescription, ...]:
        def ask() -> Any:
            asked: Any = self._connection.admin.describe_consumer_groups(
                [name], request_timeout=self._connection.request_timeout
            )
            return asked[name]

        try:
            described = self._connection.ask(ask, f"Group '{name}' was asked for", name)
        except GroupMissing:
            return ()
        return tuple(
            MemberDescription(
                member.group_instance_id or member.member_id, member.client_id,
                tuple(sorted(
                    TopicPartition(one.topic, one.partition)
                    for one in member.assignment.topic_partitions
                    if not one.topic.startswith(INTERNAL_PREFIX)
                )),
            )
            for member in described.members
        )

    def delete_group(self, name: str) -> None:
        """See `Log.delete_group`."""
        def ask() -> Any:
            asked: Any = self._connection.admin.delete_consumer_groups(
                [name], request_timeout=self._connection.request_timeout
            )
            return asked[name]

        try:
            self._connection.ask(ask, f"Group '{name}' was to be deleted", name)
        except GroupMissing:
            return
        except GroupNotEmpty as error:
            raise GroupNotEmpty(name, [one.member_id for one in self._members(name)]) from error
