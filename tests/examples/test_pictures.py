"""Notebooks show the topologies of the examples as pictures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from anomaly_detector import topology as anomaly_detector
from browser_windows import topology as browser_windows
from captcha import topology as captcha
from fraud_scoring import topology as fraud_scoring
from greetings import topology as greetings
from parquet_join import topology as parquet_join
from product_counter import topology as product_counter
from product_views import topology as product_views
from stock_ticker import topology as stock_ticker
from table_replication import topology as table_replication
from words import topology as words

from clients import topology as clients
from penstock import Topology


@pytest.mark.parametrize("build", [
    greetings.build, clients.build, captcha.build, captcha.build_with_global_table,
    browser_windows.build, product_views.build, product_counter.build, words.build,
    words.build_tables, stock_ticker.build, table_replication.build,
    parquet_join.build, fraud_scoring.build, anomaly_detector.build,
])
def test_topology_has_a_picture(build: Callable[[], Topology]) -> None:
    assert build()._repr_svg_().startswith("<svg")
