"""The Kafka clients of a process, and how requests are made, retried and translated.

    settings.py        options of a Kafka log, and the settings of each kind of client
    errors.py          translates Kafka's errors into those of the contract
    retry.py           deadlines and pauses of retried requests
    connection.py      the admin client, requests, and the clients to close; survives a fork
    pool.py            the shared clients, created on first use
    topic_metadata.py  a cache of topic metadata
    list_offsets.py    asks brokers for the offsets of partitions
    group_offsets.py   reads and commits offsets of a group without joining it
    readers.py         pooled consumers, one partition each
    prefetch.py        one consumer of many partitions, for small ranges
    consumers.py       consumers that read partitions as columns
    column_buffer.py   fetched records that were not returned yet
    native_io.py       consumers and producers that read and write columns in C
    producers.py       pooled producers, and delivery reports
    change_poller.py   waits for new records
"""
