"""The API reference shows every public name."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import penstock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reference() -> Any:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_on_exactly_one_page(reference: Any) -> None:
    pages = reference.pages(ROOT / "docs")
    shown = [name for text in pages.values() for name in re.findall(r"^::: (\S+)", text, re.M)]
    assert len(shown) == len(set(shown))
    names = {name.rpartition(".")[2] for name in shown}
    # Aliases of types have no page: they are shown where they are used.
    assert {
        name for name in penstock.__all__
        if isinstance(getattr(penstock, name), type) and name not in names
    } == {"ContextualFixedKeyProcessor", "ContextualProcessor"}


def test_headings_are_the_names_to_import(reference: Any) -> None:
    pages = reference.pages(ROOT / "docs")
    headings = [name for text in pages.values() for name in re.findall(r"heading: (\S+)", text)]
    assert {"penstock.KStream", "penstock.Processor", "penstock.clients.Producer"} <= set(headings)
    for heading in headings:
        package, _, name = heading.rpartition(".")
        assert name in importlib.import_module(package).__all__, heading
    assert "[`KStream`][penstock.dsl.stream.KStream]" in pages["reference/index.md"]


def test_pages_start_with_what_readers_need_first(reference: Any) -> None:
    pages = reference.pages(ROOT / "docs")
    headings = {page: re.findall(r"heading: \S+\.(\S+)", text) for page, text in pages.items()}
    assert headings["reference/dsl.md"][:3] == ["StreamsBuilder", "KStream", "KTable"]
    assert headings["reference/testing.md"][0] == "TopologyTestDriver"
    assert set(reference.FIRST) <= {name for names in headings.values() for name in names}


def test_page_has_one_title() -> None:
    """The theme shows no table of contents for a page with several."""
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, page.name


def test_kafka_names_are_shown_with_their_python_names(reference: Any) -> None:
    text = reference.pages(ROOT / "docs")["reference/kafka-names.md"]
    assert "| KafkaStreams.State: hasCompletedShutdown | Y7 | `State.has_ended` |" in text
    assert "| KafkaClientSupplier: other members | L1 | missing |" in text


def test_navigation_has_every_page_of_the_reference(reference: Any) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = reference.pages(ROOT / "docs")
    assert [path for path in pages if path not in navigation] == []


def test_navigation_has_every_page_for_users() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    # The page about exactly-once processing links to the reports about faults.
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if "faults" not in path.name]
    assert [name for name in pages if f" {name}\n" not in navigation] == []
