"""The page asks for the token of its server, and shows nothing without it.

The application has no stores: the page offers no look-up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Streams, StreamsBuilder, StreamsConfig
from penstock.log import open_log
from penstock.queries.http import HttpSettings, Server
from penstock.web.dashboard import create_dashboard
from web.chromium import find

pytestmark = [
    pytest.mark.slow, pytest.mark.full,
    pytest.mark.skipif(find() is None, reason="Chromium is missing; see tests/web/chromium.py"),
]


def test_token_is_asked_for_and_kept_until_the_tab_is_closed(browser: Any, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("words", key=str, value=str).to("long-words")
    config = StreamsConfig(
        application_id="app", log=tmp_path / "log.db", state_dir=tmp_path / "state"
    )
    settings = HttpSettings(port=0, token="s3cret")
    with open_log(tmp_path / "log.db") as log:
        for name in ("words", "long-words"):
            log.create_topic(name, 1)
    with Streams(builder.build(), config, master="inline") as streams, \
            Server(create_dashboard(streams, settings), settings) as server:
        page = browser.new_page()
        page.goto(f"{server.url}/dashboard")
        page.get_by_text("A token is needed.").wait_for()
        page.wait_for_function("document.activeElement.id === 'token'")
        assert not page.get_by_text("Loading").is_visible()
        assert page.title() == "penstock"
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("The token is not the right one.").wait_for()
        page.fill("#token", "s3cret")
        page.keyboard.press("Enter")
        page.get_by_role("cell", name="long-words").wait_for()
        assert not page.locator("#token-form").is_visible()
        page.reload()
        page.get_by_role("cell", name="long-words").wait_for()
        assert "s3cret" not in page.url
        page.click("#tab-stores")
        page.get_by_text("No store is known yet.").wait_for()
        assert page.locator("#view form").count() == 0
        other = browser.new_page()
        other.goto(f"{server.url}/dashboard")
        other.get_by_text("A token is needed.").wait_for()
        for each in (page, other):
            each.close()
