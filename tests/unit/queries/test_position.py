"""`Position` and `PositionBound`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.queries import Position, PositionBound


def test_components_keep_the_largest_offset() -> None:
    position = Position.empty_position().with_component("t", 0, 5).with_component("t", 0, 3)
    assert position.to_map() == {"t": {0: 5}}
    assert position.topics == {"t"}
    assert position.partition_positions("t") == {0: 5}
    assert position.partition_positions("other") == {}


def test_merge_takes_the_larger_offsets_and_a_copy_is_independent() -> None:
    position = Position.from_map({"t": {0: 5, 1: 1}})
    copy = position.copy().merge(Position.from_map({"t": {1: 2}, "u": {0: 0}})).merge(None)
    assert copy == Position.from_map({"t": {0: 5, 1: 2}, "u": {0: 0}})
    assert position == Position.from_map({"t": {0: 5, 1: 1}})
    assert not position.is_empty
    assert Position().is_empty
    with pytest.raises(TypeError, match="unhashable"):
        hash(position)


def test_position_reaches_a_bound_in_the_partition_of_the_store_only() -> None:
    position = Position.from_map({"t": {0: 5}})
    assert position.reaches(Position(), 0)
    assert position.reaches(Position.from_map({"t": {0: 5, 1: 9}}), 0)
    assert not position.reaches(Position.from_map({"t": {0: 6}}), 0)
    assert not position.reaches(Position.from_map({"u": {0: 0}}), 0)
    assert not Position().reaches(Position.from_map({"t": {0: 0}}), 0)


def test_bound_does_not_change_with_the_position_it_was_made_of() -> None:
    position = Position.from_map({"t": {0: 5}})
    bound = PositionBound.at(position)
    position.with_component("t", 0, 9)
    assert bound.position == Position.from_map({"t": {0: 5}})
    assert PositionBound.unbounded().is_unbounded


@pytest.mark.parametrize(
    "offsets", [{"orders": {"0": 41}}, {"orders": {0: "41"}}, {"orders": [41]}, [1]]
)
def test_offsets_of_json_are_refused(offsets: Any) -> None:
    with pytest.raises(TypeError, match=r"such as \{'orders': \{0: 41\}\}, not .* int\(\)"):
        Position.from_map(offsets)


def test_other_types_than_positions_are_refused() -> None:
    offsets: Any = {"orders": {0: 41}}
    with pytest.raises(TypeError, match=r"takes a Position, not .* Use Position.from_map\(\)"):
        PositionBound.at(offsets)
    with pytest.raises(TypeError, match=r"takes a Position, not .* Use Position.from_map\(\)"):
        Position().merge(offsets)
    with pytest.raises(TypeError, match="partition and an offset, not 'orders', '0', 1"):
        Position().with_component("orders", cast("int", "0"), 1)
    assert Position.from_map(cast("dict[str, dict[int, int]]", None)).is_empty
