from __future__ import annotations

from typing import Any

import pytest
from tests.unit.joins.fakes import FakeNode, KeyValues, Sink, Table

from penstock.processors.table_joins import MergedRows, TableJoinMerger, TableTableJoin
from penstock.record import NO_HEADERS, Change


def pair(left: Any, right: Any) -> str:
    return f"{left}/{right}"


def run(kind: str, change: Change, row: Any, **options: Any) -> list[Any]:
    node, out = FakeNode(), Sink()
    rows = {} if row is None else {"k": row}
    join = TableTableJoin(kind, Table({}), Table(rows), pair, **options)  # type: ignore[arg-type]
    join.attach(node, out)("k", change, 10, NO_HEADERS)
    return [(value, ts) for _, value, ts in out]


@pytest.mark.parametrize(
    ("kind", "change", "row", "expected"),
    [
        ("inner", Change("n", "o"), ("r", 20), [(Change("n/r", "o/r"), 20)]),
        ("inner", Change("n", "o"), None, []),
        ("inner", Change(None, None), ("r", 20), [(Change(None, None), 20)]),
        ("left", Change("n", None), None, [(Change("n/None", None), 10)]),
        ("left", Change(None, "o"), None, [(Change(None, "o/None"), 10)]),
        ("left", Change(None, None), None, []),
        ("left", Change(None, None), ("r", 5), [(Change(None, None), 10)]),
        ("outer", Change(None, "o"), ("r", 5), [(Change("None/r", "o/r"), 10)]),
        ("outer", Change(None, "o"), None, [(Change(None, "o/None"), 10)]),
        ("outer", Change(None, None), None, []),
        ("right", Change("n", "o"), None, []),
        ("right", Change(None, "o"), ("r", 5), [(Change("None/r", "o/r"), 10)]),
    ],
)
def test_each_kind_of_node(kind, change, row, expected):
    assert run(kind, change, row, send_old=True) == expected
    plain = [(value._replace(old=None), ts) for value, ts in expected]
    assert run(kind, change, row) == plain


def test_right_side_passes_its_value_as_second_argument():
    assert run("inner", Change("n", None), ("r", 1), reverse=True) == [(Change("r/n", None), 10)]


def test_null_keys_and_out_of_order_versions_are_dropped():
    node, out = FakeNode(), Sink()
    process = TableTableJoin("outer", Table({}), Table({}), pair, versioned=True).attach(node, out)
    process(None, Change("n", None), 1, NO_HEADERS)
    process("k", Change("n", None, False), 1, NO_HEADERS)
    assert out == []
    assert len(node.dropped) == 2
    assert run("outer", Change("n", None, False), None) == [(Change("n/None", None, False), 10)]


@pytest.mark.parametrize(
    ("kind", "this", "other", "expected"),
    [
        ("inner", ("a", 1), ("b", 2), ("a/b", 2)),
        ("inner", ("a", 1), None, None),
        ("left", ("a", 3), None, ("a/None", 3)),
        ("left", None, ("b", 3), None),
        ("outer", None, ("b", 3), ("None/b", 3)),
        ("outer", None, None, None),
        ("right", None, ("b", 3), ("None/b", 3)),
        ("right", ("a", 3), None, None),
    ],
)
def test_result_without_a_store_is_joined_on_read(kind, this, other, expected):
    def table(row: Any, name: str) -> Table:
        return Table({} if row is None else {"k": row}, store_names=(name,))

    join = TableTableJoin(kind, table(this, "A"), table(other, "B"), pair)
    view = join.getter_supplier()
    assert view.store_names == ("A", "B")
    getter = view.attach_getter(FakeNode())
    assert getter.get("k") == expected
    assert not getter.is_versioned
    with pytest.raises(TypeError):
        getter.get_as_of("k", 1)
    merged = MergedRows(view, view)
    assert merged.store_names == ("A", "B")
    assert merged.attach_getter(FakeNode()).get("k") == expected


def test_merger_forwards_stores_and_hides_old_values():
    change = Change("n", "o")
    for send_old, sent in ((True, change), (False, Change("n", None))):
        node, out = FakeNode(S=KeyValues()), Sink()
        TableJoinMerger(None, send_old).attach(node, out)("k", change, 1, NO_HEADERS)
        TableJoinMerger("S", send_old).attach(node, out)("k", change, 1, NO_HEADERS)
        assert out == [("k", sent, 1), ("k", sent, 1)]
        assert node.stores["S"].rows == {"k": ("n", 1)}
