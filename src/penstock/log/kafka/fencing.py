"""Fences writers by their transactional ids.

The broker initializes a producer only after the last transaction of its id is over and its markers
are written. It aborts an open one. Older producers of the id are fenced from then on.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.producers import TransactionalProducer
from penstock.log.types import WriterGrant

#: Each waits for the broker most of the time.
_MOST_AT_ONCE = 8


def transactional_id(grant: WriterGrant) -> str:
    """Return the transactional id of a writer."""
    return f"{grant.lease}-{grant.epoch}-{grant.serial}"


def fence_writers(connection: Connection, grants: Collection[WriterGrant]) -> None:
    """Fence writers. Returns when their transactions are decided and readable."""
    if not grants:
        return
    with ThreadPoolExecutor(min(len(grants), _MOST_AT_ONCE), "penstock-kafka-fence") as threads:
        for _ in threads.map(lambda grant: _fence(connection, grant), grants):
            pass


def _fence(connection: Connection, grant: WriterGrant) -> None:
    producer = TransactionalProducer(connection, transactional_id(grant))
    try:
        producer.producer()
    finally:
        producer.close()
