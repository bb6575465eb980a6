"""Replicas: the rows of stores on this host, at known changelog positions.

    protocol.py          the data that callers and replicas exchange
    task_replica.py      the replica of one task
    global_replica.py    the replica of the global tables
    snapshot.py          a replica at one moment, as a batch reads it
    changelog_reader.py  reads changelogs in chunks and detects removed records
    store_reader.py      reads one store for queries, beside the writers
    layouts.py           how rows are stored, so that they can be read without a topology
    state.py             the positions of a replica, stored with its rows
    databases.py         the LMDB databases of a replica
    staged.py            writes to unlogged stores, staged until the batch is committed
    environment.py       the LMDB environment of a replica: open, verify, rebuild
    generations.py       the generations of files in the directory of a replica
    files.py             files that other processes may delete at any time
"""
