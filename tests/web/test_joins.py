"""The counters of joins in the browser, with an application in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Streams, StreamsBuilder, StreamsConfig
from penstock.log import RecordColumns, open_log
from penstock.queries.http import HttpSettings, Server
from penstock.web.dashboard import create_dashboard
from web.chromium import find

pytestmark = [
    pytest.mark.slow, pytest.mark.full,
    pytest.mark.skipif(find() is None, reason="Chromium is missing; see tests/web/chromium.py"),
]

SETTINGS = HttpSettings(port=0)


def test_totals_of_a_join_are_shown(browser: Any, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    prices = builder.table("prices", key=str, value=str)
    orders = builder.stream("orders", key=str, value=str)
    orders.join(prices, lambda order, price: order + price, name="priced").to("priced-orders")
    config = StreamsConfig(
        application_id="joins", log=tmp_path / "log.db", state_dir=tmp_path / "state"
    )
    with open_log(tmp_path / "log.db") as log:
        for topic in ("prices", "orders", "priced-orders"):
            log.create_topic(topic, 1)
        log.append("prices", 0, RecordColumns([b"tea"], [b"3"], [1]))
        keys, values = [b"tea", b"tea", b"rye"], [b"a", b"b", b"c"]
        log.append("orders", 0, RecordColumns(keys, values, [2] * 3))
        with Streams(builder.build(), config, master="inline") as streams:
            streams.run_until_caught_up(60)
            with Server(create_dashboard(streams, SETTINGS), SETTINGS) as server:
                page = browser.new_page()
                page.goto(f"{server.url}/dashboard")
                row = page.locator("tr", has=page.get_by_role("cell", name="priced", exact=True))
                row.wait_for()
                assert row.locator("td").all_inner_texts() == ["priced", "2", "1", "0", "0", "0"]
                page.close()
