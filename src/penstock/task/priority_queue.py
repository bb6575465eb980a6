"""A priority queue that breaks ties like `java.util.PriorityQueue`.

The order of elements with equal times is visible in results. `add` appends the element and swaps
it up while the parent is strictly larger. `take` moves the last element to the root and swaps it
down with its smaller child (the left one if equal) while that child is strictly smaller.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """An element of the queue; the smallest `time` is first."""

    time: int


T = TypeVar("T", bound=Timed)


class JavaPriorityQueue(Generic[T]):
    """Elements ordered by time. The time of an element must not change while it is queued."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[T] = []

    def __len__(self) -> int:
        return len(self.items)

    def peek(self) -> T | None:
        """The first element, or None."""
        return self.items[0] if self.items else None

    def add(self, item: T) -> None:
        """Add an element."""
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
        """Remove and return the first element."""
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
