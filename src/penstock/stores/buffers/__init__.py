"""Buffers that hold records back: the stores of `suppress` and of joins with a grace period.

    buffer.py      the base class, and the order in which buffered keys leave
    suppress.py    the buffer of `suppress`
    join_grace.py  the buffer of a stream-table join with a grace period
    codec.py       buffered records as bytes, in Kafka Streams' changelog format
"""
