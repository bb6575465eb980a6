"""Which changes of a topology an application with existing state accepts, and which it refuses.

Whatever an application has kept is found again by name: rows by the name of their store, offsets
by topic, clocks and schedules by the names of steps. So a change is harmless as long as every name
still stands for the same thing; this is where that is checked. The rules, and why, are in
docs/decisions/2026-11-16-topology-changes.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.errors import TopologyException

#: Grows when the meaning of a field changes.
FORMAT_VERSION = 1
#: A number that a topology gave to a step which has no name.
_NUMBER = re.compile(r"\d{10}")
#: Kinds of stores whose changelogs look the same.
_FAMILIES = ("versioned_key_value", "key_value", "window", "session")


@dataclass(frozen=True)
class StoreInfo:
    """A store as far as its changelog knows it; serdes and functions are not in it."""

    kind: str
    #: How many tasks have a part of it.
    partitions: int
    #: The topic that its rows can be had from again; None: they are lost with the host.
    restored_from: str | None = None
    #: Of a window store: rows are known by the start of a window only.
    window_size_ms: int | None = None
    #: Of a window store: rows have a number in their keys.
    retain_duplicates: bool = False
    #: The first step that uses it.
    step: str = ""

    @property
    def family(self) -> str:
        """Stores of one family can be restored from each other's changelogs."""
        return next((name for name in _FAMILIES if name in self.kind), self.kind)


@dataclass(frozen=True)
class GroupInfo:
    """A sub-topology. Topics have their real names."""

    tasks: int
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class ApplicationInfo:
    """What an application looks like to the log it runs on."""

    groups: Mapping[int, GroupInfo] = field(default_factory=dict)
    stores: Mapping[str, StoreInfo] = field(default_factory=dict)
    #: Internal topics that exist in the log and may hold records nobody has read yet.
    through_log: tuple[str, ...] = ()
    format_version: int = FORMAT_VERSION

    def group_of(self, store: str) -> int | None:
        """The sub-topology that uses a store."""
        return next((n for n, group in self.groups.items() if store in group.stores), None)

    def origins(self, group: int) -> frozenset[str]:
        """The topics that records of a sub-topology come from, behind its own repartitions."""
        found: set[str] = set()
        seen: set[int] = set()
        waiting = [group]
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            for topic in self.groups[number].reads:
                senders = [n for n, each in self.groups.items() if topic in each.writes]
                waiting += senders
                if not senders:
                    found.add(topic)
        return frozenset(found)


@dataclass(frozen=True)
class CompatibilityReport:
    """What one application means for the state of an earlier one."""

    #: Each says what cannot be, why, and what else could be done.
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    #: Sub-topology -> those of the earlier application that it goes on from. Mostly itself.
    continues: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(ApplicationInfo).decode


def encode_application(application: ApplicationInfo) -> bytes:
    """The description as bytes; equal ones have equal bytes."""
    return _encode(msgspec.to_builtins(application, str_keys=True))


def decode_application(data: bytes) -> ApplicationInfo:
    """The description that was encoded; refuses one of a newer penstock."""
    try:
        version = msgspec.json.decode(data).get("format_version", 0)
        if version > FORMAT_VERSION:
            raise TopologyException(
                "The application was last run by a newer penstock. Its description has format "
                f"{version}; this version knows {FORMAT_VERSION}. Use the newer one."
            )
        return _decode(data)
    except (msgspec.MsgspecError, AttributeError) as error:
        raise TopologyException(
            f"The description of the application cannot be read: {error}. "
            "Only penstock writes it. Start anew with 'penstock reset'."
        ) from error


def compare(
    old: ApplicationInfo, new: ApplicationInfo, changelog_of: Callable[[str], str]
) -> CompatibilityReport:
    """What stands in the way of going on with the old one's state, and how it goes on.

    `changelog_of`: the name that a store's changelog has.
    """
    kept = old.stores.keys() & new.stores.keys()
    gone = sorted(old.stores.keys() - new.stores.keys())
    come = sorted(new.stores.keys() - old.stores.keys())
    refused: list[str] = []
    for name in sorted(kept):
        refused += _store_changes(name, old, new)
    renumbered = _renumbered(gone, come)
    refused += [
        f"Store '{name}' is gone, and there is a new one, '{other}': names with numbers move when "
        f"steps are added or removed. Its rows would be lost. Give the step that had it this "
        f"name: store='{name}'."
        for name, other in renumbered.items()
    ]
    named = _named(
        [name for name in gone if name not in renumbered
         and old.stores[name].restored_from == changelog_of(name)],
        [name for name in come if name not in renumbered.values()], old, new,
    )
    refused += [
        f"Store '{name}' is gone, and there is a new one like it, '{other}': rows do not go along "
        f"to another name, so they would be lost. Leave the store without a name, or say "
        f"the one that it has: store='{name}'. If '{other}' belongs to another step, start "
        "once without it."
        for name, other in named.items()
    ]
    warnings = [
        f"Store '{name}' is not used any more. Its rows are left in '{topic}'; 'penstock topics "
        f"delete {topic}' removes them."
        for name in gone
        if name not in renumbered and name not in named
        and (topic := old.stores[name].restored_from) == changelog_of(name)
    ]
    warnings += [
        f"Store '{name}' is logged from now on. What it held before is not in its changelog."
        for name in sorted(kept)
        if old.stores[name].restored_from is None and new.stores[name].restored_from is not None
    ]
    return CompatibilityReport(tuple(refused), tuple(warnings), _continues(old, new))


