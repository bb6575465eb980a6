from __future__ import annotations

from typing import Any

import pytest
from tests.unit.joins.fakes import FakeNode, FakeStoreContext, Sink, Table

from penstock.errors import ConfigException, ProcessorStateException, StreamsException
from penstock.processors.suppress import NO_LIMIT, Suppress, SuppressedRows
from penstock.record import NO_HEADERS, Change, Headers, RecordContext
from penstock.serdes.builtin import Serdes, WindowedSerdes
from penstock.stores.buffers.codec import (
    BufferValue,
    context_size,
    decode_buffer_value,
    encode_buffer_value,
)
from penstock.stores.buffers.suppress import SuppressBuffer, SuppressBufferBuilder
from penstock.windows import Window, Windowed

STRING = Serdes.string()


class Suppressing:
    """A suppress node with its buffer; keeps the current value of each key, like a table."""

    def __init__(self, key_serde: Any = STRING, **options: Any) -> None:
        self.buffer = SuppressBufferBuilder("B", key_serde, STRING).build()
        self.context = FakeStoreContext()
        self.buffer.init(self.context)
        self.node, self.out = FakeNode("SUPPRESS", B=self.buffer), Sink()
        self.process = Suppress("B", **options).attach(self.node, self.out)
        self.rows: dict[Any, Any] = {}

    def put(self, key: Any, value: Any, ts: int, headers: Headers = NO_HEADERS) -> list[Any]:
        self.node.at(ts, headers=headers)
        self.context.current.timestamp = ts
        self.process(key, Change(value, self.rows.get(key)), ts, headers)
        self.rows[key] = value
        return self.out.take()


def test_update_waits_and_is_replaced_by_later_ones():
    table = Suppressing(wait_ms=10)
    assert table.put("a", "1", 100) == []
    assert table.put("a", "2", 109) == []
    assert table.put("b", "x", 110) == [("a", Change("2", "1"), 109)]
    assert table.put("b", None, 111) == []
    assert table.put("c", "y", 120) == [("b", Change(None, "x"), 111)]


def test_rows_with_equal_times_are_emitted_by_key():
    table = Suppressing(wait_ms=10)
    for key in "bca":
        table.put(key, key, 1)
    assert [key for key, _, _ in table.put("z", "z", 11)] == ["a", "b", "c"]


def test_zero_wait_emits_late_records_at_once():
    table = Suppressing(wait_ms=0)
    assert table.put("a", "1", 100) == [("a", Change("1", None), 100)]
    assert table.put("a", "2", 50) == [("a", Change("2", "1"), 50)]


def test_until_window_closes_uses_the_window_end_and_drops_tombstones():
    table = Suppressing(
        WindowedSerdes.time_windowed(STRING, 10), wait_ms=5, until_window_closes=True
    )
    first, second = Windowed("k", Window(0, 10)), Windowed("k", Window(10, 20))
    assert table.put(first, "1", 3) == []
    assert table.put(second, "2", 14) == []
    assert table.put(second, "3", 15) == [(first, Change("1", None), 3)]
    assert table.put(second, None, 16) == []
    assert table.put(Windowed("k", Window(30, 40)), "4", 30) == []
    assert table.buffer.num_records == 1


def test_emitted_update_has_the_context_of_its_record():
    table = Suppressing(wait_ms=10)
    headers = Headers((("n", b"v"),))
    seen: list[Any] = []
    process = Suppress("B", wait_ms=10).attach(
        table.node, lambda *record: seen.append((record, table.node.current.context()))
    )
    table.node.at(1, offset=7, headers=headers)
    process("a", Change("1", None), 1, headers)
    table.node.at(11, offset=8)
    process("b", Change("2", None), 11, NO_HEADERS)
    assert seen == [
        (("a", Change("1", None), 1, headers), RecordContext("topic", 0, 7, 1, headers))
    ]
    assert table.node.current.offset == 8


def test_full_buffer_emits_its_oldest_update_early():
    table = Suppressing(wait_ms=1000, max_records=2, emit_early=True)
    table.put("b", "1", 5)
    table.put("a", "1", 5)
    assert table.put("c", "1", 1) == [("c", Change("1", None), 1)]
    assert table.put("d", "1", 9) == [("a", Change("1", None), 5)]


def test_full_buffer_fails_with_kafkas_message():
    table = Suppressing(wait_ms=1000, max_bytes=69)
    table.put("a", "1", 5)
    with pytest.raises(StreamsException) as raised:
        table.put("b", "1", 5)
    assert str(raised.value) == (
        "SUPPRESS buffer exceeded its max capacity. "
        f"Currently [2/{NO_LIMIT}] records and [70/69] bytes."
    )


