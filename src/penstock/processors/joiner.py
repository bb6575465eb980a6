"""Adapts the user's joiner to one signature, for both sides of a join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: joiner(key, left, right), or joiner(left, right) when the operator says `with_key=False`.
Joiner = Callable[..., Any]

#: (key, value of the node's own side, value of the other side) -> result
Combine = Callable[[Any, Any, Any], Any]


def orient_joiner(joiner: Joiner, *, with_key: bool, reverse: bool = False) -> Combine:
    """The joiner with the signature that the node of one side calls.

    Set `reverse` for the right side, whose own value is the joiner's second argument.
    """
    if with_key:
        if reverse:
            return lambda key, mine, other: joiner(key, other, mine)
        return joiner
    if reverse:
        return lambda key, mine, other: joiner(other, mine)
    return lambda key, mine, other: joiner(mine, other)
