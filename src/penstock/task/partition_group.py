"""A priority queue that breaks ties as `java.util.PriorityQueue` does.

Which of two equal times goes first is visible in results, so the order is reproduced: adding
appends and swaps upwards while the parent is strictly larger; taking puts the last element in the
root's place and swaps it downwards with its smaller child (the left one if equal) while that is
strictly smaller.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """What can be in the queue: the element with the smallest `time` is first."""

    time: int


T = TypeVar("T", bound=Timed)


class PartitionGroup(Generic[T]):
    """Elements by time. An element's time must not change while it is inside."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[T] = []

    def __len__(self) -> int:
        return len(self.items)

    def peek(self) -> T | None:
        """The first element, None if there is none."""
        return self.items[0] if self.items else None

    def add(self, item: T) -> None:
        """Put an element in."""
        items = self.items
        items.append(item)
        here = len(items) - 1
        time = item.time
        while here > 0:
            above = (here - 1) >> 1
            parent = items[above]
            if time >= parent.time:
                break
            items[here] = parent
            here = above
        items[here] = item

    def take(self) -> T:
        """Remove and answer the first element."""
        items = self.items
        first = items[0]
        last = items.pop()
        size = len(items)
        if not size:
            return first
        time = last.time
        here, half = 0, size >> 1
        while here < half:
            below = 2 * here + 1
            child = items[below]
            right = below + 1
            if right < size and child.time > items[right].time:
                below, child = right, items[right]
            if time <= child.time:
                break
            items[here] = child
            here = below
        items[here] = last
        return first
