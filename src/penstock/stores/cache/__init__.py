"""The record cache: writes wait here until a commit, within one byte budget per task.

    cache_layer.py   the cache layer of a store
    record_cache.py  the budget of a task and the entries of one store
    entries.py       cache entries in Python; `native/cache.c` is their native twin
"""
