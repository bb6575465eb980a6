"""The Arrow types of records, wherever they come from."""

from __future__ import annotations

import pyarrow as pa

HEADER_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
TYPES = {
    "timestamp": pa.int64(), "key": pa.binary(), "value": pa.binary(), "headers": HEADER_TYPE,
    "offset": pa.int64(),
}
#: What a reader is given: `penstock.log.types.COLUMNS`.
READ_SCHEMA = pa.schema(
    [(name, TYPES[name]) for name in ("offset", "timestamp", "key", "value", "headers")]
)
