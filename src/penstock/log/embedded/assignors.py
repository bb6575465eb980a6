"""Strategies that divide the partitions of a group among its members. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.log.types import TopicPartition

#: Member -> its topics.
Subscriptions = Mapping[str, frozenset[str]]
#: Topic -> its number of partitions.
PartitionCounts = Mapping[str, int]
#: Member -> its partitions.
Assignments = dict[str, set[TopicPartition]]
#: Takes the previous assignments as the last argument.
Assignor = Callable[
    [Subscriptions, PartitionCounts, Mapping[str, set[TopicPartition]]], Assignments
]


def assign_range(
    subscriptions: Subscriptions, counts: PartitionCounts,
    previous: Mapping[str, set[TopicPartition]],
) -> Assignments:
    """Assign consecutive partitions of each topic; the first members get one more."""
    assigned: Assignments = {member: set() for member in subscriptions}
    for topic in sorted(counts):
        members = [member for member in sorted(subscriptions) if topic in subscriptions[member]]
        if not members:
            continue
        each, more = divmod(counts[topic], len(members))
        begin = 0
        for index, member in enumerate(members):
            end = begin + each + (index < more)
            assigned[member].update(TopicPartition(topic, n) for n in range(begin, end))
            begin = end
    return assigned


def assign_round_robin(
    subscriptions: Subscriptions, counts: PartitionCounts,
    previous: Mapping[str, set[TopicPartition]],
) -> Assignments:
    """Assign all partitions of all topics one by one, to the members in turn."""
    assigned: Assignments = {member: set() for member in subscriptions}
    members = sorted(subscriptions)
    turn = 0
    for partition in _all_partitions(counts):
        for _ in members:
            member = members[turn % len(members)]
            turn += 1
            if partition.topic in subscriptions[member]:
                assigned[member].add(partition)
                break
    return assigned


def assign_sticky(
    subscriptions: Subscriptions, counts: PartitionCounts,
    previous: Mapping[str, set[TopicPartition]],
) -> Assignments:
    """Assign as evenly as possible, and move as few partitions as possible."""
    left = set(_all_partitions(counts))
    assigned: Assignments = {}
    for member in sorted(subscriptions):
        kept = {
            partition for partition in previous.get(member, ())
            if partition in left and partition.topic in subscriptions[member]
        }
        left -= kept
        assigned[member] = kept
    for partition in sorted(left):
        takers = [member for member in assigned if partition.topic in subscriptions[member]]
        if takers:
            least = min(takers, key=lambda member: (len(assigned[member]), member))
            assigned[least].add(partition)
    while _move_one(subscriptions, assigned):
        pass
    return assigned


def _move_one(subscriptions: Subscriptions, assigned: Assignments) -> bool:
    """Move a partition to a member with at least two fewer. Returns False if none can move."""
    by_load = sorted(assigned, key=lambda member: (len(assigned[member]), member))
    for receiver in by_load:
        for giver in reversed(by_load):
            if len(assigned[giver]) - len(assigned[receiver]) < 2:
                break
            for partition in sorted(assigned[giver], reverse=True):
                if partition.topic in subscriptions[receiver]:
                    assigned[giver].remove(partition)
                    assigned[receiver].add(partition)
                    return True
    return False


def _all_partitions(counts: PartitionCounts) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in sorted(counts) for n in range(counts[topic])]


ASSIGNORS: Mapping[str, Assignor] = {
    "sticky": assign_sticky, "range": assign_range, "roundrobin": assign_round_robin,
}
