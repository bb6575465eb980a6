"""`Producer`.

    client.py        Producer
    settings.py      its settings and their defaults
    buffer.py        the record buffer and delivery reports
    sender.py        the sender thread
    transactions.py  the states of a transactional producer
    partitioners.py  choice of the partition
"""
