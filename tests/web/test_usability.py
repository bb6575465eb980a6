"""The page while new values arrive: focus, selection, narrow pages, records, windows, charts."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Streams, StreamsBuilder, StreamsConfig, TimeWindows
from penstock.log import RecordColumns, open_log
from penstock.queries.http import HttpSettings, Server
from penstock.web.dashboard import create_dashboard
from unit.web.metric_maps import Metrics, node, task, topic
from web.chromium import find

pytestmark = [
    pytest.mark.slow, pytest.mark.full,
    pytest.mark.skipif(find() is None, reason="Chromium is missing; see tests/web/chromium.py"),
]

SETTINGS = HttpSettings(port=0)
SOURCE = "KSTREAM-SOURCE-0000000000"
LONG = "barley " * 200
WARNING = "The mill at the river stands still"


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app") / "log.db"


@pytest.fixture(scope="module")
def address(log_path: Path) -> Iterator[str]:
    folder = log_path.parent
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    windows = TimeWindows.of(timedelta(seconds=60), advance=timedelta(seconds=15))
    words.group_by_key().windowed_by(windows).count(store="hop")
    config = StreamsConfig(
        application_id="app", log=folder / "log.db", state_dir=folder / "state",
        errors_dead_letter_queue_topic_name="a-dead",
    )
    with open_log(folder / "log.db") as log:
        for name in ("words", "a-dead"):
            log.create_topic(name, 1)
        log.append("a-dead", 0, RecordColumns([b"a"], [b"1"]))
        now = time.time_ns() // 1_000_000
        log.append("words", 0, RecordColumns(
            [b"a"] * 120, [LONG.encode()] + [b"rye"] * 119, [now] * 120
        ))
    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(60)
        counts = itertools.count(1)
        # Every document has other numbers.
        streams.metrics = lambda: metrics(next(counts))  # type: ignore[method-assign]
        dashboard = create_dashboard(streams, SETTINGS, allow_actions=True)
        with Server(dashboard, SETTINGS) as server:
            logging.getLogger("penstock.mill").warning(WARNING)
            yield server.url


def metrics(number: int) -> Metrics:
    return {
        **task("0_0", "process-total", number), **task("0_0", "dropped-records-total", number),
        **topic("words", "records-consumed-total", 7 * number, SOURCE),
        **node(SOURCE, "record-e2e-latency-avg", 5_000.0 + number),
        **node("KSTREAM-AGGREGATE-0000000001", "record-e2e-latency-avg", 9_000.0 + number),
    }


@pytest.fixture
def open_view(browser: Any, address: str) -> Iterator[Any]:
    pages = []

    def open_view(view: str, **options: Any) -> Any:
        page = browser.new_page(**options)
        pages.append(page)
        page.goto(f"{address}/dashboard#{view}")
        page.wait_for_selector("#state[data-state=RUNNING]")
        page.wait_for_selector("#view > div > :not(.loading)")
        return page

    yield open_view
    for page in pages:
        page.close()


def test_focus_and_selection_survive_new_values(open_view: Any) -> None:
    page = open_view("overview")
    page.locator("#view a", has_text="dead letters in").focus()
    message = page.locator("td", has_text=WARNING)
    message.evaluate(
        "cell => getSelection().selectAllChildren(cell)"
    )
    logging.getLogger("penstock.mill").warning("Another message")
    page.locator("td", has_text="Another message").first.wait_for()
    dropped = "[...document.querySelectorAll('tr')].find(row => " \
        "row.dataset.key === 'dropped by task 0_0').cells[1].textContent"
    before = page.evaluate(dropped)
    page.wait_for_function(f"before => {dropped} !== before", arg=before)
    assert page.evaluate("getSelection().toString()") == WARNING
    assert page.evaluate("document.activeElement.textContent") == "dead letters in a-dead"
    page.keyboard.press("Enter")
    page.wait_for_selector("details.letter")


def test_selected_number_stays_until_it_is_copied(open_view: Any) -> None:
    page = open_view("overview")
    cell = page.locator("tr[data-key='dropped by task 0_0'] td").nth(1)
    cell.evaluate("cell => getSelection().selectAllChildren(cell)")
    before = cell.text_content()
    task = page.locator("tr[data-key='0_0'] td").nth(2)
    page.wait_for_function(
        "before => document.querySelector(\"tr[data-key='0_0']\").cells[2].textContent !== before",
        arg=task.text_content(),
    )
    assert page.evaluate("getSelection().toString()").strip() == before
    page.evaluate("getSelection().removeAllRanges()")
    page.wait_for_function(
        "before => document.querySelector(\"tr[data-key='dropped by task 0_0']\")"
        ".cells[1].textContent !== before", arg=before,
    )


@pytest.mark.parametrize("view", ["overview", "topology", "topics", "stores", "instances"])
def test_narrow_page_hides_no_cell(open_view: Any, view: str) -> None:
    page = open_view(view, viewport={"width": 400, "height": 800})
    page.locator("#view td").first.wait_for()
    assert page.evaluate(
        "[...document.querySelectorAll('#view td')].filter(cell => cell.checkVisibility() && "
        "cell.getBoundingClientRect().right > 400).map(cell => cell.textContent)"
    ) == []
    labels = page.locator("#view td").nth(1).evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    )
    assert labels not in {"none", ""}


UNAVAILABLE = {
    "status": 503, "content_type": "application/json", "body": '{"detail": "The log is away."}',
}


def test_failed_action_is_shown_until_the_next_one(open_view: Any) -> None:
    page = open_view("overview")
    assert page.get_attribute("#resume", "aria-disabled") == "true"
    page.route("**/actions/pause*", lambda route: route.fulfill(**UNAVAILABLE))
    page.locator("#pause").press("Enter")
    page.locator("#outcome", has_text="The log is away.").wait_for()
    task = page.locator("tr[data-key='0_0'] td").nth(2)
    page.wait_for_function(
        "before => document.querySelector(\"tr[data-key='0_0']\").cells[2].textContent !== before",
        arg=task.text_content(),
    )
    assert page.inner_text("#outcome") == "The log is away."


def test_view_that_cannot_be_loaded_says_so_and_is_tried_again(open_view: Any) -> None:
    page = open_view("overview")
    page.route("**/dashboard/settings", lambda route: route.fulfill(**UNAVAILABLE))
    page.click("#tab-settings")
    page.locator("#view .notice", has_text="The log is away.").wait_for()
    assert page.get_attribute("#view", "aria-labelledby") == "tab-settings"
    page.unroute("**/dashboard/settings")
    page.locator("#again").press("Enter")
    page.locator("td", has_text="application.id").wait_for()


def test_server_that_is_gone_is_named_in_every_view(open_view: Any) -> None:
    page = open_view("overview")
    page.route("**/dashboard/settings", lambda route: route.abort())
    page.click("#tab-settings")
    page.locator("#view .notice", has_text="The server cannot be reached.").wait_for()


def test_dead_letters_show_their_source_and_new_ones_are_announced(
    open_view: Any, address: str, log_path: Path
) -> None:
    page = open_view("letters")
    page.locator("summary", has_text="Unknown source").wait_for()
    assert page.locator("#older").is_hidden()
    headers = [[(f"__streams.errors.{name}", text) for name, text in (
        ("topic", b"words"), ("partition", b"0"), ("offset", b"7"), ("exception", b"Mouldy"),
    )]] * 130
    with open_log(log_path) as log:
        log.append("a-dead", 0, RecordColumns([b"b"] * 130, [b"2"] * 130, None, headers))
    page.locator("#reload", has_text="Reload (130 new)").press("Enter")
    page.locator("summary", has_text="words, partition 0, offset 7").first.wait_for()
    assert page.locator("details.letter").count() == 100
    page.locator("#older").press("Enter")
    page.wait_for_function(
        "() => document.querySelectorAll('details.letter').length === 131"
    )
    assert page.locator("#older").is_hidden()


def test_topics_open_on_an_input_and_page_through_it(open_view: Any) -> None:
    page = open_view("topics")
    page.locator("text=Offsets 70 to 119").wait_for()
    assert page.input_value("select[name=topic]") == "words"
    page.locator("button", has_text="Previous").press("Enter")
    page.locator("text=Offsets 20 to 69").wait_for()
    page.wait_for_function("document.activeElement.textContent === 'Previous'")
    page.keyboard.press("Enter")
    page.locator("text=Offsets 0 to 49").wait_for()
    assert page.locator("button", has_text="Previous").is_disabled()
    value = page.locator("tr[data-key='0'] td").nth(3)
    assert len(value.locator("pre").text_content()) < 500
    value.get_by_role("button", name="Show all").press("Enter")
    assert value.locator("pre").text_content() == LONG
    value.get_by_role("button", name="Show less").press("Enter")
    assert len(value.locator("pre").text_content()) < 500


def test_overlapping_windows_are_below_each_other_and_the_newest_is_first(open_view: Any) -> None:
    page = open_view("stores")
    page.wait_for_selector("svg.axis rect.bar")
    boxes = page.locator("svg.axis rect.bar").evaluate_all(
        "bars => bars.map(bar => [bar.x, bar.y, bar.width, bar.height].map(each => "
        "each.baseVal.value))"
    )
    assert len(boxes) == 4
    for (x, y, width, height), (x2, y2, width2, height2) in itertools.combinations(boxes, 2):
        assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
    starts = [each.split(" – ")[0] for each in
              page.locator("#view tbody").first.locator("td:nth-child(2)").all_text_contents()]
    assert starts == sorted(starts, reverse=True)


def test_charts_have_times_and_start_before_the_page(open_view: Any, address: str) -> None:
    first = open_view("overview")
    points = "document.querySelectorAll('polyline')[1]?.getAttribute('points').split(' ').length"
    first.wait_for_function(f"{points} > 3")
    second = open_view("overview")
    second.wait_for_selector("polyline", state="attached")
    assert second.evaluate(points) > 3
    assert second.locator("svg text.tick").count() >= 4


def test_labels_of_the_picture_stay_in_their_sub_topology(open_view: Any) -> None:
    page = open_view("topology")
    page.wait_for_function(
        "[...document.querySelectorAll('text.live')]"
        ".some(live => live.textContent.includes('/s, '))"
    )
    assert page.evaluate("""() => {
        const right = document.querySelector('rect.cluster').getBoundingClientRect().right;
        return [...document.querySelectorAll('g:not(:has(.topic)) > text.live, text.edge')]
            .filter((label) => label.getBoundingClientRect().right > right)
            .map((label) => label.textContent);
    }""") == []


def test_hot_spot_is_centred_with_the_keyboard(open_view: Any) -> None:
    page = open_view("topology", viewport={"width": 400, "height": 400})
    button = page.locator("#hot-spots button")
    button.wait_for()
    button.press("Enter")
    page.wait_for_selector("g.found")
    box = page.locator("g.found rect").bounding_box()
    for place, size in (("x", "width"), ("y", "height")):
        assert 0 <= box[place] <= 400 - box[size]
