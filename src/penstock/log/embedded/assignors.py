"""How the partitions of a group are divided among its members: members in, shares out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.log.types import TopicPartition

#: Member -> its topics; topic -> number of partitions; member -> what it had.
Subscriptions = Mapping[str, frozenset[str]]
Counts = Mapping[str, int]
Shares = dict[str, set[TopicPartition]]
Assignor = Callable[[Subscriptions, Counts, Mapping[str, set[TopicPartition]]], Shares]


def by_range(
    subscriptions: Subscriptions, counts: Counts, had: Mapping[str, set[TopicPartition]]
) -> Shares:
    """Topic by topic, consecutive partitions to each member; the first get one more."""
    shares: Shares = {member: set() for member in subscriptions}
    for topic in sorted(counts):
        members = [member for member in sorted(subscriptions) if topic in subscriptions[member]]
        if not members:
            continue
        each, more = divmod(counts[topic], len(members))
        begin = 0
        for index, member in enumerate(members):
            end = begin + each + (index < more)
            shares[member].update(TopicPartition(topic, n) for n in range(begin, end))
            begin = end
    return shares


def in_turn(
    subscriptions: Subscriptions, counts: Counts, had: Mapping[str, set[TopicPartition]]
) -> Shares:
    """All partitions of all topics, one by one, to the members in turn."""
    shares: Shares = {member: set() for member in subscriptions}
    members = sorted(subscriptions)
    turn = 0
    for partition in _all_partitions(counts):
        for _ in members:
            member = members[turn % len(members)]
            turn += 1
            if partition.topic in subscriptions[member]:
                shares[member].add(partition)
                break
    return shares


def sticky(
    subscriptions: Subscriptions, counts: Counts, had: Mapping[str, set[TopicPartition]]
) -> Shares:
    """As even as it can be, and nothing moves that need not."""
    left = set(_all_partitions(counts))
    shares: Shares = {}
    for member in sorted(subscriptions):
        kept = {
            partition for partition in had.get(member, ())
            if partition in left and partition.topic in subscriptions[member]
        }
        left -= kept
        shares[member] = kept
    for partition in sorted(left):
        takers = [member for member in shares if partition.topic in subscriptions[member]]
        if takers:
            shares[min(takers, key=lambda member: (len(shares[member]), member))].add(partition)
    while _even_out(subscriptions, shares):
        pass
    return shares


def _even_out(subscriptions: Subscriptions, shares: Shares) -> bool:
    """Move one partition from a member to one that has at least two fewer; False if none can."""
    by_load = sorted(shares, key=lambda member: (len(shares[member]), member))
    for poor in by_load:
        for rich in reversed(by_load):
            if len(shares[rich]) - len(shares[poor]) < 2:
                break
            for partition in sorted(shares[rich], reverse=True):
                if partition.topic in subscriptions[poor]:
                    shares[rich].remove(partition)
                    shares[poor].add(partition)
                    return True
    return False


def _all_partitions(counts: Counts) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in sorted(counts) for n in range(counts[topic])]


ASSIGNORS: Mapping[str, Assignor] = {"sticky": sticky, "range": by_range, "roundrobin": in_turn}
