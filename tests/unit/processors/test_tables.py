from __future__ import annotations

from typing import Any

import pytest
from tests.unit.processors.fakes import (
    FakeNode,
    FakeTimestampedStore,
    FakeVersionedStore,
    Sent,
    new_only,
)

from penstock.errors import InvalidStateStoreException, StreamsException
from penstock.processors.table_source import TableRepartitionMap, TableSource, ToStream
from penstock.processors.table_store import StoreGetter
from penstock.processors.tables import (
    TableFilter,
    TableMapValues,
    TablePassThrough,
    TableTransformValues,
)
from penstock.record import NO_HEADERS, Change, Headers

PARENT = StoreGetter("parent")


def even(key: Any, value: int) -> bool:
    return value % 2 == 0


# source


def test_source_drops_null_keys_and_counts_them() -> None:
    for name in (None, "s"):
        node = FakeNode(s=FakeTimestampedStore())
        assert node.attach(TableSource(name))(None, 1) == []
        assert node.dropped == ["null key"]


def test_source_without_a_store_sends_no_old_values() -> None:
    run = FakeNode().attach(TableSource(None, send_old=True))
    run("k", 1)
    assert run("k", 2, 3) == [Sent("k", Change(2, None), 3)]


def test_source_sends_old_values_only_on_demand() -> None:
    for send_old, old in ((False, None), (True, 1)):
        run = FakeNode(s=FakeTimestampedStore()).attach(TableSource("s", send_old))
        run("k", 1)
        assert run("k", None, 3) == [Sent("k", Change(None, old), 3)]


def test_source_applies_out_of_order_updates() -> None:
    node = FakeNode(s=FakeTimestampedStore())
    run = node.attach(TableSource("s"))
    run("k", 1, 10)
    assert run("k", 2, 5) == [Sent("k", new_only(2), 5)]
    assert node.stores["s"].rows == {"k": (2, 5)}
    assert node.counts["out-of-order"] == 1


def test_cached_source_forwards_on_flush() -> None:
    store = FakeTimestampedStore(caches=True)
    node = FakeNode(s=store)
    run = node.attach(TableSource("s", send_old=True))
    assert run("k", 1, 10) == []
    assert store.send_old_values is True
    headers = Headers([("h", None)])
    store.listener("k", 1, 0, 10, headers)
    assert node.sent == [Sent("k", Change(1, 0), 10, headers)]


def test_versioned_source_marks_latest_updates_and_skips_rejected_ones() -> None:
    node = FakeNode(s=FakeVersionedStore(refuse_before=3))
    run = node.attach(TableSource("s", send_old=True))
    assert run("k", 1, 10) == [Sent("k", Change(1, None, True), 10)]
    assert run("k", 2, 5) == [Sent("k", Change(2, 1, False), 5)]
    assert run("k", 3, 2) == []


def test_getter_of_a_source_reads_its_store() -> None:
    node = FakeNode(s=FakeTimestampedStore())
    node.attach(TableSource("s"))("k", 1, 10)
    supplier = TableSource("s").getter_supplier()
    assert supplier.store_names == ("s",)
    getter = supplier.attach_getter(node)
    assert (getter.get("k"), getter.get("x"), getter.is_versioned) == ((1, 10), None, False)
    with pytest.raises(InvalidStateStoreException, match="has no history"):
        getter.get_as_of("k", 5)
    with pytest.raises(StreamsException, match="without a store"):
        TableSource(None).getter_supplier()


def test_getter_of_a_versioned_table_reads_old_versions() -> None:
    node = FakeNode(s=FakeVersionedStore())
    run = node.attach(TableSource("s"))
    run("k", 1, 10)
    run("k", 2, 20)
    getter = TableSource("s").getter_supplier().attach_getter(node)
    assert getter.is_versioned
    assert (getter.get("k"), getter.get_as_of("k", 15)) == ((2, 20), (1, 10))
    assert getter.get_as_of("k", 5) is None
    assert getter.get("x") is None


# filter


def test_filter_sends_a_tombstone_for_a_row_that_never_passed() -> None:
    run = FakeNode().attach(TableFilter(even, PARENT))
    assert run("k", Change(1, None)) == [Sent("k", Change(None, None), 0)]
    assert run("k", Change(2, 1)) == [Sent("k", Change(2, None), 0)]


def test_filter_with_old_values_forwards_nothing_when_nothing_changes() -> None:
    run = FakeNode().attach(TableFilter(even, PARENT, send_old=True))
    assert run("k", Change(3, 1)) == []
    assert run("k", Change(3, 2)) == [Sent("k", Change(None, 2), 0)]
    assert run("k", Change(None, None)) == []


def test_filter_of_a_versioned_table_forwards_every_update() -> None:
    run = FakeNode().attach(
        TableFilter(even, PARENT, send_old=True, use_versioned_semantics=True)
    )
    assert run("k", Change(3, 1, False)) == [Sent("k", Change(None, None, False), 0)]


def test_filter_not() -> None:
    run = FakeNode().attach(TableFilter(even, PARENT, negate=True))
    assert run("k", Change(1, None)) == [Sent("k", Change(1, None), 0)]


def test_materialized_filter_takes_old_values_from_its_own_store() -> None:
    node = FakeNode(f=FakeTimestampedStore())
    operator = TableFilter(even, PARENT, store_name="f", send_old=True)
    run = node.attach(operator)
    assert run("k", Change(2, 99), 4) == [Sent("k", Change(2, None), 4)]
    assert run("k", Change(3, None), 5) == [Sent("k", Change(None, 2), 5)]
    assert run("k", Change(5, 2), 6) == []
    assert operator.getter_supplier() == StoreGetter("f")


