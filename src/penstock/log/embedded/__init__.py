"""The embedded log: one SQLite file in WAL mode, for all processes of one host.

    options.py    how a process uses the file
    schema.py     the tables, the format version, creating and checking a file
    database.py   connections, read and write transactions, errors in words
    gate.py       nobody has the file open while the process forks
    arrow.py      records as Arrow bytes, and back
    writing.py    appends and transactions
    reading.py    ranges, offsets, offsets for times
    topics.py     topics and partitions
    offsets.py    what groups have committed
    members.py    who is in a group; assignors.py divides the partitions
    leases.py     leases and their epochs
    cleaning.py   retention, merging, sweeping
    compaction.py the newest record of each key
    rewriting.py  batches that are read to be stored again
    log.py        all of it as one `Log`
"""
