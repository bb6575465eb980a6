"""Checks whether an application can keep its state after its topology has changed.

State is found by name: rows by the name of their store, offsets by topic, clocks and schedules by
the names of steps. A change is compatible if every name still means the same thing. The rules and
their reasons are in docs/decisions/2026-11-16-topology-changes.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.errors import TopologyException

#: Version of the encoding; increases when the meaning of a field changes.
FORMAT_VERSION = 1
#: The number in a generated name.
_NUMBER = re.compile(r"\d{10}")
#: Kinds of stores with the same changelog format.
_FAMILIES = ("versioned_key_value", "key_value", "window", "session")


@dataclass(frozen=True)
class StoreInfo:
    """The properties of a store that its changelog depends on. Serdes are not compared."""

    kind: str
    #: The number of tasks that hold a part of it.
    partitions: int
    #: The topic it is restored from; None if its rows are lost with the host.
    restored_from: str | None = None
    #: Of a window store; its rows contain only the start of a window.
    window_size_ms: int | None = None
    #: Of a window store; its keys then contain a sequence number.
    retain_duplicates: bool = False
    #: The first step that uses it.
    step: str = ""

    @property
    def family(self) -> str:
        """Stores of the same family can be restored from each other's changelogs."""
        return next((name for name in _FAMILIES if name in self.kind), self.kind)


@dataclass(frozen=True)
class GroupInfo:
    """A sub-topology. Topics have their full names, with the application id."""

    tasks: int
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class ApplicationInfo:
    """The parts of an application that its state in the log depends on. Stored in the log."""

    groups: Mapping[int, GroupInfo] = field(default_factory=dict)
    stores: Mapping[str, StoreInfo] = field(default_factory=dict)
    #: Internal topics that exist in the log and may hold unread records.
    through_log: tuple[str, ...] = ()
    format_version: int = FORMAT_VERSION

    def group_of(self, store: str) -> int | None:
        """Return the number of the sub-topology that uses a store."""
        return next((n for n, group in self.groups.items() if store in group.stores), None)

    def origins(self, group: int) -> frozenset[str]:
        """Return the external topics upstream of a sub-topology, across repartitions."""
        topics: set[str] = set()
        visited: set[int] = set()
        pending = [group]
        while pending:
            number = pending.pop()
            if number in visited:
                continue
            visited.add(number)
            for topic in self.groups[number].reads:
                writers = [n for n, each in self.groups.items() if topic in each.writes]
                pending += writers
                if not writers:
                    topics.add(topic)
        return frozenset(topics)


@dataclass(frozen=True)
class CompatibilityReport:
    """The result of comparing an application with an earlier version of it."""

    #: Incompatible changes. Each message has the fact, the reason and the advice.
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    #: Sub-topology -> the earlier sub-topologies whose state it continues from.
    predecessors: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(ApplicationInfo).decode


def encode_application(application: ApplicationInfo) -> bytes:
    """Encode deterministically: equal applications have equal bytes."""
    return _encode(msgspec.to_builtins(application, str_keys=True))


def decode_application(data: bytes) -> ApplicationInfo:
    """Decode; raise `TopologyException` if the format is newer or unreadable."""
    try:
        version = msgspec.json.decode(data).get("format_version", 0)
        if version > FORMAT_VERSION:
            raise TopologyException(
                "The application was last run by a newer version of penstock. "
                f"Its description has format {version}; this version supports {FORMAT_VERSION}. "
                "Upgrade penstock."
            )
        return _decode(data)
    except (msgspec.MsgspecError, AttributeError) as error:
        raise TopologyException(
            f"The stored description of the application cannot be read: {error}. "
            "Reset the application with 'penstock reset'."
        ) from error


def compare(
    old: ApplicationInfo, new: ApplicationInfo, changelog_of: Callable[[str], str]
) -> CompatibilityReport:
    """Check whether the new application can continue with the state of the old one.

    `changelog_of` returns the name of a store's changelog topic.
    """
    common = old.stores.keys() & new.stores.keys()
    removed = sorted(old.stores.keys() - new.stores.keys())
    added = sorted(new.stores.keys() - old.stores.keys())
    errors: list[str] = []
    for name in sorted(common):
        errors += _store_errors(name, old, new)
    renumbered = _find_renumbered(removed, added)
    errors += [
        f"Store '{name}' was removed, and '{other}' was added. Generated numbers change when steps "
        f"are added or removed; the rows of the store would be lost. Give the step its old store "
        f"name: store='{name}'."
        for name, other in renumbered.items()
    ]
    renamed = _find_renamed(
        [name for name in removed if name not in renumbered
         and old.stores[name].restored_from == changelog_of(name)],
        [name for name in added if name not in renumbered.values()], old, new,
    )
    errors += [
        f"Store '{name}' was removed, and a similar store '{other}' was added. Rows do not move to "
        f"a store with another name; they would be lost. Leave the store without a name, or give "
        f"its old one: store='{name}'. If '{other}' belongs to another step, start the application "
        "once without it."
        for name, other in renamed.items()
    ]
    warnings = [
        f"Store '{name}' is no longer used. Its rows remain in '{topic}'. Remove them with "
        f"'penstock topics delete {topic}'."
        for name in removed
        if name not in renumbered and name not in renamed
        and (topic := old.stores[name].restored_from) == changelog_of(name)
    ]
    warnings += [
        f"Store '{name}' now has a changelog. Rows written before are not in it."
        for name in sorted(common)
        if old.stores[name].restored_from is None and new.stores[name].restored_from is not None
    ]
    return CompatibilityReport(tuple(errors), tuple(warnings), _find_predecessors(old, new))


