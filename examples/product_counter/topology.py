"""Counts products with the Processor API, and forwards all counts every second.

    SOURCE (logs) ─ PRODUCT_COUNTER (store Counts) ─┬─ PRINT
                                                    └─ SINK_COUNTER (counter_topic)
"""

from __future__ import annotations

from datetime import timedelta

from penstock import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    Topology,
)

LOGS = "logs"
COUNTS = "counter_topic"
STORE = "Counts"


class ProductCounter(Processor[int, str, int, int]):
    """Counts the records of each product."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._counts = context.get_state_store(STORE, KeyValueStore[int, int])
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, self.forward_all)

    def process(self, record: Record[int, str]) -> None:
        self._counts.put(record.key, (self._counts.get(record.key) or 0) + 1)

    def forward_all(self, now: int) -> None:
        """Forward all counts, and commit."""
        for product, count in self._counts.all():
            self.context.forward(Record(product, count, now))
        self.context.commit()


class PrintCounts(Processor[int, int, None, None]):
    """Prints each count."""

    def process(self, record: Record[int, int]) -> None:
        print(f"product {record.key}: {record.value}", flush=True)


def build() -> Topology:
    """The whole application."""
    topology = Topology()
    topology.add_source(
        "SOURCE", LOGS, key_deserializer=Serdes.long(), value_deserializer=Serdes.string()
    )
    topology.add_processor("PRODUCT_COUNTER", ProductCounter, "SOURCE")
    topology.add_state_store(
        Stores.key_value_store_builder(
            Stores.persistent_key_value_store(STORE), Serdes.long(), Serdes.long()
        ),
        "PRODUCT_COUNTER",
    )
    topology.add_processor("PRINT", PrintCounts, "PRODUCT_COUNTER")
    topology.add_sink(
        "SINK_COUNTER", COUNTS, "PRODUCT_COUNTER",
        key_serializer=Serdes.long(), value_serializer=Serdes.long(),
    )
    return topology
