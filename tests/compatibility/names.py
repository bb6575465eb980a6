"""Reads docs/kafka-names.toml: which Python name implements which member of Kafka Streams."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import tomllib
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import penstock
import penstock.clients
import penstock.stores
import penstock.testing
from compatibility.java_api import read_list
from house import tree

FILE = tree.ROOT / "docs" / "kafka-names.toml"
MODULES = (penstock, penstock.testing, penstock.stores, penstock.clients)
MISSING = "missing"
SAME = "same"
_TARGET = re.compile(r"(?P<name>[\w.]+)(?:\((?P<parameters>[\w=, ]+)\))?")


class Entry(NamedTuple):
    """A member of a Java class, the row that it belongs to, and its Python name."""

    java: str
    member: str
    row: str
    #: A Python name, "- reason", or "missing".
    target: str


def read() -> dict[str, Any]:
    """Return the content of the file."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def entries() -> list[Entry]:
    """Return an entry for each member that the file names; those of "*" are expanded."""
    tables = read()
    del tables["rows"]
    members = read_list()
    return [
        entry for java, table in tables.items()
        for entry in _class_entries(java, table, members.get(java, ()))
    ]


def _class_entries(
    java: str, table: dict[str, Any], members: tuple[str, ...]
) -> Iterator[Entry]:
    cls = table.get("python", java.rpartition(".")[2])
    rows = {row: _by_member(value) for row, value in table.items() if row != "python"}
    named = {member for row in rows.values() for member in row}
    rest = [member for member in members if member not in named]
    for row, by_member in rows.items():
        for member, target in by_member.items():
            for each in rest if member == "*" else (member,):
                full = python_name(cls, each) if target == SAME else target
                yield Entry(java, each, row, full)
        if not by_member or not members:
            yield Entry(java, "", row, next(iter(by_member.values()), cls))


def _by_member(value: str | dict[str, str]) -> dict[str, str]:
    return dict.fromkeys(value.split(), SAME) if isinstance(value, str) else value


def python_name(cls: str, member: str) -> str:
    """Return the Python name of a member of a class: snake_case, without "get"."""
    if member == "new":
        return cls
    name = snake_case(member)
    if not exists(f"{cls}.{name}") and name.startswith("get_"):
        name = name.removeprefix("get_")
    return f"{cls}.{name}"


def snake_case(name: str) -> str:
    """Return a Java name in Python's form; constants stay as they are."""
    return name if name.isupper() else re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def exists(target: str) -> bool:
    """Whether penstock has the class or function, and its parameters."""
    found = _TARGET.fullmatch(target)
    if found is None:
        raise ValueError(f"{FILE.name} has an entry of unknown form: {target!r}")
    names = [each.strip().removesuffix("=") for each in (found["parameters"] or "").split(",")]
    try:
        owner = _resolve(found["name"])
    except (AttributeError, ModuleNotFoundError):
        return False
    return set(filter(None, names)) <= (parameters(owner) if found["parameters"] else set(names))


def _resolve(name: str) -> Any:
    parts = name.split(".")
    for module in MODULES:
        if parts[0] in module.__all__:
            return _attribute(module, parts)
    for length in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(("penstock", *parts[:length])))
        except ModuleNotFoundError:
            continue
        return _attribute(module, parts[length:])
    raise ModuleNotFoundError(name)


def _attribute(owner: Any, parts: list[str]) -> Any:
    for part in parts:
        annotations = {
            name for each in getattr(owner, "__mro__", ()) for name in inspect.get_annotations(each)
        }
        owner = None if part in annotations and not hasattr(owner, part) else getattr(owner, part)
    return owner


def parameters(function: Any) -> set[str]:
    """Return the parameters of a function, of its overloads, and of the options they unpack."""
    if isinstance(function, type):
        fields = {each.name for each in dataclasses.fields(function)} if (
            dataclasses.is_dataclass(function)
        ) else set()
        return fields | set(inspect.signature(function).parameters)
    found: set[str] = set()
    for each in (function, *typing.get_overloads(function)):
        for parameter in inspect.signature(each).parameters.values():
            found.add(parameter.name)
            if parameter.kind is parameter.VAR_KEYWORD:
                unpacked = re.search(r"Unpack\[(\w+)\]", str(parameter.annotation))
                if unpacked is not None:
                    found |= set(each.__globals__[unpacked[1]].__annotations__)
    return found
