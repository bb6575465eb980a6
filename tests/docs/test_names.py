"""Commands, options and settings that the documentation names exist."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from penstock import StreamsConfig
from penstock.cli.main import build_parser
from penstock.clients.setting_names import EFFECTIVE
from penstock.properties import PROPERTY_OF
from penstock.setting_effects import (
    CONNECTION_SETTINGS,
    LIST_SERDE_SETTINGS,
    NO_EFFECT,
    OTHER_SETTINGS,
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([
    ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md"),
])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"(?:^|[|(&] *)(?:\$ )?(?:\.venv/bin/)?(penstock [^|\n&>()<]*)", re.MULTILINE
)
INLINE = re.compile(r"`(penstock [^`]+)`")
NAME = re.compile(r"`((?:[a-z_]+\.)+[a-z_]+)(?:=[^`]*)?`")
#: Settings of brokers, of Kafka's consumer and of the data source, loggers and modules.
NO_SETTINGS = re.compile(
    r"auto\.create\.topics\.enable|max\.poll\.interval\.ms|window\.(?:size|retention)"
    r"|penstock\.(?:stores|testing|clients|kafka)"
)
FILES = (
    ".svg", ".py", ".md", ".json", ".toml", ".yaml", ".db", ".txt", ".log", ".properties",
    ".service",
)
SETTINGS = {
    *(PROPERTY_OF.get(each.name, each.name.replace("_", ".")) for each in fields(StreamsConfig)),
    *CONNECTION_SETTINGS, *LIST_SERDE_SETTINGS, *NO_EFFECT, *OTHER_SETTINGS,
}


def commands(text: str) -> Iterator[str]:
    """Yield the `penstock` command lines of a page, each up to a pipe or a redirection."""
    for language, block in FENCE.findall(text):
        if language in {"", "sh", "console"}:
            yield from COMMAND.findall(re.sub(r"\\\n>? *", " ", block))
    for found in INLINE.findall(FENCE.sub("", text)):
        yield found.partition("|")[0]


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the command, and its arguments."""
    parser: argparse.ArgumentParser = build_parser()
    for count, word in enumerate(words, 1):
        choices = next(
            (action.choices for action in parser._actions
             if isinstance(action, argparse._SubParsersAction)), None
        )
        if choices is None or word.startswith("-"):
            return parser, words[count - 1:]
        assert word in choices, f"'penstock {' '.join(words)}': no command '{word}'."
        parser = choices[word]
    return parser, []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    for command in commands(page.read_text(encoding="utf-8")):
        words = shlex.split(command.replace("'", "").replace('"', ""))[1:]
        # `penstock demo NAME` passes its options on to the program of the example.
        if words and words[0] in {"...", "COMMAND", "demo"}:
            continue
        parser, arguments = parser_of(words)
        options = {option.partition("=")[0] for option in arguments if option.startswith("--")}
        assert options <= set(parser._option_string_actions), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_exist(page: Path) -> None:
    """A name in code whose first part is that of a setting is a setting."""
    settings = SETTINGS | EFFECTIVE if page.name == "clients.md" else SETTINGS
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    starts = {name.partition(".")[0] for name in SETTINGS if "." in name} - {"log"}
    unknown = {
        name for name in NAME.findall(text)
        if name.partition(".")[0] in starts and name not in settings
        and not name.endswith(FILES) and not NO_SETTINGS.match(name)
    }
    assert sorted(unknown) == []
