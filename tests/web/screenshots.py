"""Takes the pictures of docs/dashboard.md: runs the orders application on Spark with new orders.

    python tests/web/screenshots.py docs/images
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from msgspec.structs import replace
from orders.generate import generated_orders
from playwright.sync_api import sync_playwright

from penstock.log import Log, open_log
from web.chromium import find
from web.orders_run import HOSTILE, ORDERS, append, prepare, run_orders, send_orders

INTERVAL_S = 0.1
ORDERS_PER_INTERVAL = 5


@dataclass(frozen=True)
class Picture:
    view: str
    height: int = 640
    width: int = 1280
    scheme: str = "light"
    suffix: str = ""
    #: How long the view is open before the picture is taken.
    wait_ms: int = 6_000


PICTURES = (
    Picture("topology", 760, scheme="dark"), Picture("topics"), Picture("stores", 600),
    # Less of the dead letters is shown: tracebacks have paths of this machine.
    Picture("letters", 420), Picture("instances", scheme="dark"), Picture("settings"),
    Picture("overview", 760, 400, suffix="-narrow"),
    # The charts have filled in the meantime.
    Picture("overview", 700),
)


@contextmanager
def orders_of_now(log: Log) -> Iterator[None]:
    """Send orders with the current time until the end of the block, a few of them too late."""
    stopped = threading.Event()

    def send() -> None:
        with open_log(log.address) as own:
            chance = random.Random(7)
            orders = generated_orders(10**6, 7)
            while not stopped.wait(INTERVAL_S):
                now = datetime.now(UTC).replace(tzinfo=None)
                send_orders(own, [
                    replace(order, ordered_date_time=now)
                    for order, _ in zip(orders, range(ORDERS_PER_INTERVAL), strict=False)
                ])
                if chance.random() < 0.01:
                    append(own, ORDERS, [("store_1234", HOSTILE.encode())])

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stopped.set()
        sender.join()


def take(browser: Any, address: str, picture: Picture, folder: Path) -> None:
    page = browser.new_page(
        viewport={"width": picture.width, "height": picture.height}, color_scheme=picture.scheme
    )
    page.goto(f"{address}/dashboard#{picture.view}")
    page.wait_for_selector("#state[data-state=RUNNING]")
    page.wait_for_selector("#view > div > :not(.loading)")
    page.wait_for_timeout(picture.wait_ms)
    if picture.view == "stores":
        page.select_option("select[name=store]", "general_orders_revenue_window")
        page.click("text=Look up")
        page.wait_for_selector("svg.axis")
    if picture.view == "letters":
        page.wait_for_selector("details.letter summary")
        page.locator("details.letter summary").first.click()
    if picture.view == "overview" and picture.width < 1000:
        # The charts are above it.
        page.locator("h2", has_text="Topics").evaluate("title => title.scrollIntoView()")
    page.screenshot(path=folder / f"dashboard-{picture.view}{picture.suffix}.png")
    page.close()


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, \
            open_log(Path(scratch) / "log.db") as log:
        prepare(log)
        append(log, ORDERS, [("store_1234", HOSTILE.encode())])
        with orders_of_now(log), run_orders(log, Path(scratch)) as (address, _), \
                sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
            # Windows and charts need some minutes.
            page = browser.new_page()
            page.goto(f"{address}/dashboard")
            page.wait_for_timeout(150_000)
            page.close()
            for picture in PICTURES:
                take(browser, address, picture, folder)
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
