"""The embedded log: one SQLite file in WAL mode, shared by all processes of one host.

    scheme.py          the registry entry
    options.py         how a process uses the file
    schema.py          the tables, the format version, creating and checking a file
    upgrade.py         files of older formats
    checksums.py       checksums of data and rows; `Damage`
    totals.py          sums of checksums, which show that a row is missing
    database.py        connections, read and write transactions, error translation
    fork_guard.py      closes all connections while the process forks
    batch_codec.py     encodes and decodes records as Arrow bytes
    partitions.py      the rows of partitions
    batch_rows.py      the rows of batches, and their data
    continuity.py      detects missing batches
    topics.py          topics and partitions
    appends.py         appends, transactions, staged records
    ranges.py          reads, partition offsets, offsets for timestamps
    offset_rows.py     the rows of committed offsets
    offsets.py         committed offsets and groups
    members.py         group members
    assignors.py       strategies that divide partitions among members
    leases.py          leases and their epochs
    cleaner.py         retention, merging of small batches, deletion of unused data
    compaction.py      compaction
    stored_batches.py  rewriting of stored batches
    verifier.py        checks a whole log, gives up what is damaged
    log.py             `EmbeddedLog`, composed of these parts
"""