def _store_errors(name: str, old: ApplicationInfo, new: ApplicationInfo) -> Iterable[str]:
    """Yield the reasons why the rows of a store cannot be used any longer."""
    before, after = old.stores[name], new.stores[name]
    rename = "Rename the store to start with an empty one."
    if before.family != after.family:
        yield (
            f"Store '{name}' was a {_readable(before.kind)} store and is now a "
            f"{_readable(after.kind)} store. It cannot read the existing rows. {rename}"
        )
        return
    if before.window_size_ms != after.window_size_ms:
        yield (
            f"The window size of store '{name}' was {before.window_size_ms} ms and is now "
            f"{after.window_size_ms} ms. Rows contain only the start of a window, so results of "
            f"the old windows would appear in the new ones. {rename}"
        )
    if before.retain_duplicates != after.retain_duplicates:
        change = "now retains" if after.retain_duplicates else "no longer retains"
        yield f"Store '{name}' {change} duplicates. The keys have another format. {rename}"
    if before.restored_from is not None and before.restored_from != after.restored_from:
        yield (
            f"Store '{name}' was restored from '{before.restored_from}' and would now be restored "
            f"from {_topic(after.restored_from)}, which does not contain its rows. Restore its "
            f"settings for logging and 'reuse.ktable.source.topics'. {rename}"
        )
    if before.restored_from is not None and before.partitions != after.partitions:
        yield (
            f"Store '{name}' had {before.partitions} partitions and would now have "
            f"{after.partitions}. Keys would map to other partitions than their rows. "
            f"{_explain_partitions(name, old, new)}{rename}"
        )
    yield from _origin_errors(name, old, new)


def _origin_errors(name: str, old: ApplicationInfo, new: ApplicationInfo) -> Iterable[str]:
    """Yield an error if a generated name now belongs to another step."""
    groups = old.group_of(name), new.group_of(name)
    if not _NUMBER.search(name) or groups[0] is None or groups[1] is None:
        return
    before, after = old.origins(groups[0]), new.origins(groups[1])
    if before and after and before.isdisjoint(after):
        yield (
            f"Store '{name}' was computed from {_quoted(before)} and is now computed from "
            f"{_quoted(after)}. Generated numbers change when steps are added or removed, so this "
            "is probably another store. Name the store of the step with store=."
        )


def _explain_partitions(name: str, old: ApplicationInfo, new: ApplicationInfo) -> str:
    groups = old.group_of(name), new.group_of(name)
    if groups[0] is None or groups[1] is None:
        return ""
    before, after = old.groups[groups[0]].reads, new.groups[groups[1]].reads
    if before == after:
        return f"The partition count of {_quoted(after)} has changed. "
    return f"It now reads {_quoted(after)}. "


def _find_renumbered(removed: list[str], added: list[str]) -> dict[str, str]:
    """Map removed stores to added ones whose names differ only in the number."""
    renumbered = {}
    candidates = list(added)
    for name in removed:
        if not _NUMBER.search(name):
            continue
        pattern = _NUMBER.sub("#", name)
        for other in candidates:
            if _NUMBER.sub("#", other) == pattern:
                renumbered[name] = other
                candidates.remove(other)
                break
    return renumbered


def _find_renamed(
    removed: list[str], added: list[str], old: ApplicationInfo, new: ApplicationInfo
) -> dict[str, str]:
    """Map removed stores with generated names to added ones with names, if the step is the same."""
    renamed = {}
    candidates = [name for name in added if not _NUMBER.search(name)]
    for name in removed:
        if not _NUMBER.search(name):
            continue
        for other in candidates:
            if _same_step(name, other, old, new):
                renamed[name] = other
                candidates.remove(other)
                break
    return renamed


def _same_step(name: str, other: str, old: ApplicationInfo, new: ApplicationInfo) -> bool:
    """Return whether two stores probably belong to the same step."""
    before, after = old.stores[name], new.stores[other]
    groups = old.group_of(name), new.group_of(other)
    if groups[0] is None or groups[1] is None:
        return False
    return (
        (before.family, before.window_size_ms, before.retain_duplicates)
        == (after.family, after.window_size_ms, after.retain_duplicates)
        # A step with a new name had none before.
        and (
            _NUMBER.sub("#", before.step) == _NUMBER.sub("#", after.step)
            or (bool(_NUMBER.search(before.step)) and not _NUMBER.search(after.step))
        )
        and old.origins(groups[0]) == new.origins(groups[1])
    )


def _find_predecessors(old: ApplicationInfo, new: ApplicationInfo) -> dict[int, tuple[int, ...]]:
    """Map each sub-topology to those that had its stores or, without any, its topics."""
    predecessors = {}
    for number, group in new.groups.items():
        before = {at for store in group.stores if (at := old.group_of(store)) is not None}
        if not before:
            before = {
                at for at, each in old.groups.items() if not set(each.reads).isdisjoint(group.reads)
            }
        predecessors[number] = tuple(sorted(before))
    return predecessors


def _readable(kind: str) -> str:
    return kind.replace("_", " ")


def _topic(name: str | None) -> str:
    return "nothing" if name is None else f"'{name}'"


def _quoted(topics: Iterable[str]) -> str:
    return ", ".join(f"'{topic}'" for topic in sorted(topics))