def test_buffer_size_is_counted_as_in_kafka():
    table = Suppressing(wait_ms=1000)
    fixed = 8 + 20 + len("topic")
    table.put("key", "one", 1)
    assert table.buffer.size_bytes == fixed + 3 + 3
    table.put("key", "four", 2)  # prior is none, old "one", new "four"
    assert table.buffer.size_bytes == fixed + 3 + 3 + 4
    table.rows["other"] = "old"
    table.put("other", "new", 2, Headers((("h\u00e9", b"12"), ("n", None))))
    assert table.buffer.size_bytes == fixed + 10 + fixed + 5 + 3 + 3 + 2 + 2 + 1
    table.put("end", "", 5000)
    assert table.buffer.size_bytes == fixed + 3


def test_readers_see_the_previous_value_while_a_row_is_buffered():
    table = Suppressing(wait_ms=10)
    view = SuppressedRows("B", Table({"a": ("2", 2), "b": ("x", 1)}))
    assert view.store_names == ("B", "table")
    getter = view.attach_getter(table.node)
    table.rows["a"] = "0"
    table.put("a", "1", 1)
    table.put("a", "2", 2)
    assert getter.get("a") == ("0", -1)
    assert getter.get("b") == ("x", 1)
    table.put("b", "x", 1)
    assert getter.get("b") is None
    seen: list[Any] = []
    table.buffer.evict_until(5, lambda key, *_: seen.append((key, getter.get(key))))
    assert seen == [("a", ("0", -1)), ("b", None)]
    assert getter.get("a") == ("2", 2)
    with pytest.raises(TypeError):
        getter.get_as_of("a", 1)


def test_changelog_has_each_key_once_per_commit_and_restores_the_buffer():
    table = Suppressing(wait_ms=10)
    for key, value, ts in (("a", "1", 1), ("b", "x", 2), ("b", "y", 3), ("c", "z", 11)):
        table.put(key, value, ts)
    table.buffer.commit()
    table.buffer.commit()
    assert [(key, value is None) for key, value, _, _ in table.context.log] == [
        (b"a", True), (b"b", False), (b"c", False),
    ]
    again = SuppressBufferBuilder("B", STRING, STRING).build()
    again.init(FakeStoreContext())
    value = BufferValue(None, None, b"1", _context())
    again.restore(b"a", encode_buffer_value(value, 1), 0, _v(b"\x03"))
    for record in table.context.log:
        again.restore(*record)
    assert (again.num_records, again.size_bytes) == (2, table.buffer.size_bytes)
    assert again.min_timestamp == table.buffer.min_timestamp == 2
    assert _drain(again) == _drain(table.buffer) == [
        ("b", Change("y", "x"), 3), ("c", Change("z", None), 11),
    ]


def test_without_logging_nothing_is_logged():
    buffer = SuppressBufferBuilder("B", STRING, STRING, logging_enabled=False).build()
    context = FakeStoreContext()
    buffer.init(context)
    buffer.put(1, "a", Change("1", None), _context())
    buffer.commit()
    assert context.log == []


def test_unknown_format_cannot_be_restored():
    buffer = SuppressBufferBuilder("B", STRING, STRING).build()
    buffer.init(FakeStoreContext())
    with pytest.raises(ProcessorStateException, match="Cannot restore"):
        buffer.restore(b"a", b"", 0, _v(b"\x01"))


def test_buffer_without_serdes_reports_how_to_fix_it():
    with pytest.raises(ConfigException, match="default_value_serde"):
        SuppressBufferBuilder("B", STRING).build().init(FakeStoreContext())


# Written by Kafka Streams 4.3.0 itself.
@pytest.mark.parametrize(
    ("buffered", "size", "expected"),
    [
        (
            BufferValue(
                b"p", b"p", b"new",
                RecordContext("topic", 7, 6, 5, Headers((("h\u00e9", b"\x09"), ("n", None)))),
            ),
            33 - 4,
            "0000000000000005000000000000000600000005746f70696300000007000000020000000368c3a9000000"
            "0109000000016effffffff0000000170fffffffe000000036e6577000000000000002a",
        ),
        (
            BufferValue(None, b"old", None, RecordContext("topic", 7, 6, 5, NO_HEADERS)),
            28 - 3,
            "0000000000000005000000000000000600000005746f7069630000000700000000ffffffff000000036f6c"
            "64ffffffff000000000000002a",
        ),
    ],
)
def test_buffered_records_on_the_wire(buffered, size, expected):
    assert encode_buffer_value(buffered, 42).hex() == expected
    assert decode_buffer_value(bytes.fromhex(expected)) == (buffered, 42)
    assert context_size(buffered.context) == size


def _context() -> RecordContext:
    return RecordContext("topic", 0, 0, 1, NO_HEADERS)


def _v(version: bytes) -> Headers:
    return Headers((("v", version),))


def _drain(buffer: SuppressBuffer) -> list[Any]:
    seen: list[Any] = []
    buffer.evict_until(
        10**6, lambda key, change, context: seen.append((key, change, context.timestamp))
    )
    return seen
