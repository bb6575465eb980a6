"""ARCHITECTURE.md and the reading order name existing paths and all packages."""

from __future__ import annotations

import re
from pathlib import Path

import penstock

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "penstock"
PATH = re.compile(r"`([\w./-]+(?:\.py|\.md|/))`")


def named_paths() -> list[str]:
    return PATH.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))


def reading_order() -> list[str]:
    """The paths of the docstring: indented lines of a path, spaces and a description."""
    return re.findall(r"^    ([\w./]+)\s{2,}\S", penstock.__doc__ or "", re.MULTILINE)


def packages() -> set[str]:
    return {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}


def test_every_path_exists() -> None:
    paths = named_paths()
    assert len(paths) > 30
    assert [path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists()
            ] == []


def test_every_package_and_root_module_is_named() -> None:
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py"}
    paths = set(named_paths())
    first_parts = {f"{path.split('/')[0]}/" for path in paths if "/" in path}
    assert sorted(packages() - first_parts) == []
    assert sorted(modules - paths) == []


def test_architecture_fits_on_two_screens() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 110


def test_reading_order_names_all_packages() -> None:
    order = reading_order()
    assert [path for path in order if not (SOURCE / path).exists()] == []
    assert sorted(packages() - set(order)) == []
    assert order.index("dsl/") < order.index("topology/") < order.index("task/")
