"""Words that must not occur in any file: machine paths, registries, open tasks."""

from __future__ import annotations

import re

from house import tree

MACHINE_PATHS = re.compile(
    "|".join(rf"(?<![\w.])/{place}/" for place in ("home", "root", "Users", "work", "opt"))
)
REGISTRY_HOSTS = re.compile(
    "|".join((
        r"index-url", r"extra-index", r"trusted-host", r"--find-links",
        r"pypi\." + r"org/simple", r"files\.python" + r"hosted", r"repo1?\.maven" + r"\.",
        r"registry\." + r"npmjs", r"artifact" + r"ory", r"nexus\.",
    ))
)
LEFT_BEHIND = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
#: Data files.
NOT_OURS = {".jsonl", ".lock", ".png", ".svg", ".gz", ".parquet", ".ico", ".woff2"}


def offenders(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tree.tracked_files():
        if path.suffix in NOT_OURS or path.name == "LICENSE":
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        if path.name == "test_words.py":
            continue
        name = path.relative_to(tree.ROOT)
        found += [f"{name}:{n}: {hit[0]}" for n, line in enumerate(lines, 1)
                  if (hit := pattern.search(line))]
    return found


def test_no_file_names_a_path_of_this_machine() -> None:
    assert offenders(MACHINE_PATHS) == []


def test_no_file_names_a_package_registry() -> None:
    assert offenders(REGISTRY_HOSTS) == []


def test_no_file_has_an_open_task() -> None:
    assert offenders(LEFT_BEHIND) == []
