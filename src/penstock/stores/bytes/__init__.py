"""The row layers over bytes, and the bytes stores that hold committed rows.

    store.py              `BytesStore`, the interface of committed rows, and its in-memory version
    lmdb/                 bytes stores on disk
    overlay.py            uncommitted writes over a bytes store
    rows.py               `RowLayer`, the interface of all layers; the rows of key-value stores
    windowed_rows.py      the rows of window and session stores
    versioned_rows.py     the rows of versioned stores
    versioned_segment.py  older versions of a key as bytes
    changelog_layer.py    writes to the rows and logs every write
    key_schema.py         row keys of window and session stores
    value_formats.py      stored values: plain, with timestamps, with headers
"""
