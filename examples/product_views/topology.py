"""Counts the views of products, and sends one alert when a product reaches 1,000.

    ProductViewsTopic ─ count ─ reaches 1,000 ─ PopularProductEmailAlert ─ product-alerts

The alert is a processor: `send` stands for the mail server. Results are exactly once, but a call
of another system is not: it is repeated if the process fails before the commit.
"""

from __future__ import annotations

import logging

from penstock import Materialized, Processor, Record, Serdes, StreamsBuilder, Topology

VIEWS = "ProductViewsTopic"
ALERTS = "product-alerts"
POPULAR = 1000

log = logging.getLogger(__name__)


class PopularProductEmailAlert(Processor[int, int, int, str]):
    """Sends a mail for each record, and forwards its text."""

    def __init__(self, address: str) -> None:
        self._address = address

    def process(self, record: Record[int, int]) -> None:
        text = f"To {self._address}: product {record.key} was viewed {record.value} times"
        self.send(text)
        self.context.forward(record.with_value(text))

    def send(self, text: str) -> None:
        """Send a mail."""
        log.info("%s", text)


def alert() -> PopularProductEmailAlert:
    """A processor for each task."""
    return PopularProductEmailAlert("alerts@yourcompany.com")


def build() -> Topology:
    """The whole application. Counts are not cached, because the one that matters must be seen."""
    builder = StreamsBuilder()
    views = builder.stream(VIEWS, key=int, value=str)
    uncached = Materialized("ProductViewCounts", caching=False)
    counts = views.group_by_key().count(store=uncached)
    popular = counts.to_stream().filter(lambda product, count: count == POPULAR)
    popular.process(alert).to(ALERTS, key=Serdes.long(), value=Serdes.string())
    return builder.build()
