"""CONTRIBUTING.md names files, make targets and names in code that exist."""

from __future__ import annotations

import re

from house import tree

TEXT = (tree.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: Paths from the root, in code spans and links. NAME stands for a name that the reader chooses.
PATH = re.compile(r"[`(]((?:[\w.-]+/)*[\w.-]+(?:\.(?:py|md|c|java|toml)|/))[`)]")


def test_every_path_exists() -> None:
    paths = [path for path in PATH.findall(TEXT) if "NAME" not in path]
    assert len(paths) > 50
    assert [path for path in paths if not (tree.ROOT / path).exists()] == []


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"`make ([\w-]+)`", TEXT)) - {"test-all"}
    makefile = (tree.ROOT / "Makefile").read_text(encoding="utf-8")
    defined = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    assert "test" in targets
    assert sorted(targets - defined) == []


def test_names_in_code_exist_in_the_file_that_is_named_with_them() -> None:
    named = re.findall(
        r"`([A-Za-z_.]+)`(?:\s+(?:in|of|from)|\s+\()\s*`((?:src|tests)/[\w/]+\.py)`", TEXT
    )
    assert len(named) > 10
    missing = [
        f"{name} in {path}" for name, path in named
        if name.rpartition(".")[2] not in (tree.ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []
