"""The dashboard in a real browser, with the orders application on Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orders.generate import generated_orders

from penstock.log import Log, open_log
from web.chromium import find
from web.orders_run import HOSTILE, ORDERS, append, prepare, run_orders
from web.orders_run import send_orders as send

pytestmark = [
    pytest.mark.slow, pytest.mark.spark,
    pytest.mark.skipif(find() is None, reason="Chromium is missing; see tests/web/chromium.py"),
]

WAIT_MS = 120_000.0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with open_log(tmp_path_factory.mktemp("orders") / "log.db") as log:
        prepare(log)
        yield log


def send_orders(log: Log, count: int, seed: int) -> None:
    send(log, generated_orders(count, seed))


@pytest.fixture(scope="module")
def application(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """`penstock run --dashboard`: its address and its process id."""
    send_orders(log, 200, seed=1)
    append(log, ORDERS, [("store_1234", HOSTILE.encode())])
    with run_orders(log, tmp_path_factory.mktemp("run")) as running:
        yield running


@pytest.fixture
def page(browser: Any, application: tuple[str, int]) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(WAIT_MS)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto(f"{application[0]}/dashboard")
    page.wait_for_selector("#state[data-state=RUNNING]")
    yield page
    page.close()
    assert not problems


def text_of(page: Any, words: str) -> None:
    """Wait until the page shows a text."""
    page.wait_for_function("words => document.body.innerText.includes(words)", arg=words)


def test_counters_move(page: Any, log: Log) -> None:
    page.wait_for_function(
        "() => [...document.querySelectorAll('tr')].some("
        "row => row.cells[0].textContent === 'orders' && row.cells[2].textContent === '201')"
    )
    send_orders(log, 40, seed=2)
    page.wait_for_function(
        "() => [...document.querySelectorAll('tr')].some(row => row.cells[0].textContent === "
        "'orders' && row.cells[2].textContent === '241' && row.cells[3].textContent === '0')"
    )
    page.click("#tab-topology")
    page.wait_for_function(
        "() => [...document.querySelectorAll('svg.topology g')].some(group => "
        "group.textContent.includes('topic orders') && /\\d\\/s/.test(group.textContent))"
    )


def test_row_of_a_store_is_looked_up(page: Any) -> None:
    page.click("#tab-stores")
    page.select_option("select[name=store]", "general_orders_count")
    page.fill("input[name=key]", "store_1234")
    page.click("text=Look up")
    page.wait_for_function(
        "() => document.querySelectorAll('#view tbody tr').length >= 1 && "
        "document.querySelector('#view tbody tr').cells[0].textContent === '\"store_1234\"'"
    )
    count = page.evaluate("document.querySelector('#view tbody tr').cells[1].textContent")
    assert int(count) > 0
    page.fill("input[name=key]", "")
    page.fill("input[name=from]", "store_4000")
    page.fill("input[name=to]", "store_5000")
    page.click("text=Look up")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#view tbody')][0].innerText.includes('store_4567')"
    )
    assert "store_1234" not in page.locator("#view tbody").first.inner_text()
    # So many stores have orders.
    page.get_by_text("The store has about 3 entries.").wait_for()
    page.fill("input[name=from]", "")
    page.fill("input[name=to]", "")
    page.select_option("select[name=store]", "general_orders_count_window")
    assert not page.is_visible("input[name=prefix]")
    page.fill("input[name=key]", "")
    page.click("text=Look up")
    page.wait_for_selector("svg.axis rect.bar")
    assert page.locator("svg.axis text.tick").count() >= 2


def test_dead_letter_is_shown_as_text_and_replayed(page: Any, log: Log) -> None:
    page.click("#tab-letters")
    page.wait_for_selector("details.letter")
    before = page.locator("details.letter").count()
    letter = page.locator("details.letter").first
    letter.locator("summary").click()
    text_of(page, HOSTILE)
    assert page.evaluate("document.querySelector('#view script, #view img')") is None
    assert page.title() == "orders · penstock"
    letter.get_by_role("button", name="Replay", exact=True).click()
    text_of(page, "Sent to orders")
    # The record cannot be read this time either.
    page.wait_for_function(
        """async before => {
            document.querySelector('#reload').click();
            await new Promise(resolve => setTimeout(resolve, 300));
            return document.querySelectorAll('details.letter').length > before;
        }""", arg=before,
    )


def test_selected_dead_letters_are_replayed_with_the_keyboard(page: Any, log: Log) -> None:
    """A record that cannot be read becomes one more dead letter with every replay."""
    page.goto(page.url.split("#")[0] + "#letters")
    page.wait_for_selector("details.letter")
    before = page.locator("details.letter").count()
    boxes = page.locator(".letter-row input[type=checkbox]")
    boxes.first.press("Space")
    assert page.locator("#replay-selected").inner_text() == "Replay selected (1)"
    page.get_by_label("Select all").press("Space")
    assert page.locator("#replay-selected").inner_text() == f"Replay selected ({before})"
    page.locator("#replay-selected").press("Enter")
    text_of(page, f"{before} of {before} replayed.")
    assert page.locator(".outcome", has_text="Sent to orders").count() == before
    assert boxes.evaluate_all("boxes => boxes.every(box => !box.checked)")


def test_records_of_a_topic_are_shown(page: Any) -> None:
    page.click("#tab-topics")
    page.select_option("select[name=topic]", "stores")
    page.click("text=Show")
    text_of(page, "City")


def test_views_are_reached_with_the_keyboard_and_fit_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.focus("#tab-overview")
    names = [page.evaluate("document.activeElement.id")]
    for _ in range(6):
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#view > div > :not(.loading)")
        names.append(page.evaluate("document.activeElement.id"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert names == [f"tab-{name}" for name in (
        "overview", "topology", "topics", "stores", "letters", "instances", "settings",
    )]
    for key, name in (("Home", "overview"), ("ArrowLeft", "settings"), ("ArrowRight", "overview"),
                      ("End", "settings")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == f"tab-{name}", key


def test_pause_and_resume(page: Any, log: Log) -> None:
    page.click("#actions >> text=pause")
    page.wait_for_selector("#state >> text=PAUSED")
    page.click("#actions >> text=resume")
    page.wait_for_selector("#state >> text=RUNNING")


def test_killed_worker_is_replaced_and_shown(page: Any, application: tuple[str, int]) -> None:
    """The overview lists the last warnings of the application."""
    workers = workers_of(application[1])
    # A worker of the spare slot runs no lane.
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    page.wait_for_function(
        "pids => pids.some(pid => document.body.innerText.includes(pid))",
        arg=[str(pid) for pid in workers],
    )


def workers_of(root: int) -> list[int]:
    """The Python workers of Spark."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.name))
    waiting, found = [root], []
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"pyspark" in command and b"java" not in command.split(b"\0")[0] \
                and pid not in children:
            found.append(pid)
    assert found, "there is no worker"
    return found
