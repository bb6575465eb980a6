"""The application of the crash tests, its input, and the comparison of its results.

    python -m faults.engine_app --log FILE --state DIR --master inline|local[2]|...
        [--execution batch|continuous] [--conf A=B]

    customers ─────────┐
    orders ──► join with customers ──► enriched
                       └──► by region  ──► count and sum              ──► totals
                       │               └─► count and sum in windows   ──► windows
                       └──► by product ──► count and sum              ──► product-totals
    products ──────────┐
    baskets ──► foreign-key join with products ──► priced
                       └──► by product ──► count and sum              ──► revenue

Batch boundaries differ from run to run: a crash moves all later ones. The results must not depend
on the boundaries, and the comparison must still detect every lost or duplicate record:

- `enriched`, `totals` and `windows` have one possible sequence for each key. A task takes orders
  and customers by timestamp, and every piece of the input is appended atomically and in timestamp
  order (for Kafka, see `append`). All orders of a region are in one partition, so no records of
  other senders are between them. The grace period of the windows is longer than the run, so no
  record is late.
- `priced` also has one possible sequence. The input is divided into waves, and a wave is completely
  processed before the next one starts. In a wave a basket or a product changes once, never both:
  a foreign-key join drops responses that are older than a change of their basket, as in Kafka
  Streams.
- `product-totals` mixes senders. Its counts must be 1, 2, 3 ..., and the amounts must be those of
  the orders in any sequence, so a lost order cannot be balanced by a duplicate one.
- `revenue` subtracts rows, too; its last values are compared.

There is no cache, so the outputs contain every change. The contents of stores are compared through
their changelogs. The last wave touches every key, so that each row of every replica influences the
outputs.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import logging
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from faults.kafka_ends import all_visible
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, TimeWindows, Topology
from penstock.engine.inline import InlineCompute
from penstock.engine.packaging.bundle import Bundle
from penstock.log import Log, RecordColumns, open_log
from penstock.log.errors import LogUnavailable, OffsetOutOfRange, OutcomeUnknown
from penstock.log.types import Append, TopicPartition
from penstock.partitioning import partition_of

APPLICATION_ID = "under-fire"
PARTITIONS = 2
INPUTS = ("customers", "orders", "products", "baskets")
#: Outputs whose keys have one possible sequence each.
SEQUENCES = ("enriched", "totals", "windows", "priced")
OUTPUTS = (*SEQUENCES, "product-totals", "revenue")
CUSTOMERS = tuple(f"c{number:02}" for number in range(12))
#: Several for each partition.
PRODUCTS = ("apples", "bread", "cheese", "dates", "eggs", "flour")
BASKETS = tuple(f"b{number:02}" for number in range(20))
WINDOW_MS = 2_000
#: The time between two waves, and how many pieces of a wave change the joined tables.
WAVE_MS, PIECES = 1_000_000, 6
#: The time within which a killed broker restarts.
PATIENCE_S = 120.0
LONG_GRACE_MS = 10 * 365 * 86_400_000
#: (topic, key, value or None, timestamp)
Row = tuple[str, str, Any, int]
#: (value, timestamp) of each record of a key, in order.
Sequences = dict[str, list[tuple[Any, int]]]


# ---- the topology ----------------------------------------------------------------------------


def nothing() -> dict[str, int]:
    return {"count": 0, "sum": 0}


def add(key: str, order: dict[str, Any], total: dict[str, int]) -> dict[str, int]:
    return {"count": total["count"] + 1, "sum": total["sum"] + order["amount"]}


def subtract(key: str, order: dict[str, Any], total: dict[str, int]) -> dict[str, int]:
    return {"count": total["count"] - 1, "sum": total["sum"] - order["amount"]}


def topology() -> Topology:
    builder = StreamsBuilder()
    customers: Any = builder.table("customers", store="customers")
    orders: Any = builder.stream("orders")
    enriched = orders.join(customers, lambda order, customer: {**order, "name": customer["name"]})
    enriched.to("enriched")
    by_region = enriched.group_by(lambda key, order: order["region"], name="by-region")
    by_region.aggregate(nothing, add, store="totals").to_stream().to("totals")
    (by_region.windowed_by(TimeWindows.of(WINDOW_MS, grace=LONG_GRACE_MS))
        .aggregate(nothing, add, store="windows").to_stream()
        .map(lambda window, total: (f"{window.key}@{window.window.start}", total))
        .to("windows", key=Serdes.string()))
    (enriched.group_by(lambda key, order: order["product"], name="by-product")
        .aggregate(nothing, add, store="product-totals").to_stream().to("product-totals"))
    products: Any = builder.table("products", store="products")
    baskets: Any = builder.table("baskets", store="baskets")
    priced = baskets.join(
        products, lambda basket: basket["product"],
        lambda basket, product: {**basket, "amount": basket["quantity"] * product["price"]},
        store="priced",
    )
    priced.to_stream().to("priced")
    (priced.group_by(lambda key, basket: (basket["product"], basket), name="by-priced-product")
        .aggregate(nothing, add, subtract, store="revenue").to_stream().to("revenue"))
    return builder.build()


def config(log: str, state_dir: str, **settings: Any) -> StreamsConfig:
    """Small batches, no cache, a short lease."""
    return StreamsConfig(
        application_id=APPLICATION_ID, log=log, state_dir=state_dir,
        default_key_serde=Serdes.string(), default_value_serde=Serdes.json(),
        statestore_cache_max_bytes=0, commit_interval_ms=0, num_stream_threads=2,
        extra={
            "penstock.batch.max.records": "60", "session.timeout.ms": "1500",
            **settings.pop("extra", {}),
        },
        **settings,
    )


def make_topics(log: Log) -> None:
    for topic in (*INPUTS, *OUTPUTS):
        log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})


# ---- input -------------------------------------------------------------------------------


class Input:
    """Generates waves from a seed, the same for each call."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def wave(self, number: int) -> Iterator[list[Row]]:
        """The pieces of a wave, without end; each is appended atomically. Numbers start at 1.

        The tables of the foreign-key join change in the first `PIECES` pieces only. Timestamps
        increase from piece to piece and from wave to wave.
        """
        rng = random.Random(f"{self._seed}/{number}")
        clock = itertools.count(number * WAVE_MS, 37)
        # A wave changes baskets or products, each of them at most once.
        changes: dict[int, list[Row]] = {}
        rows = (
            self._baskets(rng, clock, rng.sample(BASKETS, k=10)) if number % 2
            else self._products(rng, clock, rng.sample(PRODUCTS, k=3))
        )
        for row in rows:
            changes.setdefault(rng.randrange(PIECES), []).append(row)
        for piece in itertools.count():
            # Changes are older than the other records of their piece.
            rows = [(*row[:3], next(clock)) for row in changes.get(piece, ())]
            for _ in range(rng.randrange(3)):
                rows.append(self._customer(rng, rng.choice(CUSTOMERS), next(clock)))
                rows += self._orders(rng, clock, rng.choices(CUSTOMERS, k=rng.randrange(12)))
            rows += self._orders(rng, clock, rng.choices(CUSTOMERS, k=rng.randrange(1, 12)))
            yield rows

    def first(self) -> list[Row]:
        """The piece before wave 1: fills all tables and has some orders."""
        rng = random.Random(f"{self._seed}/first")
        return [*self._products(rng, itertools.count(), PRODUCTS), *self.every_key(0)]

    def customers(self, number: int) -> list[Row]:
        """New names for some customers. They are older than the wave with this number."""
        rng = random.Random(f"{self._seed}/{number}/customers")
        clock = itertools.count(number * WAVE_MS - WAVE_MS // 4, 37)
        return [self._customer(rng, each, next(clock)) for each in rng.sample(CUSTOMERS, k=5)]

    def every_key(self, number: int) -> list[Row]:
        """A wave of one piece with every customer, basket and region, and most products."""
        rng = random.Random(f"{self._seed}/{number}/every")
        clock = itertools.count(number * WAVE_MS + WAVE_MS // 2, 37)
        return [
            *(self._customer(rng, customer, next(clock)) for customer in CUSTOMERS),
            *self._baskets(rng, clock, BASKETS),
            *self._orders(rng, clock, [each for each in CUSTOMERS for _ in range(8)]),
        ]

    @staticmethod
    def _products(rng: random.Random, clock: Iterator[int], which: Iterable[str]) -> Iterator[Row]:
        for product in which:
            yield "products", product, {"price": rng.randrange(1, 100)}, next(clock)

    def _baskets(
        self, rng: random.Random, clock: Iterator[int], which: Iterable[str]
    ) -> Iterator[Row]:
        for basket in which:
            value = None if rng.random() < 0.15 else self._basket(rng)
            yield "baskets", basket, value, next(clock)

    @staticmethod
    def _basket(rng: random.Random) -> dict[str, Any]:
        return {"product": rng.choice(PRODUCTS), "quantity": rng.randrange(1, 1000)}

    @staticmethod
    def _customer(rng: random.Random, customer: str, time: int) -> Row:
        return "customers", customer, {"name": f"{customer}-{rng.randrange(10**6)}"}, time

    @staticmethod
    def _orders(rng: random.Random, clock: Iterator[int], customers: Any) -> Iterator[Row]:
        for customer in customers:
            partition = partition_of(customer.encode(), PARTITIONS)
            yield "orders", customer, {
                "amount": rng.randrange(1, 10**6), "product": rng.choice(PRODUCTS),
                "region": f"r{partition}{rng.randrange(4)}",
            }, next(clock)


def append(
    log: Log, rows: list[Row], *, before_run: Callable[[str], object] = lambda topic: None
) -> None:
    """Append a piece.

    On the embedded log the append is atomic. On Kafka the partitions of a transaction become
    visible one by one, so an order could overtake a customer of its own piece, or a customer an
    order. There, consecutive rows of one topic are appended separately and become visible before
    the next ones; `before_run` is called with their topic.
    """
    if not log.capabilities.is_remote:
        _append_at_once(log, rows)
        return
    for topic, run in itertools.groupby(rows, key=lambda row: row[0]):
        before_run(topic)
        _append_patiently(log, list(run))


def _append_patiently(log: Log, rows: list[Row]) -> None:
    """Retry while the broker is down. A rejected append has appended nothing."""
    deadline = monotonic() + PATIENCE_S
    while True:
        try:
            _append_at_once(log, rows)
        except LogUnavailable as refused:
            if isinstance(refused, OutcomeUnknown) or monotonic() > deadline:
                raise
        else:
            return


def _append_at_once(log: Log, rows: list[Row]) -> None:
    columns: dict[
        tuple[str, int], tuple[list[bytes], list[bytes | None], list[int]]
    ] = {}
    for topic, key, value, time in rows:
        where = topic, partition_of(key.encode(), PARTITIONS)
        keys, values, times = columns.setdefault(where, ([], [], []))
        keys.append(key.encode())
        values.append(None if value is None else json.dumps(value).encode())
        times.append(time)
    log.append_many([Append(*where, RecordColumns(*records)) for where, records in columns.items()])


# ---- results ---------------------------------------------------------------------------


def read(log: Log, topic: str) -> Iterator[tuple[bytes, bytes | None, int]]:
    for partition in range(log.topic(topic).partitions):
        start = log.offsets([TopicPartition(topic, partition)])[topic, partition].start
        for batch in log.read(topic, partition, start):
            rows = batch.columns()
            for key, value, time in zip(rows.keys, rows.values, rows.timestamps, strict=True):
                assert key is not None
                yield key, value, time


def sequences(log: Log, topic: str) -> Sequences:
    found: Sequences = {}
    for key, value, time in read(log, topic):
        decoded = None if value is None else json.loads(value)
        found.setdefault(key.decode(), []).append((decoded, time))
    return found


def stores(log: Log) -> dict[str, dict[bytes, tuple[bytes, int]]]:
    """Changelog -> the rows of its store."""
    found: dict[str, dict[bytes, tuple[bytes, int]]] = {}
    for topic in log.topics():
        if not topic.name.endswith("-changelog"):
            continue
        rows = found.setdefault(topic.name, {})
        for key, value, time in read(log, topic.name):
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = (value, time)
    return found


def is_drained(log: Log, *, continuous: bool = False) -> bool:
    """Whether the committed offsets are at the end of all topics that the application reads."""
    return is_read(
        log, lambda topic: topic in INPUTS or _is_circle(topic), continuous=continuous
    )


def is_read(log: Log, wanted: Callable[[str], bool], *, continuous: bool = False) -> bool:
    """Whether there is no record in these topics behind the committed offsets.

    `continuous`: lanes do not wait until the records of their transactions are visible.

    The offsets are read first. So the records that a commit has written to other topics are seen
    if its offsets are.
    """
    committed = log.committed(APPLICATION_ID)
    topics = [topic for topic in log.topics() if wanted(topic.name)]
    partitions = [
        TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)
    ]
    bounds = log.offsets(partitions)
    ends = {at: bounds[at].end for at in partitions}
    if continuous and log.capabilities.is_remote and not all_visible(log.address, ends):
        return False
    # Records before the start of an internal topic were processed and purged.
    return all(
        at in committed
        and _is_empty(log, at, max(committed[at].offset, bounds[at].start), ends[at])
        for at in partitions
    )


def _is_empty(log: Log, at: TopicPartition, start: int, end: int) -> bool:
    """Whether a range has no records. On Kafka it may contain the markers of transactions."""
    if start >= end or not log.capabilities.is_remote:
        return start >= end
    try:
        return next(log.read(*at, start, end), None) is None
    except OffsetOutOfRange:
        # The application has purged the range in the meantime. The caller looks again.
        return False


def everything(log: Log) -> tuple[object, object]:
    """The end offsets of all topics, and the committed offsets of the application."""
    partitions = [
        TopicPartition(topic.name, number)
        for topic in log.topics() for number in range(topic.partitions)
    ]
    return log.offsets(partitions), log.committed(APPLICATION_ID)


def _is_circle(name: str) -> bool:
    return name.startswith(f"{APPLICATION_ID}-") and name.endswith(("-topic", "-repartition"))


# ---- a run without a crash -------------------------------------------------------------------


def start_inline(topology: Topology, config: StreamsConfig, graph: Any, log: Log) -> InlineCompute:
    bundle = Bundle(topology, config, graph, log.address, parallelism=2)
    return InlineCompute(bundle.dump())


def run_reference(directory: Path, waves: list[list[list[Row]]], **settings: Any) -> str:
    """Process the same waves in this process and return the address of the log."""
    directory.mkdir(parents=True, exist_ok=True)
    address = str(directory / "undisturbed.db")
    with open_log(address) as log:
        make_topics(log)
        state_dir = str(directory / "undisturbed-state")
        with Streams(
            topology(), config(address, state_dir, **settings), compute=start_inline
        ) as streams:
            for wave in waves:
                for rows in wave:
                    append(log, rows)
                while not is_drained(log):
                    streams.run_until_caught_up(timeout=600)
    return address


# ---- comparing -------------------------------------------------------------------------------


def verify(log: Log, reference: Log, waves: list[list[list[Row]]]) -> dict[str, int]:
    """Compare two logs. Returns the number of records of each output."""
    for topic in SEQUENCES:
        _same_sequences(topic, sequences(log, topic), sequences(reference, topic))
    _verify_counted(log, "product-totals", _by(waves, "product"))
    _verify_counted(log, "totals", _by(waves, "region"))
    last, right = (
        {key: rows[-1] for key, rows in sequences(each, "revenue").items()}
        for each in (log, reference)
    )
    assert last == right, f"revenue differs: {_difference(last, right)}"
    mine, theirs = stores(log), stores(reference)
    assert mine.keys() == theirs.keys()
    assert len(mine) >= 7, f"stores are missing: {sorted(mine)}"
    for name, rows in mine.items():
        assert rows == theirs[name], f"{name} differs: {_difference(rows, theirs[name])}"
    return {topic: sum(1 for _ in read(log, topic)) for topic in OUTPUTS}


def _same_sequences(topic: str, found: Sequences, right: Sequences) -> None:
    assert found.keys() == right.keys(), f"{topic} has other keys"
    for key, rows in found.items():
        if rows != right[key]:
            at = next(
                (n for n, pair in enumerate(zip(rows, right[key], strict=False))
                 if pair[0] != pair[1]),
                min(len(rows), len(right[key])),
            )
            raise AssertionError(
                f"{topic}, key {key}: {len(rows)} records instead of {len(right[key])}; record "
                f"{at} and the next are {rows[at : at + 2]} instead of {right[key][at : at + 2]}"
            )


def _verify_counted(log: Log, topic: str, amounts: Mapping[str, list[int]]) -> None:
    """Each order was counted and added once, as computed from the input alone."""
    found = sequences(log, topic)
    assert found.keys() == amounts.keys()
    for key, rows in found.items():
        counts = [value["count"] for value, _ in rows]
        assert counts == list(range(1, len(amounts[key]) + 1)), f"{topic}, key {key}: {counts}"
        sums = [0, *(value["sum"] for value, _ in rows)]
        added = [after - before for before, after in itertools.pairwise(sums)]
        assert sorted(added) == sorted(amounts[key]), f"{topic}, key {key}: other amounts"


def _by(waves: list[list[list[Row]]], field: str) -> dict[str, list[int]]:
    amounts: dict[str, list[int]] = {}
    for topic, _, value, _ in (row for wave in waves for piece in wave for row in piece):
        if topic == "orders":
            amounts.setdefault(value[field], []).append(value["amount"])
    return amounts


def _difference(found: Mapping[Any, Any], right: Mapping[Any, Any]) -> str:
    keys = [key for key in {*found, *right} if found.get(key) != right.get(key)]
    return "; ".join(
        f"{key!r}: {found.get(key)!r} instead of {right.get(key)!r}" for key in keys[:3]
    )


# ---- the process of the driver --------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the application until it is ended.")
    parser.add_argument("--log", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--master", default="inline")
    parser.add_argument("--execution", default="batch")
    parser.add_argument("--conf", action="append", default=[], help="one more setting, A=B")
    options = parser.parse_args()
    # Prints the stacks of all threads on SIGUSR1.
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = config(
        options.log, options.state, execution=options.execution,
        extra=dict(each.split("=", 1) for each in options.conf),
    )
    if options.master == "inline" and not settings.is_continuous:
        streams = Streams(topology(), settings, compute=start_inline)
    else:
        streams = Streams(topology(), settings, master=options.master)
    streams.start()
    streams.wait()


if __name__ == "__main__":
    main()
