"""Texts and names are plain technical English."""

from __future__ import annotations

from pathlib import Path

import pytest

from house import language, tree

FOLDERS = sorted({path.relative_to(tree.ROOT).parts[0] for path in language.files()})


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_banned_phrasing(folder: str) -> None:
    assert [
        hit for path in language.files() if path.relative_to(tree.ROOT).parts[0] == folder
        for hit in language.hits(path)
    ] == []


def found(source: str, suffix: str = ".py") -> list[str]:
    return [
        match[0].strip()
        for text in language.paragraphs(source, Path("src", f"x{suffix}"))
        for ban in language.BANS
        for match in ban.pattern.finditer(text.text)
    ]


@pytest.mark.parametrize(("source", "suffix", "phrasings"), [
    ('"""Answers the offset."""\n', ".py", ["Answers"]),
    ("x = 1  # Who waits is told.\n", ".py", ["told", "Who"]),
    ("# The topic is not\n# there yet.\n", ".py", ["is not there"]),
    ('raise KeyError("The store was there, but it went on.")\n', ".py", ["was there", "went on"]),
    ("def test_what_is_lost_comes_back(): ...\n", ".py", ["comes back", "what"]),
    ("It takes some 50 ms.\n\nWhat is written stays.\n", ".md", ["some", "What"]),
    ("/* Nobody hears of it. */\n", ".c", ["Nobody", "hears"]),
])
def test_banned_phrasings_are_found(source: str, suffix: str, phrasings: list[str]) -> None:
    assert found(source, suffix) == phrasings


@pytest.mark.parametrize(("source", "suffix"), [
    ('"""Returns the offset, or None if there is none."""\n', ".py"),
    ("Is there a limit? What happens then?\n", ".md"),
    ("```\nanew\n```\nIt shows what was read.\n", ".md"),
    ('said = "told"\n', ".py"),
])
def test_plain_english_is_accepted(source: str, suffix: str) -> None:
    assert found(source, suffix) == []
