"""docs/configuration.md lists exactly the settings that exist, with their names and defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from penstock import StreamsConfig
from penstock.cli.environment import setting_name
from penstock.engine.lease import DEFAULT_TIMEOUT_MS
from penstock.engine.observe.metrics import OTLP_ENDPOINT
from penstock.engine.observe.otlp import INTERVAL_MS
from penstock.engine.plan.batch_size import BatchLimits
from penstock.properties import PROPERTY_OF
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
