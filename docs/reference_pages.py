"""Generates the pages of the API reference for mkdocs: one per theme, and one of Kafka's names.

The public names are those that the packages export. mkdocstrings finds their docstrings in the
modules that define them; the headings show the names to import.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

#: Page -> (title, the start of the modules whose names it lists); the first match wins.
PAGES = {
    "dsl": ("Streams and tables", ("penstock.dsl",)),
    "windows": ("Windows", ("penstock.windows",)),
    "processors": ("Processors and records", (
        "penstock.processors", "penstock.record", "penstock.timestamps", "penstock.metrics",
    )),
    "topology": ("Topologies", ("penstock.topology",)),
    "stores": ("Stores", ("penstock.stores",)),
    "serdes": ("Serdes", ("penstock.serdes",)),
    "application": ("Applications", ("penstock.app", "penstock.config", "penstock.engine")),
    "queries": ("Queries", ("penstock.queries",)),
    "errors": ("Errors and handlers", ("penstock.errors", "penstock.handlers")),
    "testing": ("Tests", ("penstock.testing",)),
    "clients": ("Clients", ("penstock.clients",)),
}
#: The names that a page starts with; the others follow in alphabetical order.
FIRST = (
    "StreamsBuilder", "KStream", "KTable", "GlobalKTable", "KGroupedStream", "KGroupedTable",
    "Materialized", "Suppressed", "TimeWindows", "SlidingWindows", "SessionWindows", "JoinWindows",
    "Processor", "ProcessorContext", "Record", "Topology", "Stores", "KeyValueStore", "WindowStore",
    "Serdes", "Serde", "Streams", "StreamsConfig", "State", "StateQueryRequest", "KeyQuery",
    "RangeQuery", "StreamsException", "TopologyTestDriver", "TestInputTopic", "TestOutputTopic",
    "TestRecord", "Producer", "Consumer", "AdminClient",
)
PACKAGES = ("penstock", "penstock.stores", "penstock.testing", "penstock.clients")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages. mkdocs calls this."""
    for path, text in pages(Path(config.docs_dir)).items():
        files.append(File.generated(config, path, content=text))
    return files


def pages(docs: Path) -> dict[str, str]:
    """Return path -> text of each page."""
    found = {
        f"reference/{page}.md": f"# {title}\n\n" + "".join(
            f"::: {name}\n    options:\n      heading: {public}\n"
            f"      toc_label: {_last_part(public)}\n\n"
            for name, public in sorted(public_names(modules).items(), key=_importance)
        )
        for page, (title, modules) in PAGES.items()
    }
    found["reference/kafka-names.md"] = kafka_names(docs / "kafka-names.toml")
    found["reference/index.md"] = _index()
    return found


def _index() -> str:
    lines = [
        "# API reference", "",
        "The names are exported by `penstock`, unless they are shown with another package.", "",
        "| page | names |", "|---|---|",
    ]
    for page, (title, modules) in PAGES.items():
        names = sorted(public_names(modules).items(), key=_importance)
        lines.append(f"| [{title}]({page}.md) | {', '.join(_link(*name) for name in names)} |")
    lines.append("| [Kafka Streams' names](kafka-names.md) | Java names and their Python names |")
    return "\n".join(lines) + "\n"


def _link(name: str, public: str) -> str:
    """A link to the documentation of a name; mkdocstrings resolves it."""
    return f"[`{public.removeprefix('penstock.')}`][{name}]"


def public_names(modules: tuple[str, ...]) -> dict[str, str]:
    """Return the objects that are defined in the modules: full name -> name to import."""
    found: dict[str, str] = {}
    for name, public in _all_names():
        # An object may be exported by several packages, and under a second name.
        is_alias = _last_part(name) != _last_part(public)
        if name.startswith(modules) and not is_alias:
            found.setdefault(name, public)
    return found


def _all_names() -> Iterator[tuple[str, str]]:
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            each = getattr(package, name)
            module = str(getattr(each, "__module__", ""))
            if module.startswith("penstock.") and hasattr(each, "__qualname__"):
                yield f"{module}.{each.__qualname__}", f"{package.__name__}.{name}"


def _importance(item: tuple[str, str]) -> tuple[int, str]:
    name = _last_part(item[1])
    return FIRST.index(name) if name in FIRST else len(FIRST), name


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def kafka_names(path: Path) -> str:
    """Return a table of Kafka's classes and members and their Python names."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    del tables["rows"]
    lines = [
        "# Kafka Streams' names", "",
        "Members without an entry have the same name in Python, in snake_case.", "",
        "| Kafka Streams | row | Python |", "|---|---|---|",
    ]
    for java, table in sorted(tables.items()):
        lines += _kafka_rows(java, table)
    return "\n".join(lines) + "\n"


def _kafka_rows(java: str, table: dict[str, Any]) -> Iterator[str]:
    cls = table.get("python", java.rpartition(".")[2])
    for row, value in table.items():
        if row == "python":
            continue
        if isinstance(value, str):
            members = "all members" if value == "*" else value or "the class"
            yield f"| {java}: {members} | {row} | `{cls}`, the same names |"
        else:
            for member, target in value.items():
                is_text = target.startswith(("- ", "missing", "same"))
                shown = target.removeprefix("- ") if is_text else f"`{target}`"
                which = "other members" if member == "*" else member
                yield f"| {java}: {which} | {row} | {shown} |"
