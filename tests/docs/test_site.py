"""The site builds without warnings, loads nothing from other servers, and is searched offline."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from web.chromium import find

ROOT = Path(__file__).resolve().parents[2]
#: Elements whose address the browser loads by itself.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return folder


class Addresses(HTMLParser):
    """Collects the addresses that a browser loads for a page, and those that it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in LOADED and named.get("rel") != "canonical":
            self.loaded.append(named.get(LOADED[tag]) or "")
        if tag == "a":
            self.linked.append(named.get("href") or "")


def pages(site: Path) -> Iterator[tuple[Path, Addresses]]:
    for page in sorted(site.rglob("*.html")):
        if page.name != "404.html":
            addresses = Addresses()
            addresses.feed(page.read_text(encoding="utf-8"))
            yield page, addresses


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    found = {page.name: [each for each in addresses.loaded if re.match(r"(https?:)?//", each)]
             for page, addresses in pages(site)}
    assert len(found) > 30
    assert {name: each for name, each in found.items() if each} == {}
    external = re.compile(r"(@import|url\()['\"]?(https?:)?//")
    assert [path.name for path in site.rglob("*.css")
            if external.search(path.read_text(encoding="utf-8"))] == []


def test_links_between_pages_exist(site: Path) -> None:
    """mkdocs checks the links of Markdown, but not those that hooks and templates write."""
    missing = []
    for page, addresses in pages(site):
        for link in addresses.loaded + addresses.linked:
            target = link.partition("#")[0].partition("?")[0]
            if target and ":" not in target and not (page.parent / target).resolve().exists():
                missing.append((page.name, link))
    assert missing == []


def test_navigation_names_every_page(site: Path) -> None:
    """The theme shows a README.md or index.md only by the name of its section if it may."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    names = re.findall(r"^ *- ([^:\n]+): \S+\.md$", navigation, re.MULTILINE)
    assert {"Orders", "Words", "Tutorial"} <= set(names)
    shown = re.findall(
        r'<span class="md-ellipsis">\s*(.*?)\s*</span>',
        (site / "examples" / "words" / "index.html").read_text("utf-8"), re.DOTALL,
    )
    assert set(names) - {html.unescape(each) for each in shown} == set()


def test_reference_shows_examples_as_code(site: Path) -> None:
    page = (site / "reference" / "processors.html").read_text("utf-8")
    assert "StreamsMetrics#addSensor" in page
    stores = (site / "reference" / "stores.html").read_text("utf-8")
    assert '<span class="gp">&gt;&gt;&gt; </span>' in stores


def test_search_shows_guides_before_the_reference_and_decisions(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    boosts = {entry["location"].partition("#")[0]: entry.get("boost", 1) for entry in index["docs"]}
    assert boosts["deployment.html"] == 1
    assert boosts["decisions/2026-11-17-deployment.html"] < boosts["reference/dsl.html"] < 1


@pytest.mark.skipif(find() is None, reason="needs Chromium")
def test_search_works_without_a_server(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        page = browser.new_page()
        requests: list[Any] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "index.html").as_uri())
        # The page reads its index when the field is focused, and reacts to keys after that.
        page.click("input[name=query]")
        page.get_by_text("Type to start searching").wait_for(state="attached")
        page.locator("input[name=query]").press_sequentially("until_window_closes")
        page.wait_for_selector(".md-search-result__item")
        first = page.locator(".md-search-result__item a").first.get_attribute("href")
        browser.close()
    assert first is not None
    assert Path(first.partition("?")[0].partition("#")[0].removeprefix("file://")).exists()
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
