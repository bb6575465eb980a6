"""The topology in the test driver, without Spark and Java: `python -m pytest stock_ticker`."""

from __future__ import annotations

from penstock.testing import TopologyTestDriver
from stock_ticker import topology as stock_ticker


def test_ticker_keeps_the_latest_price() -> None:
    with TopologyTestDriver(stock_ticker.build()) as driver:
        prices = driver.create_input_topic(stock_ticker.PRICES, str, float)
        prices.pipe_key_value_list([("ACME", 42.0), ("INIT", 7.5), ("ACME", 41.5)])
        store = driver.get_key_value_store(stock_ticker.LATEST)
        assert dict(store.all()) == {"ACME": 41.5, "INIT": 7.5}
