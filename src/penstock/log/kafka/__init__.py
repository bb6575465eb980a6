"""The log on a Kafka cluster, with confluent-kafka.

    scheme.py          the registry entry
    client/            the Kafka clients of a process
    encoding.py        converts records to produce, and consumed messages
    staging.py         staged records, in files of this host
    pending.py         records and offsets before they are sent, and their checks
    ranges.py          reads, partition offsets, offsets for timestamps
    topics.py          creating, changing and deleting topics
    append_context.py  shared by appends and transactions: checks and results
    appends.py         appends without a transaction
    collected.py       the records and offsets of a transaction before its commit
    send_offsets.py    sends offsets as part of a transaction
    transactions.py    transactions and their commit
    offsets.py         committed offsets and groups
    membership.py      the membership of a consumer in a group, kept by a thread
    members.py         group members
    lease_records.py   the topic in which holders of leases are recorded
    leases.py          leases: the group coordinator chooses the holder
    fencing.py         fences writers by their transactional ids
    writers.py         transactions of one process on behalf of the holder of a lease
    tail.py            follows partitions
    log.py             `KafkaLog`, composed of these parts
"""
