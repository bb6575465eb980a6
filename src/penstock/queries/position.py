"""`Position`: how far a store has processed its input, and `PositionBound`: how far it must be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


class Position:
    """The last processed record of each input partition: topic -> partition -> offset.

    A position is a lower bound: the store contains the effect of all records up to these offsets.
    The offset in the changelog of the store is exact: it identifies the rows.

    Example:
        >>> position = Position.empty_position().with_component("orders", 0, 41)
        >>> position.merge(Position.from_map({"orders": {0: 7, 1: 3}}))
        Position({'orders': {0: 41, 1: 3}})

    Kafka: Position
    """

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[str, Mapping[int, int]] | None = None) -> None:
        if not (offsets is None or _are_offsets(offsets)):
            raise TypeError(
                "A position has topic -> partition -> offset with whole numbers, such as "
                f"{{'orders': {{0: 41}}}}, not {offsets!r}. The keys of JSON objects are text: "
                "convert them with int()."
            )
        self._offsets = _copy_of(offsets or {})

    @staticmethod
    def empty_position() -> Position:
        """Return a position without offsets.

        Kafka: Position#emptyPosition
        """
        return Position()

    @staticmethod
    def from_map(offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """Return the position with these offsets.

        Args:
            offsets: Topic -> partition -> offset.

        Kafka: Position#fromMap
        """
        return Position(offsets)

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Add an offset to this position. A smaller offset of the same partition is replaced.

        Args:
            topic: The topic.
            partition: The partition.
            offset: The offset of the last processed record.

        Returns:
            This position.

        Kafka: Position#withComponent
        """
        if not (isinstance(partition, int) and isinstance(offset, int)):
            raise TypeError(
                "with_component() takes a topic, the number of a partition and an offset, not "
                f"{topic!r}, {partition!r}, {offset!r}."
            )
        partitions = self._offsets.setdefault(topic, {})
        partitions[partition] = max(offset, partitions.get(partition, offset))
        return self

    def merge(self, other: Position | None) -> Position:
        """Add all offsets of another position to this one. The larger offset wins.

        Args:
            other: The other position; None changes nothing.

        Returns:
            This position.

        Kafka: Position#merge
        """
        if not (other is None or isinstance(other, Position)):
            raise TypeError(f"merge() takes a Position, not {other!r}. Use Position.from_map().")
        for topic, partitions in () if other is None else other._offsets.items():
            for partition, offset in partitions.items():
                self.with_component(topic, partition, offset)
        return self

    def copy(self) -> Position:
        """Return an equal position that changes independently.

        Kafka: Position#copy
        """
        copy = Position()
        copy._offsets = _copy_of(self._offsets)
        return copy

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the position."""
        return frozenset(self._offsets)

    def partition_positions(self, topic: str) -> dict[int, int]:
        """Return partition -> offset of a topic; empty for an unknown topic.

        Args:
            topic: The topic.

        Kafka: Position#getPartitionPositions
        """
        return dict(self._offsets.get(topic, {}))

    @property
    def is_empty(self) -> bool:
        """Whether the position has no offsets."""
        return not self._offsets

    def to_map(self) -> dict[str, dict[int, int]]:
        """Return topic -> partition -> offset; the argument of `from_map`."""
        return _copy_of(self._offsets)

    def reaches(
        self, bound: Position, partition: int, shuffled: Collection[str] = frozenset(),
        ignored: Collection[str] = frozenset(),
    ) -> bool:
        """Return whether this position is at or after the offsets of a bound.

        Args:
            bound: The position to reach.
            partition: Only its offsets are compared: a store partition reads no others.
            shuffled: The topics of which a store partition reads records of all partitions.
            ignored: The topics that do not matter to the store: changelogs of other stores.
        """
        for topic, partitions in bound._offsets.items():
            if topic in ignored:
                continue
            reached = self._offsets.get(topic, {})
            for number in partitions if topic in shuffled else partitions.keys() & {partition}:
                if reached.get(number, -1) < partitions[number]:
                    return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self._offsets == other._offsets

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Position({self._offsets!r})"


def _copy_of(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    return {topic: dict(partitions) for topic, partitions in offsets.items()}


def _are_offsets(offsets: object) -> bool:
    return isinstance(offsets, Mapping) and all(
        isinstance(partitions, Mapping) and all(
            isinstance(number, int) for pair in partitions.items() for number in pair
        ) for partitions in offsets.values()
    )


@dataclass(frozen=True, slots=True)
class PositionBound:
    """The position that a store must have reached to run a query.

    Example:
        >>> PositionBound.at(Position.from_map({"orders": {0: 41}})).is_unbounded
        False

    Kafka: PositionBound
    """

    position: Position = field(default_factory=Position)

    @staticmethod
    def unbounded() -> PositionBound:
        """Return a bound that every store meets.

        Kafka: PositionBound#unbounded
        """
        return PositionBound()

    @staticmethod
    def at(position: Position) -> PositionBound:
        """Return a bound at a position.

        Args:
            position: The position to reach.

        Kafka: PositionBound#at
        """
        if not isinstance(position, Position):
            raise TypeError(
                f"PositionBound.at() takes a Position, not {position!r}. Use Position.from_map()."
            )
        return PositionBound(position.copy())

    @property
    def is_unbounded(self) -> bool:
        """Whether every store meets the bound."""
        return self.position.is_empty
