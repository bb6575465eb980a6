"""Reproduces the iteration order of Java's `HashSet` and `TreeSet`.

Kafka's description of a topology lists stores, topics and neighbours in that order, and tools
compare the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """Return Java's `String.hashCode` as an unsigned 32-bit number."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & _MASK
    return value


def hash_order(names: Iterable[str]) -> list[str]:
    """Return the names in the iteration order of a `HashSet`.

    The table starts with 16 buckets and doubles when it is three quarters full. A bucket keeps the
    order of insertion, also when growth splits it.
    """
    return _bucket_order(names, string_hash)


def hash_order_of_partitions(
    partitions: Iterable[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Return (topic, number) pairs in the iteration order of a `HashSet` of `TopicPartition`."""
    return _bucket_order(
        partitions, lambda each: (31 * (31 + each[1]) + string_hash(each[0])) & _MASK
    )


def partition_order(partitions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return source partitions in Kafka's processing order."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return [(topic, n) for topic in hash_order(by_topic) for n in sorted(by_topic[topic])]


def _bucket_order(items: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    distinct = list(dict.fromkeys(items))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2

    def bucket(item: T) -> int:
        value = hash_of(item)
        return (value ^ (value >> 16)) & (buckets - 1)

    return sorted(distinct, key=bucket)


class _TreeNode:
    __slots__ = ("item", "left", "parent", "red", "right")

    def __init__(self, item: Any, parent: _TreeNode | None) -> None:
        self.item = item
        self.parent = parent
        self.left: _TreeNode | None = None
        self.right: _TreeNode | None = None
        self.red = True


def tree_walk(root: _TreeNode | None) -> Iterator[Any]:
    """Iterate over the elements of a tree in order."""
    if root is not None:
        yield from tree_walk(root.left)
        yield root.item
        yield from tree_walk(root.right)


def tree_insert(
    root: _TreeNode | None, item: Any, compare: Callable[[Any, Any], int]
) -> _TreeNode:
    """Add an element to a `TreeSet` (a red-black tree) and return the root.

    The shape of the tree matters: Kafka changes the sizes that elements are compared by after it
    has added them.
    """
    if root is None:
        node = _TreeNode(item, None)
        node.red = False
        return node
    parent = root
    while True:
        order = compare(item, parent.item)
        if order == 0:
            return root
        child = parent.left if order < 0 else parent.right
        if child is None:
            break
        parent = child
    node = _TreeNode(item, parent)
    if order < 0:
        parent.left = node
    else:
        parent.right = node
    return _rebalance(root, node)


def _rebalance(root: _TreeNode, node: _TreeNode) -> _TreeNode:
    while node.parent is not None and node.parent.red and node.parent.parent is not None:
        parent, grand = node.parent, node.parent.parent
        on_left = parent is grand.left
        uncle = grand.right if on_left else grand.left
        if uncle is not None and uncle.red:
            parent.red = uncle.red = False
            grand.red = True
            node = grand
            continue
        if node is (parent.right if on_left else parent.left):
            root = _rotate(root, parent, left=on_left)
            node, parent = parent, node
        parent.red = False
        grand.red = True
        root = _rotate(root, grand, left=not on_left)
    root.red = False
    return root


def _rotate(root: _TreeNode, pivot: _TreeNode, *, left: bool) -> _TreeNode:
    riser = pivot.right if left else pivot.left
    assert riser is not None
    inner = riser.left if left else riser.right
    if left:
        pivot.right, riser.left = inner, pivot
    else:
        pivot.left, riser.right = inner, pivot
    if inner is not None:
        inner.parent = pivot
    riser.parent = pivot.parent
    if pivot.parent is None:
        root = riser
    elif pivot.parent.left is pivot:
        pivot.parent.left = riser
    else:
        pivot.parent.right = riser
    pivot.parent = riser
    return root
