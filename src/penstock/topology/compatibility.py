"""Checks whether an application can keep its state after its topology has changed.

State is found by name: rows by the name of their store, offsets by topic, clocks and schedules by
the names of steps. A change is compatible if every name still means the same thing. The rules and
their reasons are in docs/decisions/2026-11-17-topology-changes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.topology.application_info import ApplicationInfo, StoreInfo
from penstock.topology.store_advice import (
    explain_other_role,
    explain_removed,
    explain_renamed,
    explain_unclear,
)
from penstock.topology.store_matching import (
    StoreMatches,
    add_replaced,
    has_other_role,
    match_stores,
)

#: The serdes whose bytes are text, or may be.
_TEXT = {"string", "json", "bytes"}


@dataclass(frozen=True)
class StoreDecisions:
    """The decisions of the user about earlier stores (`penstock upgrade`)."""

    #: Earlier store -> the store that continues it.
    keep: Mapping[str, str] = field(default_factory=dict)
    #: Earlier stores whose rows are not needed any more.
    drop: frozenset[str] = frozenset()
    #: Stores may continue under another name: their rows are moved.
    move: bool = False


@dataclass(frozen=True)
class CompatibilityReport:
    """The result of comparing an application with an earlier version of it."""

    #: Incompatible changes. Each message has the fact, the reason and the advice.
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    #: Sub-topology -> the earlier sub-topologies whose state it continues from.
    predecessors: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    matches: StoreMatches = field(default_factory=StoreMatches)


def compare(
    old: ApplicationInfo, new: ApplicationInfo, changelog_of: Callable[[str], str],
    decisions: StoreDecisions | None = None,
) -> CompatibilityReport:
    """Check whether the new application can continue with the state of the old one.

    `changelog_of` returns the name of a store's changelog topic.
    """
    decisions = decisions or StoreDecisions()
    old, new = old.completed(), new.completed()
    matches = _match_remaining(old, new, decisions)
    old = old.without_stores(decisions.drop)
    errors: list[str] = []
    for name, other in sorted(matches.continued.items()):
        before, after = old.stores[name], new.stores[other]
        restores_itself = before.restored_from == after.restored_from is not None
        if name != other and not decisions.move and not restores_itself:
            errors.append(explain_renamed(name, other, new, matches.renamed.values()))
        else:
            errors += _StoreComparison(old, new, name, other, changelog_of).errors()
    errors += [
        explain_unclear(name, others, new) for name, others in sorted(matches.unclear.items())
    ]
    removed = sorted(old.stores.keys() - matches.continued.keys() - matches.unclear.keys())
    errors += [
        explain_removed(name, old, new) for name in removed if name in new.stores
    ]
    warnings = [
        f"Store '{name}' is no longer used. Its rows remain in '{topic}'. Remove them with "
        f"'penstock topics delete {topic}'."
        for name in removed
        if name not in new.stores
        and (topic := old.stores[name].restored_from) == changelog_of(name)
    ]
    warnings += [
        f"Store '{other}' now has a changelog. Rows written before are not in it."
        for name, other in sorted(matches.continued.items())
        if old.stores[name].restored_from is None and new.stores[other].restored_from is not None
    ]
    warnings += [
        f"Store '{name}' is now named '{other}'. It has no changelog, so its rows are lost."
        for name, other in sorted(matches.renamed.items())
        if decisions.move and old.stores[name].restored_from is None
    ]
    predecessors = _find_predecessors(old, new, matches)
    return CompatibilityReport(tuple(errors), tuple(warnings), predecessors, matches)


def _match_remaining(
    old: ApplicationInfo, new: ApplicationInfo, decisions: StoreDecisions
) -> StoreMatches:
    """Match the stores that are not dropped."""
    left = old.without_stores(decisions.drop)
    matches = match_stores(old, new, decisions.keep)
    if matches.unclear:
        # The user may drop a store to say which one of several is removed.
        matches = match_stores(left, new, decisions.keep)
    else:
        matches = StoreMatches({
            name: other for name, other in matches.continued.items() if name not in decisions.drop
        })
    return add_replaced(matches, left, new)


@dataclass(frozen=True)
class _StoreComparison:
    """Compares a store with the earlier one that it continues."""

    old: ApplicationInfo
    new: ApplicationInfo
    name: str
    other: str
    changelog_of: Callable[[str], str]

    def errors(self) -> Iterable[str]:
        """Yield the reasons why the rows of the store cannot be used any longer."""
        name, before, after = self.name, self.old.stores[self.name], self.new.stores[self.other]
        rename = "Rename the store to start with an empty one."
        drop = f"To start with an empty store, drop the rows: --drop {name}."
        if has_other_role(before, after):
            yield explain_other_role(name, before, after)
            return
        if before.family != after.family:
            yield (
                f"Store '{name}' was a {_readable(before.kind)} store and is now a "
                f"{_readable(after.kind)} store. It cannot read the existing rows. {rename}"
            )
            return
        yield from _serde_errors(name, before, after, drop)
        if before.window_size_ms != after.window_size_ms:
            yield (
                f"The window size of store '{name}' was {before.window_size_ms} ms and is now "
                f"{after.window_size_ms} ms. Rows contain only the start of a window, so results "
                f"of the old windows would appear in the new ones. {rename}"
            )
        if before.retain_duplicates != after.retain_duplicates:
            change = "now retains" if after.retain_duplicates else "no longer retains"
            yield f"Store '{name}' {change} duplicates. The keys have another format. {rename}"
        if before.restored_from not in (None, self._earlier_topic(after)):
            yield (
                f"Store '{name}' was restored from '{before.restored_from}' and would now be "
                f"restored from {_topic(after.restored_from)}, which does not contain its rows. "
                f"Restore its settings for logging and 'reuse.ktable.source.topics'. {drop}"
            )
        if before.restored_from is not None and before.partitions != after.partitions:
            yield (
                f"Store '{name}' had {before.partitions} partitions and would now have "
                f"{after.partitions}. Keys would map to other partitions than their rows. "
                f"{self._explain_partitions()}{drop}"
            )

    def _earlier_topic(self, after: StoreInfo) -> str | None:
        """Return the topic from which the store would be restored under its earlier name."""
        if after.restored_from == self.changelog_of(self.other):
            return self.changelog_of(self.name)
        return after.restored_from

    def _explain_partitions(self) -> str:
        groups = self.old.group_of(self.name), self.new.group_of(self.other)
        if groups[0] is None or groups[1] is None:
            return ""
        before, after = self.old.groups[groups[0]].reads, self.new.groups[groups[1]].reads
        topics = ", ".join(f"'{topic}'" for topic in sorted(after))
        if before == after:
            return f"The partition count of {topics} has changed. "
        return f"It now reads {topics}. "


def _serde_errors(name: str, before: StoreInfo, after: StoreInfo, drop: str) -> Iterable[str]:
    """Yield an error if rows would be read in another format than they were written in.

    Another schema of the same format may be compatible; only its serde knows. So may be text, which
    another text serde reads or rejects. Formats of custom serdes are unknown.
    """
    for which, old, new in zip(("key", "value"), before.serdes, after.serdes, strict=False):
        formats = {serde.partition("(")[0] for serde in (old, new)}
        if len(formats) > 1 and not formats <= _TEXT and not any("custom" in f for f in formats):
            yield (
                f"The {which}s of store '{name}' were written with the {old} serde and would be "
                f"read with the {new} serde, which gives wrong {which}s or errors. Give the store "
                f"its old {which} serde. {drop}"
            )


def _find_predecessors(
    old: ApplicationInfo, new: ApplicationInfo, matches: StoreMatches
) -> dict[int, tuple[int, ...]]:
    """Map each sub-topology to those that had its stores or, without any, its topics."""
    earlier = {other: name for name, other in matches.continued.items()}
    predecessors = {}
    for number, group in new.groups.items():
        before = {
            at for store in group.stores
            if store in earlier and (at := old.group_of(earlier[store])) is not None
        }
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
