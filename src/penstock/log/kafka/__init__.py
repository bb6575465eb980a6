"""The log on Kafka, with confluent-kafka.

    settings.py    the address, the options, and the settings of every client that is made
    connection.py  the clients that a process keeps: admin, readers, producers
    errors.py      Kafka's errors in the contract's words
    core.py        what all parts share
    topic_book.py  what a process knows of topics
    topics.py      creating, changing and deleting topics
    encoding.py    records as rows to produce, and messages as Arrow batches
    blobs.py       records put aside in files of this host
    producers.py   producers that are kept, and what became of what was sent
    prepared.py    what was asked for and not sent yet, and what a topic does not take
    writing.py     appends
    transactions.py  transactions, and their commit
    readers.py     consumers that are kept, one partition each
    ahead.py       one consumer of many partitions, for small ranges
    asking.py      asking brokers for offsets
    reading.py     ranges, offsets, offsets for times
    strangers.py   who asks and commits for a group without being in it
    offsets.py     what groups have committed, and who is in them
    places.py      a place in a group, kept by a thread of its own
    members.py     members of groups
    leases.py      leases: the group coordinator picks the holder
    waiting.py     waiting for something new
    log.py         all of it as one `Log`
"""
