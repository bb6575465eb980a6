"""Every test belongs to exactly one tier of the Makefile."""

from __future__ import annotations

import itertools
import re

from house import tree

TIERS = ("test", "test-rest", "test-exhaustive", "faults")
MARKERS = ("full", "exhaustive", "soak")


def recipe(target: str) -> str:
    makefile = (tree.ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert found is not None, f"The Makefile has no target '{target}'."
    return found[1]


def selection(target: str) -> str:
    """The marker expression that a target passes to pytest. It is also valid Python."""
    found = re.search(r"-m \"?((?:not |and |full|exhaustive|soak| )+)", recipe(target))
    assert found is not None, f"'make {target}' selects no tests by their markers."
    return found[1].strip()


def test_tiers_are_disjoint_and_complete() -> None:
    selections = [selection(target) for target in TIERS]
    for flags in itertools.product((False, True), repeat=len(MARKERS)):
        markers = dict(zip(MARKERS, flags, strict=True))
        chosen = [target for target, expression in zip(TIERS, selections, strict=True)
                  if eval(expression, {}, markers)]
        assert len(chosen) == 1, f"{markers}: {chosen}"


def test_tiers_select_from_all_folders() -> None:
    """The targets pass no paths, so that pytest collects all of `testpaths`."""
    for target in ("test", "test-rest", "test-exhaustive"):
        assert "tests/" not in recipe(target)
    settings = (tree.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'testpaths = ["tests", "examples"]' in settings
