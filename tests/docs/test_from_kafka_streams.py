"""The tables of docs/from-kafka-streams.md name what exists, and rows of docs/compatibility.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import penstock
import penstock.testing
from docs.pages import DOCS

PAGE = (DOCS / "from-kafka-streams.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
#: Functions that the reader writes, and a method of the result of `StateQueryRequest.in_store`.
OTHERS = {"function", "with_query"}


def rows() -> list[tuple[str, str, str]]:
    return [(java, python, last) for java, python, last in ROW.findall(PAGE) if java != "---"]


def public_objects() -> Iterator[Any]:
    for module in (penstock, penstock.testing):
        for name in module.__all__:
            yield getattr(module, name)


def members() -> Iterator[tuple[str, Any]]:
    for each in public_objects():
        yield getattr(each, "__name__", ""), each
        # `dir` leaves out the methods of an enum.
        names = {*dir(each), *getattr(each, "__dict__", ())}
        yield from ((name, getattr(each, name, None)) for name in names)


def parameters(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def test_python_names_and_arguments_exist() -> None:
    known = dict(members())
    arguments = {name for _, each in members() if callable(each) for name in parameters(each)}
    codes = [
        code for java, python, _ in rows() if not java.startswith(("difference", "setting"))
        for code in re.findall(r"`([^`]+)`", python) if "penstock " not in code
    ]
    assert len(codes) > 100
    named = {name for code in codes for name in re.findall(r"\b([A-Za-z_]+)\(", code)}
    named |= {code for code in codes if re.fullmatch(r"[a-z]+(?:_[a-z]+)+", code)}
    assert sorted(named - set(known) - OTHERS) == []
    given = {name for code in codes for name in re.findall(r"\b([a-z_]+)=", code)}
    assert sorted(given - arguments) == []


def test_rows_of_the_compatibility_page_exist() -> None:
    text = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    exist = set(re.findall(r"^\| ([A-Z]\d+)\b", text, re.MULTILINE))
    named = {each for *_, last in rows() for each in re.findall(r"\b([A-Z]\d+)\b", last)}
    assert len(named) > 60
    assert sorted(named - exist) == []
