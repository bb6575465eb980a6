"""Change events of customers, as Debezium writes them, become a table.

    customer-changes ── map_values (after) ── table ── customers
       (envelopes)                                     (rows; null deletes)

The key of an event is the primary key of its row, so all changes of a row are in one partition, in
their order. After a delete, Debezium writes a tombstone: an event without a value.
"""

from __future__ import annotations

import msgspec

from penstock import Materialized, StreamsBuilder, Topology

CHANGES, CUSTOMERS = "customer-changes", "customers"
STORE = "customers"


class CustomerKey(msgspec.Struct, frozen=True):
    """The primary key of a customer."""

    id: int


class Customer(msgspec.Struct, frozen=True):
    """A row of the source table."""

    id: int
    name: str
    email: str
    city: str


class Change(msgspec.Struct, frozen=True):
    """Debezium's envelope. Its other fields, such as `source`, are ignored."""

    #: "c": insert, "u": update, "d": delete, "r": read by the initial snapshot.
    op: str
    before: Customer | None
    after: Customer | None
    ts_ms: int


def row_after(change: Change | None) -> Customer | None:
    """The row after a change; None if it was deleted."""
    return None if change is None else change.after


def build() -> Topology:
    """The table of customers."""
    builder = StreamsBuilder()
    changes = builder.stream(CHANGES, key=CustomerKey, value=Change)
    rows = changes.map_values(row_after)
    # Without a cache, every change is written. With one, a commit writes the last row of each key.
    table = rows.to_table(store=Materialized(STORE, caching=False))
    table.to_stream().to(CUSTOMERS)
    return builder.build()
