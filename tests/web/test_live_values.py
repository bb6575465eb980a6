"""The page with known metrics: the picture with rates and hot spots, restores, charts."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Streams, StreamsBuilder, StreamsConfig
from penstock.log import RecordColumns, open_log
from penstock.metrics import MetricName
from penstock.queries.http import HttpSettings, Server
from penstock.queries.node import QueryNode
from penstock.web.dashboard import create_dashboard
from unit.web.metric_maps import Metrics, metric, node, task, topic
from web.chromium import find

pytestmark = [
    pytest.mark.slow, pytest.mark.full,
    pytest.mark.skipif(find() is None, reason="Chromium is missing; see tests/web/chromium.py"),
]

SETTINGS = HttpSettings(port=0)
SOURCE, SINK = "KSTREAM-SOURCE-0000000000", "KSTREAM-SINK-0000000003"


#: More metrics of nodes.
ADDED: Metrics = {}


def metrics_at(second: float) -> Metrics:
    """100 records/s in each of two tasks; half of them pass the filter."""
    found: Metrics = {**metric("thread", "process-total", 200 * second)}
    for name in ("0_0", "0_1"):
        found |= topic("words", "records-consumed-total", 100 * second, SOURCE, name)
        found |= topic("long-words", "records-produced-total", 50 * second, SINK, name)
        found |= node("long", "process-total", 100 * second, name)
        found |= node("upper", "process-total", 50 * second, name)
        found |= node(SOURCE, "record-e2e-latency-avg", 20.0, name)
        found |= node(SINK, "record-e2e-latency-avg", 4_200.0, name)
        found |= task(name, "process-total", 100 * second)
    found |= ADDED
    found |= task("0_1", "restore-progress", 0.25)
    found |= task("0_1", "restore-remaining-records-total", 750)
    return found


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    words.filter(lambda key, word: len(word) > 3, name="long") \
        .map_values(str.upper, name="upper").to("long-words")
    config = StreamsConfig(
        application_id="app", log=tmp_path / "log.db", state_dir=tmp_path / "state",
        application_server="127.0.0.1:9999",
    )
    with open_log(tmp_path / "log.db") as log:
        for name in ("words", "long-words"):
            log.create_topic(name, 2)
        log.append("words", 0, RecordColumns([b"a"], [b"barley"]))
    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(60)
        start = time.monotonic()
        monkeypatch.setattr(streams, "metrics", lambda: metrics_at(time.monotonic() - start))
        with Server(create_dashboard(streams, SETTINGS), SETTINGS) as server:
            yield server.url


def open_page(browser: Any, address: str, view: str, **options: Any) -> Any:
    page = browser.new_page(**options)
    page.goto(f"{address}/dashboard#{view}")
    page.wait_for_selector("#state[data-state=RUNNING]")
    return page


def shape(page: Any, title: str) -> Any:
    return page.locator("svg.topology g", has=page.locator("title", has_text=title))


def test_nodes_and_arrows_have_rates_and_the_slowest_node_is_hot(
    browser: Any, address: str
) -> None:
    page = open_page(browser, address, "topology")
    for title, rate in (
        (f"source {SOURCE}", 200), ("processor long", 200), ("processor upper", 100),
        (f"sink {SINK}", 100),
    ):
        live = shape(page, title).locator("text.live")
        live.filter(has_text=re.compile(r"\d/s")).wait_for()
        words = live.text_content()
        assert float(words.split("/s")[0].replace(",", "")) == pytest.approx(rate, rel=0.2), title
    # topic -> source -> long -> upper -> sink -> topic: all of them are known.
    labels = page.locator("text.edge").all_text_contents()
    assert len(labels) == 5
    assert all(re.match(r"[\d.,]+/s, ", label) for label in labels), labels
    assert [label.split(", ")[1] for label in labels] == ["20 ms"] * 4 + ["4.2 s"]
    assert shape(page, "processor upper").locator("text.live").text_content().endswith(", 20 ms")
    assert shape(page, f"sink {SINK}").locator("text.live").text_content().endswith("4.2 s")
    hot = page.locator("svg.topology g.hot title").all_text_contents()
    assert hot == [f"sink {SINK}"]
    assert "latency 4.2 s, 4.2 s more than at the input" in page.inner_text("#hot-spots")
    page.locator(".legend summary").press("Enter")
    assert "lag has grown" in page.inner_text(".legend")
    row = page.locator("#node-list tr", has_text="upper")
    assert float(row.locator("td").nth(1).inner_text()) == pytest.approx(100, rel=0.2)
    page.close()


def test_times_of_nodes_are_shown_if_they_are_measured(
    browser: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page(browser, address, "topology")
    page.locator("#node-list small", has_text="metrics.recording.level=DEBUG").wait_for()
    assert "Share of time" not in page.inner_text("#node-list")
    page.close()
    with_times = {
        **node("upper", "process-ratio", 0.75), **node("upper", "process-rate", 50.0),
        **node("long", "process-ratio", 0.001), **node("long", "process-rate", 100.0),
        **node(SINK, "process-ratio", 0.249), **node(SINK, "process-rate", 50.0),
    }
    monkeypatch.setitem(globals(), "ADDED", with_times)
    page = open_page(browser, address, "topology")
    page.locator("#node-list th", has_text="Share of time").wait_for()
    rows = page.locator("#node-list tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["upper", SINK, "long", SOURCE]
    assert rows[0].split("\t")[3:] == ["15 ms", "75%"]
    assert rows[2].split("\t")[3:] == ["10 µs", "0.1%"]
    assert shape(page, "processor upper").locator("text.live").text_content() \
        .endswith("/s, takes 15 ms")
    assert "upper: takes 75% of the time of a lane, 15 ms for a record" \
        in page.inner_text("#hot-spots")
    assert "processor upper" in page.locator("svg.topology g.hot title").all_text_contents()
    page.close()


def test_restore_lanes_and_lease_holder_are_shown(browser: Any, address: str) -> None:
    page = open_page(browser, address, "instances")
    bar = page.locator("#view progress")
    bar.wait_for()
    assert bar.get_attribute("aria-label") == "250 of 1,000 records (25%)"
    assert "250 of 1,000 records (25%)" in page.inner_text("#view")
    host = socket.gethostname()
    assert page.inner_text("#lease-holder").startswith(host)
    # A later heartbeat of the instance says so.
    page.get_by_text("active, holds the lease").wait_for()
    rows = page.locator("tr", has=page.get_by_role("cell", name="0_1", exact=True))
    assert rows.first.locator("td").nth(1).inner_text() == host
    page.locator("#metrics summary").press("Enter")
    page.locator("#metrics td", has_text="restore-remaining-records-total").wait_for()
    page.close()


def test_health_shows_lanes_that_are_gone_and_tasks_their_latest_record(
    browser: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page(browser, address, "overview")
    fact = page.locator(".facts li", has_text="Threads and lanes")
    fact.filter(has_text="1 of 1 running").wait_for()
    assert fact.get_attribute("class") is None
    assert "Lateness" not in page.locator("th").all_inner_texts()
    monkeypatch.setattr(Streams, "metadata_for_local_threads", lambda self: frozenset())
    monkeypatch.setitem(globals(), "ADDED", {
        MetricName("stream-metrics", "failed-stream-threads", (("client-id", "app"),)): 2,
        **task("0_1", "record-lateness-max", 2_500.0),
    })
    fact.filter(has_text="none running, 2 failed").wait_for()
    assert fact.get_attribute("class") == "attention"
    heads = page.locator("section", has_text="Tasks").locator("th").all_inner_texts()
    cells = page.locator("tr[data-key='0_1'] td").all_inner_texts()
    assert cells[heads.index("Lateness")] == "2.5 s"
    page.close()


def test_throughput_latency_and_lag_are_drawn_over_time(browser: Any, address: str) -> None:
    page = open_page(browser, address, "overview")
    page.wait_for_function(
        "() => [...document.querySelectorAll('polyline')]"
        ".filter(line => line.getAttribute('points').split(' ').length > 2).length >= 3"
    )
    captions = page.locator("figcaption").all_inner_texts()
    assert [each.split(" ")[0] for each in captions] == ["Records", "Latency", "Commit", "Lag"]
    assert captions[1] == "Latency 4.2 s"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_text_has_contrast_and_fits(browser: Any, address: str, scheme: str, width: int) -> None:
    page = open_page(
        browser, address, "overview", color_scheme=scheme, viewport={"width": width, "height": 800}
    )
    for view in ("overview", "topology", "topics", "stores", "letters", "instances", "settings"):
        page.click(f"#tab-{view}")
        page.wait_for_selector("#view > div > :not(.loading)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert page.evaluate(LOW_CONTRAST) == [], view
    page.close()


#: The texts whose contrast to the background is less than 4.5, the limit of WCAG AA.
LOW_CONTRAST = """() => {
    const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((part) => part / 255)
            .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const back = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const colour = getComputedStyle(each).backgroundColor;
            if (!/, 0\\)$/.test(colour)) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const found = [];
    for (const each of document.querySelectorAll('body *')) {
        const own = [...each.childNodes].some(
            (node) => node.nodeType === 3 && node.textContent.trim());
        const isDrawn = each.namespaceURI.endsWith('svg');
        if (!own || !each.checkVisibility() || each.tagName === 'title') continue;
        const style = getComputedStyle(each);
        const [one, other] = [light(isDrawn ? style.fill : style.color), light(back(each))]
            .sort((a, b) => b - a);
        const contrast = (one + 0.05) / (other + 0.05);
        if (contrast < 4.5) found.push(`${each.textContent}: ${contrast.toFixed(1)}`);
    }
    return found;
}"""


def test_query_node_says_that_it_runs_no_tasks(browser: Any, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("words", key=str, value=str).to("long-words")
    config = StreamsConfig(
        application_id="app", log=tmp_path / "log.db", state_dir=tmp_path / "node"
    )
    with open_log(tmp_path / "log.db") as log:
        for name in ("words", "long-words"):
            log.create_topic(name, 2)
    with QueryNode(builder.build(), config) as reader, \
            Server(create_dashboard(reader, SETTINGS), SETTINGS) as server:
        page = browser.new_page()
        page.goto(f"{server.url}/dashboard#topology")
        page.locator("#node-list", has_text="This process runs no tasks.").wait_for()
        assert "DEBUG" not in page.inner_text("#node-list")
        page.click("#tab-overview")
        page.locator("figcaption", has_text="Lag").wait_for()
        assert page.locator("figure").count() == 1
        assert page.locator("h2").all_inner_texts() == ["Topics", "Dead letters", "Warnings"]
        page.close()


def test_topics_of_a_pattern_are_one_shape(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("logs-.*"), key=str, value=str).to("out")
    config = StreamsConfig(
        application_id="app", log=tmp_path / "log.db", state_dir=tmp_path / "state"
    )
    with open_log(tmp_path / "log.db") as log:
        for name in ("logs-a", "logs-b", "out"):
            log.create_topic(name, 1)
        log.append("logs-a", 0, RecordColumns([b"a"], [b"barley"]))
    start = time.monotonic()

    def consumed() -> Metrics:
        records = 100 * (time.monotonic() - start)
        return {
            **topic("logs-a", "records-consumed-total", records, SOURCE),
            **topic("logs-b", "records-consumed-total", 2 * records, SOURCE),
        }

    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(60)
        monkeypatch.setattr(streams, "metrics", consumed)
        with Server(create_dashboard(streams, SETTINGS), SETTINGS) as server:
            page = open_page(browser, server.url, "topology")
            shape(page, "topic /logs-.*/").locator("text.live").filter(has_text="0/s").wait_for()
            label = page.locator("text.edge").filter(has_text=re.compile(r"\d{3}/s"))
            label.first.wait_for()
            rate = float(label.first.text_content().split("/s")[0])
            assert rate == pytest.approx(300, rel=0.2)
            page.close()
