"""Records as Arrow bytes: what goes in comes out, in pieces of bounded size."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import RecordColumns
from penstock.log.embedded import arrow
from penstock.log.types import as_header_pairs, record_size

BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
RECORD = st.tuples(BYTES, BYTES, st.integers(0, 2**62), HEADERS)


@given(st.lists(RECORD, min_size=1, max_size=40))
def test_records_and_their_facts_survive(rows: list[tuple[object, ...]]) -> None:
    columns = RecordColumns(*map(list, zip(*rows, strict=True)))
    (chunk,) = arrow.as_chunks(columns)
    facts = chunk.facts
    stored = arrow.decode(bytes(chunk.data), facts.layout)
    read = arrow.as_read(stored, facts.layout, 100, None)
    assert read.column("offset").to_pylist() == list(range(100, 100 + len(rows)))
    back = zip(
        read.column("key").to_pylist(), read.column("value").to_pylist(),
        read.column("timestamp").to_pylist(),
        map(as_header_pairs, read.column("headers").to_pylist()), strict=True,
    )
    assert list(back) == rows
    sizes = [record_size(key, value, headers) for key, value, _, headers in rows]
    assert facts.largest == max(sizes)
    assert arrow.record_sizes(*read.columns[2:]).to_pylist() == sizes
    assert (facts.min_timestamp, facts.max_timestamp) == (
        min(columns.timestamps or []), max(columns.timestamps or []))
    assert facts.null_keys == (None in columns.keys)
    again = arrow.stored_from(read, with_offsets=True)
    restored = arrow.as_read(
        arrow.decode(bytes(again.data), again.facts.layout), again.facts.layout, 0, None
    )
    assert restored.equals(read)


def test_large_appends_are_cut() -> None:
    count = 100_000
    values = [b"x" * (n % 300) for n in range(count - 2)] + [b"y" * 9_000_000, b"z"]
    chunks = arrow.as_chunks(RecordColumns([b"k"] * count, values, [1] * count))
    batches = [arrow.decode(bytes(chunk.data), chunk.facts.layout) for chunk in chunks]
    assert [v for batch in batches for v in batch.column("value").to_pylist()] == values
    for batch in batches:
        assert batch.num_rows <= arrow.BATCH_RECORDS
        assert batch.num_rows == 1 or batch.nbytes <= arrow.BATCH_BYTES


def test_header_columns_of_other_builders_are_taken() -> None:
    kind = pa.large_list(pa.field("element", pa.struct([
        ("name", pa.large_string()), ("value", pa.large_binary())])))
    headers = pa.array([None, [{"name": "h", "value": b"1"}]], kind)
    batch = pa.record_batch({
        "key": pa.array([b"a", b"b"]), "value": pa.array([b"1", b"2"]), "headers": headers,
    })
    (chunk,) = arrow.as_chunks(batch)
    stored = arrow.decode(bytes(chunk.data), chunk.facts.layout)
    assert stored.column("headers").to_pylist() == [None, [{"name": "h", "value": b"1"}]]
    assert chunk.facts.untimed