def _store_changes(name: str, old: ApplicationInfo, new: ApplicationInfo) -> Iterable[str]:
    """Why the rows of a store cannot be used as they are."""
    before, after = old.stores[name], new.stores[name]
    rename = "Give the store another name to begin with an empty one."
    if before.family != after.family:
        yield (
            f"Store '{name}' was a {_shown(before.kind)} store and is a {_shown(after.kind)} "
            f"store. Its rows cannot be read as such. {rename}"
        )
        return
    if before.window_size_ms != after.window_size_ms:
        yield (
            f"The windows of store '{name}' had {before.window_size_ms} ms and have "
            f"{after.window_size_ms} ms. Rows know only where a window begins, so what was "
            f"counted in the old ones would appear in the new ones. {rename}"
        )
    if before.retain_duplicates != after.retain_duplicates:
        yield (
            f"Store '{name}' {'keeps' if after.retain_duplicates else 'kept'} duplicates, and "
            f"{'did not before' if after.retain_duplicates else 'does not any more'}. {rename}"
        )
    if before.restored_from is not None and before.restored_from != after.restored_from:
        yield (
            f"Store '{name}' was restored from '{before.restored_from}' and would be restored "
            f"from {_topic(after.restored_from)}: its rows are not there. Keep its logging, "
            f"and 'reuse.ktable.source.topics', as they were. {rename}"
        )
    if before.restored_from is not None and before.partitions != after.partitions:
        yield (
            f"Store '{name}' had {before.partitions} partitions and would have "
            f"{after.partitions}: keys would be looked for where they are not. "
            f"{_why_partitions(name, old, new)}{rename}"
        )
    yield from _other_origin(name, old, new)


def _other_origin(name: str, old: ApplicationInfo, new: ApplicationInfo) -> Iterable[str]:
    """A name with a number that now stands for another step."""
    groups = old.group_of(name), new.group_of(name)
    if not _NUMBER.search(name) or groups[0] is None or groups[1] is None:
        return
    before, after = old.origins(groups[0]), new.origins(groups[1])
    if before and after and before.isdisjoint(after):
        yield (
            f"Store '{name}' was made from {_listed(before)} and is made from {_listed(after)}. "
            "Names with numbers move when steps are added or removed, so this looks like another "
            "store. Give the step a name of its own (store=...)."
        )


def _why_partitions(name: str, old: ApplicationInfo, new: ApplicationInfo) -> str:
    groups = old.group_of(name), new.group_of(name)
    if groups[0] is None or groups[1] is None:
        return ""
    before, after = old.groups[groups[0]].reads, new.groups[groups[1]].reads
    if before == after:
        return f"The partitions of {_listed(after)} have changed. "
    return f"It is fed from {_listed(after)}. "


def _renumbered(gone: list[str], come: list[str]) -> dict[str, str]:
    """Stores that are gone -> new ones that have the same name but for the number."""
    found = {}
    left = list(come)
    for name in gone:
        if not _NUMBER.search(name):
            continue
        pattern = _NUMBER.sub("#", name)
        for other in left:
            if _NUMBER.sub("#", other) == pattern:
                found[name] = other
                left.remove(other)
                break
    return found


def _named(
    gone: list[str], come: list[str], old: ApplicationInfo, new: ApplicationInfo
) -> dict[str, str]:
    """Stores with a number that are gone -> new ones with a name, if the step is the same."""
    found = {}
    left = [name for name in come if not _NUMBER.search(name)]
    for name in gone:
        if not _NUMBER.search(name):
            continue
        for other in left:
            if _same_step(name, other, old, new):
                found[name] = other
                left.remove(other)
                break
    return found


def _same_step(name: str, other: str, old: ApplicationInfo, new: ApplicationInfo) -> bool:
    """Whether a store is likely to be the former one of its step under a new name."""
    before, after = old.stores[name], new.stores[other]
    groups = old.group_of(name), new.group_of(other)
    if groups[0] is None or groups[1] is None:
        return False
    return (
        (before.family, before.window_size_ms, before.retain_duplicates)
        == (after.family, after.window_size_ms, after.retain_duplicates)
        # A step that gets a name is one that had none.
        and (
            _NUMBER.sub("#", before.step) == _NUMBER.sub("#", after.step)
            or (bool(_NUMBER.search(before.step)) and not _NUMBER.search(after.step))
        )
        and old.origins(groups[0]) == new.origins(groups[1])
    )


def _continues(old: ApplicationInfo, new: ApplicationInfo) -> dict[int, tuple[int, ...]]:
    """Each sub-topology goes on from those that had its stores or, without one, its topics."""
    found = {}
    for number, group in new.groups.items():
        before = {at for store in group.stores if (at := old.group_of(store)) is not None}
        if not before:
            before = {
                at for at, each in old.groups.items() if not set(each.reads).isdisjoint(group.reads)
            }
        found[number] = tuple(sorted(before))
    return found


def _shown(kind: str) -> str:
    return kind.replace("_", " ")


def _topic(name: str | None) -> str:
    return "nothing" if name is None else f"'{name}'"


def _listed(topics: Iterable[str]) -> str:
    return ", ".join(f"'{topic}'" for topic in sorted(topics))
