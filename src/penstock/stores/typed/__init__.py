"""Typed stores: what processors and operators use.

    store.py         the base classes: serdes, layers, restore, closing
    key_value.py     key-value stores
    window.py        window stores
    session.py       session stores
    versioned.py     the versioned key-value store
    value_codecs.py  values with timestamps and headers, for key-value and window stores
    row_access.py    fast reads and writes of rows, for operators
"""
