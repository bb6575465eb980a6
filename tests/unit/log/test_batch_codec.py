"""Encoding of records as Arrow bytes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import RecordColumns
from penstock.log.embedded import batch_codec
from penstock.log.types import as_header_pairs, record_size

BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
RECORD = st.tuples(BYTES, BYTES, st.integers(0, 2**62), HEADERS)


@given(st.lists(RECORD, min_size=1, max_size=40))
def test_records_survive_encoding_with_correct_info(rows: list[tuple[object, ...]]) -> None:
    columns = RecordColumns(*map(list, zip(*rows, strict=True)))
    (encoded,) = batch_codec.encode_records(columns)
    info = encoded.info
    stored = batch_codec.decode(bytes(encoded.data), info.layout)
    read = batch_codec.add_read_columns(stored, info.layout, 100, None)
    assert read.column("offset").to_pylist() == list(range(100, 100 + len(rows)))
    decoded = zip(
        read.column("key").to_pylist(), read.column("value").to_pylist(),
        read.column("timestamp").to_pylist(),
        map(as_header_pairs, read.column("headers").to_pylist()), strict=True,
    )
    assert list(decoded) == rows
    sizes = [record_size(key, value, headers) for key, value, _, headers in rows]
    assert info.largest == max(sizes)
    assert batch_codec.record_sizes(*read.columns[2:]).to_pylist() == sizes
    assert (info.min_timestamp, info.max_timestamp) == (
        min(columns.timestamps or []), max(columns.timestamps or []))
    assert info.null_keys == (None in columns.keys)
    again = batch_codec.encode_read_batch(read, with_offsets=True)
    restored = batch_codec.add_read_columns(
        batch_codec.decode(bytes(again.data), again.info.layout), again.info.layout, 0, None
    )
    assert restored.equals(read)


def test_large_appends_are_split() -> None:
    count = 100_000
    values = [b"x" * (n % 300) for n in range(count - 2)] + [b"y" * 9_000_000, b"z"]
    encoded = batch_codec.encode_records(RecordColumns([b"k"] * count, values, [1] * count))
    batches = [batch_codec.decode(bytes(each.data), each.info.layout) for each in encoded]
    assert [v for batch in batches for v in batch.column("value").to_pylist()] == values
    for batch in batches:
        assert batch.num_rows <= batch_codec.BATCH_RECORDS
        assert batch.num_rows == 1 or batch.nbytes <= batch_codec.BATCH_BYTES


def test_other_arrow_types_of_headers_are_converted() -> None:
    kind = pa.large_list(pa.field("element", pa.struct([
        ("name", pa.large_string()), ("value", pa.large_binary())])))
    headers = pa.array([None, [{"name": "h", "value": b"1"}]], kind)
    batch = pa.record_batch({
        "key": pa.array([b"a", b"b"]), "value": pa.array([b"1", b"2"]), "headers": headers,
    })
    (encoded,) = batch_codec.encode_records(batch)
    stored = batch_codec.decode(bytes(encoded.data), encoded.info.layout)
    assert stored.column("headers").to_pylist() == [None, [{"name": "h", "value": b"1"}]]
    assert encoded.info.untimed
