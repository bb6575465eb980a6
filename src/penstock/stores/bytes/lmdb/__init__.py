"""Bytes stores on disk: LMDB, where many processes read while one writes.

    environment.py  opens LMDB files and runs transactions
    rows.py         a `BytesStore` over one database in a transaction
    reader.py       repeated short reads, for queries
    long_keys.py    encodes keys that are longer than LMDB allows
"""