def test_materialized_filter_without_old_values_sends_every_tombstone() -> None:
    run = FakeNode(f=FakeTimestampedStore()).attach(TableFilter(even, PARENT, store_name="f"))
    assert run("k", Change(1, None)) == [Sent("k", Change(None, None), 0)]


def test_filter_view_reads_its_parent() -> None:
    store = FakeTimestampedStore()
    store.rows = {"a": (1, 10), "b": (2, 20)}
    supplier = TableFilter(even, PARENT).getter_supplier()
    getter = supplier.attach_getter(FakeNode(parent=store))
    assert supplier.store_names == ("parent",)
    assert [getter.get(key) for key in "abc"] == [None, (2, 20), None]


# map and transform


def test_map_values_is_not_called_for_null() -> None:
    run = FakeNode().attach(TableMapValues(lambda v: v + 1, PARENT, send_old=True))
    assert run("k", Change(1, None)) == [Sent("k", Change(2, None), 0)]
    assert run("k", Change(None, 1, False)) == [Sent("k", Change(None, 2, False), 0)]


def test_materialized_map_values_keeps_its_result() -> None:
    node = FakeNode(m=FakeTimestampedStore())
    run = node.attach(TableMapValues(lambda k, v: k + v, PARENT, True, "m", send_old=True))
    run("k", Change("a", None), 1)
    assert run("k", Change("b", "x"), 2) == [Sent("k", Change("kb", "ka"), 2)]
    assert node.stores["m"].rows == {"k": ("kb", 2)}


def test_map_values_view_maps_on_read() -> None:
    store = FakeTimestampedStore()
    store.rows = {"a": (1, 10), "b": (0, 20)}
    view = TableMapValues(lambda v: v or None, PARENT).getter_supplier()
    getter = view.attach_getter(FakeNode(parent=store))
    assert [getter.get(key) for key in "abc"] == [(1, 10), None, None]


def test_views_of_a_versioned_table_read_old_versions() -> None:
    store = FakeVersionedStore()
    store.put("k", 1, 10)
    store.put("k", 2, 20)
    view = TableMapValues(lambda v: v * 10, PARENT).getter_supplier()
    getter = view.attach_getter(FakeNode(parent=store))
    assert getter.is_versioned
    assert getter.get_as_of("k", 15) == (10, 10)


def test_transform_values_receives_null() -> None:
    operator = TableTransformValues(lambda node: lambda k, v: f"<{v}>", PARENT, send_old=True)
    run = FakeNode().attach(operator)
    assert run("k", Change(None, 1)) == [Sent("k", Change("<None>", "<1>"), 0)]


def test_transform_values_view_has_no_current_record() -> None:
    node = FakeNode(parent=FakeTimestampedStore())
    node.stores["parent"].rows = {"a": (1, 10)}
    node.current.set_context(node.current.context()._replace(topic="t", offset=3))
    before = node.current.context()
    seen: list[Any] = []

    def factory(node: Any) -> Any:
        def transform(key: Any, value: Any) -> Any:
            seen.append(node.current.context()[:5])
            return key if value is None else value + 1

        return transform

    getter = TableTransformValues(factory, PARENT).getter_supplier().attach_getter(node)
    assert [getter.get(key) for key in "ab"] == [(2, 10), ("b", -1)]
    assert seen == [(None, -1, -1, 10, NO_HEADERS), (None, -1, -1, -1, NO_HEADERS)]
    assert node.current.context() == before


def test_table_pass_through_reads_the_shared_store() -> None:
    node = FakeNode()
    forward = node.forward
    assert TablePassThrough("s").attach(node, forward) is forward
    assert TablePassThrough("s").getter_supplier() == StoreGetter("s")


def test_to_stream_sends_new_values_out_of_order_ones_too() -> None:
    assert FakeNode().attach(ToStream())("k", Change(None, 1, False), 4) == [Sent("k", None, 4)]


# group_by


def by_parity(key: str, value: int) -> tuple[str, int]:
    return ("even" if value % 2 == 0 else "odd"), value


def test_row_that_stays_in_its_group_is_one_change() -> None:
    run = FakeNode().attach(TableRepartitionMap(by_parity))
    assert run("k", Change(3, 1), 5) == [Sent("odd", Change(3, 1), 5)]


def test_moved_row_is_two_changes_old_group_first() -> None:
    run = FakeNode().attach(TableRepartitionMap(by_parity))
    assert run("k", Change(2, 1), 5) == [
        Sent("odd", Change(None, 1), 5), Sent("even", Change(2, None), 5)
    ]


def test_null_rows_groups_and_values_are_left_out() -> None:
    run = FakeNode().attach(TableRepartitionMap(by_parity))
    assert run("k", Change(None, None)) == []
    assert run("k", Change(1, None)) == [Sent("odd", Change(1, None), 0)]
    for pair in (None, (None, 1), ("g", None)):
        run = FakeNode().attach(TableRepartitionMap(lambda k, v, pair=pair: pair))
        assert run("k", Change(1, 2)) == []


def test_group_by_rejects_a_null_key_and_non_pairs() -> None:
    with pytest.raises(StreamsException, match="grouping KTable should not be null"):
        FakeNode().attach(TableRepartitionMap(by_parity))(None, Change(1, None))
    with pytest.raises(TypeError, match="must return a pair"):
        FakeNode().attach(TableRepartitionMap(lambda k, v: 5))("k", Change(1, None))


def test_group_by_of_a_versioned_table_skips_out_of_order_updates() -> None:
    run = FakeNode().attach(TableRepartitionMap(by_parity, use_versioned_semantics=True))
    assert run("k", Change(1, None, False)) == []
    run = FakeNode().attach(TableRepartitionMap(by_parity))
    assert run("k", Change(1, None, False)) == [Sent("odd", Change(1, None, False), 0)]
