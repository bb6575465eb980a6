"""The source database: a table of customers that records every change as a change event."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
from showcase import Input

from table_replication.topology import CHANGES, Change, Customer, CustomerKey

NAMES = ("Sally Thomas", "George Bailey", "Edward Walker", "Anne Kretchmar", "Ravi Menon")
CITIES = ("Lisbon", "Oslo", "Porto", "Turin")
#: 2026-11-17T09:00:00Z
OPENING_MS = 1_794_906_000_000


class Source:
    """A table and its change events. `rows` is the truth that every replica must reach.

    The same seed creates the same changes.
    """

    def __init__(self, seed: int) -> None:
        self.rows: dict[int, Customer] = {}
        self._chance = random.Random(seed)
        self._next_id = 1001
        self._now_ms = OPENING_MS

    def snapshot(self, count: int) -> Iterator[Input]:
        """Create rows that exist before the replication starts, and read them."""
        for _ in range(count):
            row = self._new_row()
            yield self._event("r", None, row)

    def change(self, count: int) -> Iterator[Input]:
        """Insert, update and delete rows. A delete is followed by a tombstone."""
        for _ in range(count):
            kind = self._chance.choice(("insert", "update", "update", "delete"))
            if kind == "insert" or not self.rows:
                yield self._event("c", None, self._new_row())
                continue
            before = self._chance.choice(list(self.rows.values()))
            if kind == "update":
                yield self._event("u", before, self._move(before))
            else:
                del self.rows[before.id]
                yield self._event("d", before, None)
                yield Input(CHANGES, CustomerKey(before.id), None, self._now_ms)

    def _new_row(self) -> Customer:
        name = self._chance.choice(NAMES)
        email = f"{name.split()[0].lower()}.{self._next_id}@example.com"
        row = Customer(self._next_id, name, email, self._chance.choice(CITIES))
        self.rows[row.id] = row
        self._next_id += 1
        return row

    def _move(self, row: Customer) -> Customer:
        city = self._chance.choice([city for city in CITIES if city != row.city])
        self.rows[row.id] = msgspec.structs.replace(row, city=city)
        return self.rows[row.id]

    def _event(self, op: str, before: Customer | None, after: Customer | None) -> Input:
        self._now_ms += self._chance.randrange(1, 5_000)
        row = after or before
        assert row is not None
        return Input(CHANGES, CustomerKey(row.id), Change(op, before, after, self._now_ms),
                     self._now_ms)
