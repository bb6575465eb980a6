"""Committed offsets, and groups as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupState

from penstock.log.base import Member
from penstock.log.errors import Fenced, GroupNotEmpty
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.errors import UnknownGroup
from penstock.log.kafka.client.pool import ClientPool
from penstock.log.kafka.client.topic_metadata import INTERNAL_PREFIX
from penstock.log.kafka.members import check_member
from penstock.log.kafka.pending import normalize_offsets
from penstock.log.types import CommittedOffset, GroupDescription, MemberDescription, TopicPartition


class KafkaGroupOffsets:
    """Reads and commits offsets. Describes and deletes groups."""

    def __init__(self, connection: Connection, clients: ClientPool) -> None:
        self._connection = connection
        self._clients = clients

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None,
    ) -> None:
        """Commit offsets of a group. Without a member, the group must be empty."""
        wanted = normalize_offsets(offsets)
        if not wanted:
            return
        for where in wanted:
            self._clients.topics.find_partition(*where)
        own = check_member(group, member)
        if own is not None:
            own.commit(wanted)
        else:
            self._commit_without_member(group, wanted)
        self._connection.changed.set()

    def _commit_without_member(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        try:
            self._clients.group_offsets.of(group).commit(offsets)
        except Fenced as error:
            raise GroupNotEmpty(group, [one.member_id for one in self._members(group)]) from error

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of the given partitions, or of all."""
        if partitions is None:
            wanted = self._clients.topics.partitions()
        else:
            wanted = [TopicPartition(*where) for where in partitions]
        if not wanted:
            return {}
        found = self._clients.group_offsets.of(group).committed(wanted)
        return {where: found[where] for where in wanted if where in found}

    def groups(self) -> list[str]:
        """Return the names of groups with members or offsets."""
        def send() -> Any:
            return self._connection.admin.list_consumer_groups(
                request_timeout=self._connection.request_timeout
            )

        listed: Any = self._connection.request(send, "Listing the groups failed")
        return sorted(
            one.group_id for one in listed.valid if one.state != ConsumerGroupState.DEAD
        )

    def describe_group(self, name: str) -> GroupDescription:
        """Describe a group. The generation is always 0: the admin client does not report it."""
        return GroupDescription(name, 0, self._members(name), self.committed(name, None))

    def _members(self, name: str) -> tuple[MemberDescription, ...]:
        def send() -> Any:
            futures: Any = self._connection.admin.describe_consumer_groups(
                [name], request_timeout=self._connection.request_timeout
            )
            return futures[name]

        try:
            described = self._connection.request(send, f"Describing group '{name}' failed", name)
        except UnknownGroup:
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
        """Delete a group without members. An unknown group is ignored."""
        def send() -> Any:
            futures: Any = self._connection.admin.delete_consumer_groups(
                [name], request_timeout=self._connection.request_timeout
            )
            return futures[name]

        try:
            self._connection.request(send, f"Deleting group '{name}' failed", name)
        except UnknownGroup:
            return
        except GroupNotEmpty as error:
            raise GroupNotEmpty(name, [one.member_id for one in self._members(name)]) from error
