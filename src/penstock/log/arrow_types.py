"""The Arrow types of the columns of records."""

from __future__ import annotations

import pyarrow as pa

from penstock.log.types import COLUMNS

HEADER_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
TYPES = {
    "timestamp": pa.int64(), "key": pa.binary(), "value": pa.binary(), "headers": HEADER_TYPE,
    "offset": pa.int64(),
}
#: The schema of a batch that was read.
READ_SCHEMA = pa.schema([(name, TYPES[name]) for name in COLUMNS])
