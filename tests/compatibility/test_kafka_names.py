"""The compatibility table is true: every public member of Kafka Streams 4.3.0 has a row, and the
Python names of that row exist or are declared missing."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from inspect import isfunction
from pathlib import Path

import pytest

from compatibility import names
from compatibility.java_api import public_members, read_list
from compatibility.names import MISSING, Entry
from house import tree
from penstock.broker.jars import BROKER, STREAMS

TEXT = (tree.ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
#: Row -> (state, text) of the API tables; the tables of rules have other columns.
ROWS = {
    row: (state, text)
    for row, state, text in re.findall(
        r"^\| ([A-Z]\d+) \|[^|]*\| ([^|]*?) \| ?(.*?) ?\|$", TEXT, re.MULTILINE
    )
}
ENTRIES = names.entries()
SETTING_OR_FILE = re.compile(r"[a-z]+(\.[a-z]+)+")
#: Rows about behaviour, not about names.
WITHOUT_NAMES = {"I4", "Y9"}


def members_of(row: str) -> list[Entry]:
    return [entry for entry in ENTRIES if entry.row == row]


def test_every_public_member_of_kafka_streams_has_exactly_one_row() -> None:
    listed = {
        (java, member) for java, members in read_list().items() for member in members or ("",)
    }
    counted = Counter((entry.java, entry.member) for entry in ENTRIES)
    assert len(listed) > 900
    assert sorted(listed - counted.keys()) == [], "Add them to docs/kafka-names.toml."
    assert sorted(counted.keys() - listed) == [], "Kafka Streams has no such members."
    assert [each for each, times in counted.items() if times > 1] == []


def test_every_python_name_exists() -> None:
    wrong = [
        entry for entry in ENTRIES
        if entry.target != MISSING and not entry.target.startswith("- ")
        and not names.exists(entry.target)
    ]
    assert wrong == []


def test_every_python_name_of_a_row_without_members_exists() -> None:
    rows = names.read()["rows"]
    assert [(row, each) for row, found in rows.items() for each in found
            if not names.exists(each)] == []


def test_rows_of_the_names_and_of_the_table_are_the_same() -> None:
    named = {entry.row for entry in ENTRIES} - {"configuration"}
    assert named | names.read()["rows"].keys() | WITHOUT_NAMES == ROWS.keys()


@pytest.mark.parametrize("row", sorted(ROWS))
def test_state_of_the_row_follows_from_its_members(row: str) -> None:
    state, text = ROWS[row]
    members = members_of(row)
    missing = [entry for entry in members if entry.target == MISSING]
    if state == "yes":
        assert missing == [], "A row with missing members is 'partly'."
    elif state == "partly":
        silent = [
            entry for entry in missing
            if not any(part in text for part in (entry.member, *_class_names(entry.java)) if part)
        ]
        assert silent == [], "The row does not name these members."
    elif row not in WITHOUT_NAMES:
        assert [entry for entry in members if entry.target != MISSING] == []


def _class_names(java: str) -> list[str]:
    return [part for part in java.split(".") if part[0].isupper()]


def test_names_in_the_table_exist() -> None:
    unknown = {
        row: wrong for row, (state, text) in ROWS.items() if state in {"yes", "partly"}
        and (wrong := {
            word for code in re.findall(r"`([^`]+)`", text) if not SETTING_OR_FILE.fullmatch(code)
            for word in re.findall(r"[A-Za-z_]\w*", code) if word not in vocabulary()
        })
    }
    assert unknown == {}


def vocabulary() -> set[str]:
    """Every public name of penstock: classes, methods, parameters, modules."""
    if not _VOCABULARY:
        for module in names.MODULES:
            for name in module.__all__:
                _VOCABULARY.add(name)
                _add_members(getattr(module, name))
        _VOCABULARY.update(part for module in tree.modules() for part in module.split("."))
        _VOCABULARY.update(dir(builtins), keyword.kwlist)
    return _VOCABULARY


_VOCABULARY: set[str] = set()


def _add_members(found: object) -> None:
    if not isinstance(found, type):
        return
    for owner in found.__mro__:
        _VOCABULARY.update(getattr(owner, "__annotations__", ()))
        for name, member in vars(owner).items():
            _VOCABULARY.add(name)
            function = getattr(member, "__func__", member)
            if isfunction(function):
                _VOCABULARY.update(names.parameters(function))


def test_a_wrong_name_is_found() -> None:
    assert names.exists("KStream.filter_not")
    assert not names.exists("KStream.filter_nothing")
    assert not names.exists("KStreams")
    assert names.exists("KStream.join(grace=)")
    assert not names.exists("KStream.join(grease=)")
    assert names.exists("stores.WindowSupplier.retention_ms")


@pytest.mark.kafka
def test_committed_list_is_that_of_the_jars() -> None:
    listed = read_list()
    found = {
        **public_members(next(STREAMS.directory.glob("kafka-streams-4.3.0.jar"))),
        **public_members(next(Path(BROKER.directory).glob("kafka-clients-4.3.0.jar"))),
    }
    assert {java: members for java, members in listed.items() if java in found} == found
    # The test utilities are in a jar of their own, which the tests do not need.
    test_utilities = re.compile(r"Test(Input|Output)Topic|TopologyTestDriver|test\.|.*MockProc")
    assert [java for java in listed if java not in found and not test_utilities.match(java)] == []
