"""The rows of a store in its changelog, found from the log alone.

An application describes its stores in the log at every start. A Java application does not: then the
options say what its stores are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from struct import Struct
from typing import NamedTuple

from pyspark.sql.types import (
    DataType,
    IntegerType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.engine.layout.internal_topics import changelog_topic
from penstock.engine.plan.task_records import read_task_records
from penstock.engine.spark.sources.formats import FORMATS, JSON
from penstock.engine.spark.sources.options import Options
from penstock.errors import ConfigException
from penstock.log.base import Log
from penstock.suggestions import did_you_mean, listed
from penstock.topology.application_info import ApplicationInfo, decode_application
from penstock.windows import MAX_TIME_MS

KEY_VALUE, WINDOW, SESSION, VERSIONED = "key_value", "window", "session", "versioned_key_value"
_WINDOW_TYPE = StructType([
    StructField("start", TimestampType()), StructField("end", TimestampType())
])
#: The stores that have no rows of keys and values.
_BUFFERS = ("suppress_buffer", "join_buffer", "custom")
#: The kind of a step of the Processor API.
_PROCESSOR = "processor"
_WINDOW_TAIL = Struct(">qI")
_SESSION_TAIL = Struct(">qq")
#: The end of the name of the topic that every application of penstock has.
_TASKS = "-tasks"
_OPTION_KINDS = ("key_value", "window", "session", "versioned")


class ChangelogKey(NamedTuple):
    """The key of a changelog record."""

    key: bytes
    start: int = -1
    #: None if the size of the window is unknown.
    end: int | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Where the rows of a store are, and their form."""

    name: str
    topic: str
    family: str
    #: Whether a row has a timestamp.
    timestamped: bool = False
    window_size_ms: int | None = None
    #: Whether several rows have the same key and window.
    duplicates: bool = False
    #: The group whose offsets say how far the store has processed its topic; None if the topic is
    #: a changelog, or the store is global.
    group: str | None = None
    key_format: str = "bytes"
    value_format: str = "bytes"
    #: Whether to return all versions of a versioned store.
    all_versions: bool = False
    #: Windows that are older than this, in the time of the partition, are expired.
    retention_ms: int | None = None

    def schema(self, key: DataType, value: DataType) -> StructType:
        """Return the columns of the store."""
        columns: dict[str, DataType] = {"key": key, **self.window_columns, "value": value}
        if self.family == VERSIONED:
            columns["valid_from"] = TimestampType()
            if self.all_versions:
                columns["valid_to"] = TimestampType()
        elif self.timestamped:
            columns["timestamp"] = TimestampType()
        return StructType([StructField(name, kind) for name, kind in columns.items()])

    @property
    def window_columns(self) -> dict[str, DataType]:
        """The columns of a changelog key, besides the key itself."""
        columns: dict[str, DataType] = {}
        if self.key_suffix:
            columns["window"] = _WINDOW_TYPE
        if self.duplicates:
            columns["sequence"] = IntegerType()
        return columns

    def split_key(self, data: bytes) -> ChangelogKey:
        """Split the key of a changelog record into the key and its window."""
        at = len(data) - self.key_suffix
        if self.family == WINDOW:
            start, sequence = _WINDOW_TAIL.unpack_from(data, at)
            size_ms = self.window_size_ms
            end = None if size_ms is None else min(start + size_ms, MAX_TIME_MS)
            return ChangelogKey(data[:at], start, end, sequence)
        if self.family == SESSION:
            end, start = _SESSION_TAIL.unpack_from(data, at)
            return ChangelogKey(data[:at], start, end)
        return ChangelogKey(data)

    @property
    def key_suffix(self) -> int:
        """The number of bytes of the window at the end of a changelog key."""
        return {WINDOW: 12, SESSION: 16}.get(self.family, 0)


