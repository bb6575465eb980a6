"""The input of the comparison: a few hundred records with a dozen keys, from a fixed seed.

With this input Kafka Streams has only one possible result, in whatever order its threads run:

- The input has phases, and a phase is processed completely before the next one is appended. Where
  records of two topics meet behind a repartition, a phase has records of only one of them. The
  first phase is appended before any application starts: a task that reads two topics then takes
  their records in the order of time, and no record of one has the time of a record of the other.
- All records of a region, and of a word, come from one partition of `events`, and the regions of
  one partition belong to one partition. So a task behind a repartition has a single sender, which
  determines the order of its records, its stream time, and which records are late.
- A row of `links` changes at most once in a phase: a foreign-key join drops a response that was
  overtaken by another change of its row.

Times ascend in small steps across all partitions. Some events are late, a few of them too late for
their windows. All times are within the last hours; otherwise the broker would expire the changelogs
of windows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any, NamedTuple

import msgspec
from orders.generate import OPENING, generated_orders
from orders.generate import STORES as ALL_STORES

from penstock.log import Log, RecordColumns
from penstock.log.types import Append
from penstock.partitioning import partition_of

PARTITIONS = 4
TOPICS = (
    "events", "others", "left", "right", "people", "accounts", "places", "rates", "links",
    "orders", "stores",
)
HOUR_MS = 3_600_000
#: The time after which every window of the events has closed.
FLUSH_MS = 60_000


class Row(NamedTuple):
    """A record of the input. Without a `partition`, the key determines it."""

    topic: str
    key: str
    value: str | bytes | None
    time: int
    partition: int | None = None


def names(prefix: str, partition: int, wanted: int) -> list[str]:
    """Return the first names with the prefix whose keys belong to the partition."""
    found = (
        name for name in (f"{prefix}{number}" for number in count())
        if partition_of(name.encode(), PARTITIONS) == partition
    )
    return [next(found) for _ in range(wanted)]


KEYS = sorted(key for partition in range(PARTITIONS) for key in names("key", partition, 3))
#: Regions and words, by the partition of the keys that they appear with.
REGIONS = [names("region", (partition + 1) % PARTITIONS, 3) for partition in range(PARTITIONS)]
WORDS = [names("word", (partition + 2) % PARTITIONS, 3) for partition in range(PARTITIONS)]
ALL_REGIONS = sorted(region for regions in REGIONS for region in regions)
LINKS = [f"link{number}" for number in range(12)]


class Source:
    """Generates rows with times from `start`. The same seed gives the same rows."""

    def __init__(self, seed: int, start: int) -> None:
        self.start = start
        self._chance = random.Random(seed)
        self._numbers = count()

    def stream(self, topic: str, begin: int, records: int, late: float = 0.0) -> Iterator[Row]:
        """Yield records of random keys, a few milliseconds apart, some of them late."""
        chance, now = self._chance, self.start + begin
        for _ in range(records):
            now += chance.randrange(2, 60, 2)
            back = chance.randrange(0, 4_000, 2) if chance.random() < late else 0
            yield self.row(topic, chance.choice(KEYS), max(now - back, self.start))

    def table(
        self, topic: str, keys: list[str], begin: int, deleted: float = 0.0
    ) -> Iterator[Row]:
        """Yield a row for each key in random order, some of them tombstones."""
        now = self.start + begin
        for key in self._chance.sample(keys, len(keys)):
            now += self._chance.randrange(2, 60, 2)
            row = self.row(topic, key, now)
            yield row._replace(value=None) if self._chance.random() < deleted else row

    def row(self, topic: str, key: str, time: int) -> Row:
        """Return a record with a region and words that fit the key's partition."""
        chance, partition = self._chance, partition_of(key.encode(), PARTITIONS)
        regions = ALL_REGIONS if topic == "links" else REGIONS[partition]
        words = " ".join(chance.choices(WORDS[partition], k=chance.randrange(1, 4)))
        # Tables and right sides have odd times, so joined topics never share a time.
        odd = topic in {"right", "accounts", "places", "rates", "others"}
        return Row(
            topic, key,
            f"{next(self._numbers)},{chance.randrange(100)},{chance.choice(regions)},{words}",
            time + odd,
        )

    def flush(self, topic: str, after: int) -> Iterator[Row]:
        """Yield a record of every key, late enough that all earlier windows have closed."""
        return self.table(topic, KEYS, after + FLUSH_MS)


def recent_hour() -> int:
    """Return the start of the last full hour, which is also the start of a window."""
    return (int(time.time() * 1000) // HOUR_MS - 1) * HOUR_MS


def phases(seed: int = 43) -> list[list[Row]]:
    """Return the rows of each phase."""
    start = recent_hour()
    source = Source(seed, start)
    before = [
        *source.table("people", KEYS, 0), *source.table("accounts", KEYS[2:], 0),
        *source.table("people", KEYS, 500, deleted=0.3),
        *source.table("accounts", KEYS, 500, deleted=0.3),
        *source.table("places", ALL_REGIONS[2:], 0), *source.table("rates", ALL_REGIONS[3:], 0),
        *source.stream("left", 0, 150, late=0.1), *source.stream("right", 0, 150, late=0.1),
        *source.flush("left", 10_000), *source.flush("right", 10_000),
        *store_rows(start),
    ]
    return [
        sorted(before, key=lambda row: row.time if row.topic in {"people", "accounts"} else 0),
        [*source.stream("events", 0, 200, late=0.15), *source.table("links", LINKS, 0),
         *order_rows(start)],
        [*source.stream("others", 0, 120), *source.table("places", ALL_REGIONS, 5_000, 0.3)],
        [*source.stream("events", 6_000, 200, late=0.15),
         *source.table("links", LINKS, 6_000, deleted=0.2),
         *source.table("people", KEYS, 6_000, deleted=0.2)],
        [*source.stream("others", 6_000, 120), *source.table("accounts", KEYS, 7_000, 0.2),
         *source.table("places", ALL_REGIONS, 12_000, 0.3)],
        [*source.flush("events", 20_000), *source.table("links", LINKS, 20_000)],
    ]


def store_rows(start: int) -> Iterator[Row]:
    for store in ALL_STORES:
        yield Row("stores", store.location_id, msgspec.json.encode(store), start)


def order_rows(start: int) -> Iterator[Row]:
    """Yield orders of a recent hour. All orders of a store are in one partition."""
    shift = datetime.fromtimestamp(start / 1000, UTC).replace(tzinfo=None) - OPENING
    for number, order in enumerate(generated_orders(300, seed=7)):
        moved = msgspec.structs.replace(
            order, ordered_date_time=order.ordered_date_time + shift
        )
        yield Row(
            "orders", str(order.order_id), msgspec.json.encode(moved), start + number,
            partition_of(order.location_id.encode(), PARTITIONS),
        )


def feed(log: Log, rows: list[Row]) -> None:
    """Append the rows in order."""
    columns: dict[tuple[str, int], tuple[list[Any], list[Any], list[int]]] = {}
    for row in rows:
        key = row.key.encode()
        partition = partition_of(key, PARTITIONS) if row.partition is None else row.partition
        value = row.value.encode() if isinstance(row.value, str) else row.value
        keys, values, times = columns.setdefault((row.topic, partition), ([], [], []))
        keys.append(key)
        values.append(value)
        times.append(row.time)
    log.append_many(
        [Append(*where, RecordColumns(*parts)) for where, parts in columns.items()]
    )
