"""The figures of `docs/scaling.md` are those of `bench/results/`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scaling.md"


def capacity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capacity", ROOT / "bench" / "capacity.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_the_page_are_computed_from_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert capacity().update(text) == text, "Run 'python bench/capacity.py --update'."
