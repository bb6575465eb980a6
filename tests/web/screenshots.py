"""Takes the pictures of docs/dashboard.md from a running dashboard.

    python tests/web/screenshots.py http://127.0.0.1:8080 docs/images
"""

from __future__ import annotations

import sys
from pathlib import Path

from chromium import find
from playwright.sync_api import sync_playwright

#: View -> the width of the browser and the colour scheme.
VIEWS = {
    "overview": (1280, "light"), "topology": (1280, "dark"), "stores": (1280, "light"),
    "letters": (1280, "light"), "instances": (1280, "dark"),
}
#: Less of the dead letters is shown: tracebacks have paths of this machine.
HEIGHTS = {"letters": 420, "topology": 800}


def main(address: str, folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        for name, (width, scheme) in VIEWS.items():
            page = browser.new_page(
                viewport={"width": width, "height": HEIGHTS.get(name, 640)}, color_scheme=scheme
            )
            page.goto(f"{address}/dashboard#{name}")
            page.wait_for_selector("#state[data-state=RUNNING]")
            page.wait_for_selector("#view > div > *")
            if name == "stores":
                page.select_option("select[name=store]", "general_orders_revenue_window")
                page.click("text=Look up")
                page.wait_for_selector("svg.axis")
            if name == "letters":
                page.locator("details.letter summary").first.click()
            # Rates need some overviews.
            page.wait_for_timeout(40_000 if name == "overview" else 8_000)
            page.screenshot(path=folder / f"dashboard-{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