def find_layout(log: Log, options: Options) -> StoreLayout:
    """Return the store that the options name, for its rows or for its changelog."""
    application = options.require("application", "orders")
    is_changelog = options.get("changelog") is not None
    name = options.require("changelog" if is_changelog else "store", "counts")
    described = read_task_records(log, application).application
    if described is not None:
        info = decode_application(described)
        stores = info.all_stores
        if name not in stores:
            raise ConfigException(
                f"Application '{application}' has no store '{name}'."
                f"{did_you_mean(name, stores)} Stores: {listed(sorted(stores))}."
            )
        if is_changelog and stores[name].kind in _BUFFERS:
            return StoreLayout(name, changelog_topic(application, name), KEY_VALUE)
        layout = layout_of(application, name, info)
    else:
        layout = _java_layout(log, application, name, options)
    versions = options.choice("versions", "latest", "all")
    return replace(
        layout, all_versions=versions == "all",
        retention_ms=options.integer("window.retention", layout.retention_ms),
    )


def application_layouts(
    log: Log, application: str, stores: Iterable[str], *, skip_unreadable: bool
) -> dict[str, StoreLayout]:
    """Return the layouts of stores of an application that has run on this log."""
    described = read_task_records(log, application).application
    if described is None:
        raise ConfigException(
            f"Application '{application}' has not run on this log yet, so its stores have no "
            "rows. Start it first."
        )
    info = decode_application(described)
    known = info.all_stores
    layouts = {}
    for name in stores:
        if name not in known:
            raise ConfigException(
                f"Application '{application}' had no store '{name}' when it last ran on this log. "
                f"Start it with the present topology. Stores: {listed(sorted(known))}."
            )
        try:
            layouts[name] = layout_of(application, name, info)
        except ConfigException:
            if not skip_unreadable:
                raise
    return layouts


def layout_of(application: str, name: str, described: ApplicationInfo) -> StoreLayout:
    """Return the layout of a store from the description of its application."""
    info = described.all_stores[name]
    if info.kind in _BUFFERS:
        raise ConfigException(
            f"Store '{name}' cannot be read as rows of keys and values: its kind is "
            f"{info.kind.replace('_', ' ')}. The option 'changelog' reads its changes as bytes."
        )
    if info.restored_from is None:
        raise ConfigException(
            f"Store '{name}' has no changelog, so its rows are not in the log. Only stores with "
            "logging can be read as data."
        )
    is_changelog = info.restored_from == changelog_topic(application, name)
    group = None if is_changelog or name in described.global_stores else application
    if not is_changelog and _PROCESSOR in {info.step_kind, info.role}:
        raise ConfigException(
            f"Store '{name}' is filled by a processor from topic '{info.restored_from}' and has no "
            "changelog. Read that topic."
        )
    key, value = (_default_format(each) for each in (*info.serdes, "", "")[:2])
    return StoreLayout(
        name, info.restored_from, info.family, "timestamped" in info.kind, info.window_size_ms,
        info.retain_duplicates, group, key, value,
    )


def _default_format(serde: str) -> str:
    """Return the format of a serde by its name."""
    if serde.startswith(f"{JSON}("):
        return JSON
    return serde if serde in FORMATS else "bytes"


def _java_layout(log: Log, application: str, name: str, options: Options) -> StoreLayout:
    topic = changelog_topic(application, name)
    topics = [each.name for each in log.topics()]
    if topic not in topics:
        changelogs = [
            each.removeprefix(f"{application}-").removesuffix("-changelog") for each in topics
            if each.startswith(f"{application}-") and each.endswith("-changelog")
        ]
        advice = f"{did_you_mean(name, changelogs)} Stores: {listed(changelogs)}."
        if not changelogs:
            known = sorted(each.removesuffix(_TASKS) for each in topics if each.endswith(_TASKS))
            advice = f"{did_you_mean(application, known)} Applications: {listed(known)}."
        raise ConfigException(
            f"Application '{application}' has no store '{name}' in this log.{advice}"
        )
    kind = options.choice("store.kind", *_OPTION_KINDS)
    size = options.integer("window.size")
    if kind == WINDOW and size is None:
        raise ConfigException(
            "The option 'window.size' is missing: the changelog of a window store does not hold "
            "the size of its windows. Set it in milliseconds."
        )
    family = VERSIONED if kind == "versioned" else kind
    return StoreLayout(name, topic, family, family == KEY_VALUE, size)
