"""docs/versions.md names the formats of the code, and the checklist the files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.engine.plan import task_records
from penstock.log.embedded import schema
from penstock.stores.replica import state
from penstock.topology import application_info

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")


def documented_format(what: str) -> int:
    found = re.search(rf"^\| {what} \| [^|]+ \| (\d+) \|", PAGE, re.MULTILINE)
    assert found is not None, what
    return int(found[1])


def test_formats_on_the_page_are_those_of_the_code() -> None:
    assert documented_format("embedded log") == schema.FORMAT_VERSION
    assert documented_format("task records") == task_records.FORMAT_VERSION
    assert documented_format("description of the topology") == application_info.FORMAT_VERSION
    assert documented_format("local state") == state.FORMAT


def test_format_of_the_streaming_sink_on_the_page_is_that_of_the_code() -> None:
    pytest.importorskip("pyspark")
    from penstock.engine.spark.sources import sink

    assert documented_format("batches of a streaming sink") == sink.FORMAT_VERSION


@pytest.mark.parametrize("page", ["docs/releasing.md", "docs/versions.md", "SECURITY.md"])
def test_files_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(
        r"`((?:\.ci|\.github|tests|bench|deploy|docs)/[\w./-]*|[\w-]+\.(?:md|toml))`", text
    )
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert paths or links
    for path in paths:
        assert "X.Y.Z" in path or (ROOT / path).exists(), path
    for link in links:
        assert ((ROOT / page).parent / link).exists(), link
