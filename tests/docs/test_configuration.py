"""docs/configuration.md lists exactly the settings that exist, with their names and defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsConfig
from penstock.cli.environment import setting_name
from penstock.config import _MINIMUMS
from penstock.engine.lease import DEFAULT_TIMEOUT_MS
from penstock.engine.observe.metrics import OTLP_ENDPOINT
from penstock.engine.observe.otlp import INTERVAL_MS
from penstock.engine.plan.batch_size import BatchLimits
from penstock.errors import ConfigException
from penstock.properties import BOOLEANS, PROPERTY_OF
from penstock.setting_effects import (
    CONNECTION_PREFIXES,
    CONNECTION_SETTINGS,
    LIST_SERDE_SETTINGS,
    NO_EFFECT,
    OTHER_SETTINGS,
)

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
FIELDS = {each.name: each for each in fields(StreamsConfig) if each.name != "extra"}
#: Described in the text: the log, and settings of connections.
ELSEWHERE = {"bootstrap.servers", "security.protocol"}
WORDS = {"not set": None, "empty": "", "none": frozenset(), "required": MISSING}


def rows() -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names and the other columns of each setting."""
    for line in PAGE.splitlines():
        if line.startswith("| `") and "PENSTOCK_SET_" in line:
            first, *others = line.strip("| ").split(" | ")
            yield re.findall(r"`([^`]+)`", first), others


def default_of(text: str) -> Any:
    return WORDS[text] if text in WORDS else text.strip("`")


def as_text(field: Field[Any]) -> Any:
    value = field.default
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def test_every_setting_has_a_row_with_its_default() -> None:
    shown = {names[1]: default_of(others[1]) for names, others in rows() if len(names) == 3}
    assert shown == {name: as_text(field) for name, field in FIELDS.items()}


def comments() -> dict[str, str]:
    """Return the comment of each field of `StreamsConfig`."""
    found: dict[str, str] = {}
    lines: list[str] = []
    for line in inspect.getsource(StreamsConfig).splitlines():
        if line.startswith("    #: "):
            lines.append(line.removeprefix("    #: "))
        elif field := re.match(r"    (\w+): ", line):
            found[field[1]] = " ".join(lines)
            lines = []
    return {name: text for name, text in found.items() if name in FIELDS}


def plain(text: str) -> str:
    return text.replace("`", "").replace("_", ".").lower()


def test_meanings_are_those_of_the_code() -> None:
    """A meaning starts with the comment of its field, or is the reason for having no effect."""
    shown = {names[1]: others[3] for names, others in rows() if len(names) == 3}
    for name, comment in comments().items():
        no_effect = NO_EFFECT.get(name.replace("_", "."))
        expected = f"*no effect*: {no_effect.reason}" if no_effect else comment.rstrip(".")
        assert expected, name
        assert plain(shown[name]).startswith(plain(expected)), name


def expected_type(name: str) -> str | None:
    """Return the type that the code enforces, or None for settings with names or objects."""
    default, minimum = FIELDS[name].default, _MINIMUMS.get(name)
    if name.endswith("_ms"):
        kind = "milliseconds"
    elif name.endswith("_bytes"):
        kind = "bytes"
    elif name in BOOLEANS:
        return "boolean"
    elif isinstance(default, int):
        kind = "integer"
    else:
        return None
    return f"{kind}, at least {minimum}" if minimum else kind


def test_types_are_those_of_the_code() -> None:
    shown = {names[1]: others[0] for names, others in rows() if len(names) == 3}
    enforced = {name: kind for name in FIELDS if (kind := expected_type(name))}
    assert len(enforced) >= 15
    assert {name: shown[name] for name in enforced} == enforced
    others = {name: kind for name, kind in shown.items() if name not in enforced}
    assert [kind for kind in others.values()
            if kind.startswith(("integer", "milliseconds", "bytes", "boolean"))] == []


def test_choices_are_those_of_the_code() -> None:
    """Every value that the page names is accepted, and no other one is."""
    for names, others in rows():
        values = re.findall(r"`([^`]+)`", others[0])
        if len(names) == 3 and re.fullmatch(r"`[^`]+`(?:, `[^`]+`)* or `[^`]+`", others[0]):
            for value in values:
                StreamsConfig(**{"application_id": "page", names[1]: value})
            with pytest.raises(ConfigException, match=", ".join(values)):
                StreamsConfig(**{"application_id": "page", names[1]: "other"})


def test_other_settings_have_a_row() -> None:
    shown = [names[0] for names, _ in rows() if len(names) == 2]
    assert len(shown) == len(set(shown))
    types = {name for name in LIST_SERDE_SETTINGS if name.endswith(".type")}
    assert set(shown) == (
        (OTHER_SETTINGS | LIST_SERDE_SETTINGS | {OTLP_ENDPOINT, INTERVAL_MS}) - ELSEWHERE - types
    )


def test_defaults_of_other_settings_are_those_of_the_code() -> None:
    shown = {names[0]: default_of(others[1]) for names, others in rows()}
    limits = BatchLimits()
    assert shown["penstock.batch.max.records"] == str(limits.max_records)
    assert shown["penstock.batch.max.bytes"] == str(limits.max_bytes)
    assert shown["penstock.batch.target.ms"] == str(limits.target_ms)
    assert shown["session.timeout.ms"] == str(DEFAULT_TIMEOUT_MS)


def test_names_of_a_setting_belong_together() -> None:
    for names, _ in rows():
        if len(names) == 3:
            assert PROPERTY_OF.get(names[1], names[1].replace("_", ".")) == names[0]
        assert setting_name(names[-1]) == names[0]


def test_settings_without_an_effect_are_listed_with_the_reason() -> None:
    text = PAGE.partition("## Settings without an effect")[2]
    listed = dict(re.findall(r"^\| `([\w.]+)` \| (.+) \|$", text.partition("## ")[0], re.MULTILINE))
    assert listed == {name: each.reason for name, each in NO_EFFECT.items()}
    marked = {names[0] for names, others in rows() if others[3].startswith("*no effect*")}
    assert marked == {names[0] for names, _ in rows()} & set(NO_EFFECT)


def test_connection_settings_are_listed() -> None:
    text = PAGE.partition("## Settings with a prefix")[2].partition("## ")[0]
    assert {*CONNECTION_SETTINGS, *CONNECTION_PREFIXES} <= set(re.findall(r"`([^`]+)`", text))
