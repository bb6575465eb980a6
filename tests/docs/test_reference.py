"""The API reference shows every public name, and builds without warnings."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
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


def test_kafka_names_are_shown_with_their_python_names(reference: Any) -> None:
    text = reference.pages(ROOT / "docs")["reference/kafka-names.md"]
    assert "| KafkaStreams.State: hasCompletedShutdown | Y7 | `State.has_ended` |" in text
    assert "| KafkaClientSupplier: other members | L1 | missing |" in text


@pytest.mark.full
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir",
         str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    page = (tmp_path / "site" / "reference" / "processors" / "index.html").read_text("utf-8")
    assert "StreamsMetrics#addSensor" in page
    assert "cdnjs" not in page
