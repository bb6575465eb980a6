"""Finds the stores of an earlier version that continue under another name.

A store with a name of the user is found by that name. A generated name contains a number, which
changes when steps are added or removed; such a store is found by its identity: its role, the kind
of its step, and the lineage of the step. Steps with equal identities differ only in their
functions, so they are matched in the order of their numbers, and only if there are as many as
before.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field

from penstock.topology.application_info import NUMBER, ApplicationInfo, StoreInfo


@dataclass(frozen=True)
class StoreMatches:
    """The stores that continue earlier ones. A removed store is in neither mapping."""

    #: Earlier store -> the store that continues it. Most keep their name.
    continued: Mapping[str, str] = field(default_factory=dict)
    #: Earlier store -> the new stores that may continue it. Only the user can decide.
    unclear: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def renamed(self) -> dict[str, str]:
        """Earlier store -> the store with another name that continues it."""
        return {name: other for name, other in self.continued.items() if name != other}


def match_stores(
    old: ApplicationInfo, new: ApplicationInfo, decided: Mapping[str, str] | None = None
) -> StoreMatches:
    """Match the stores of two versions. `decided`: earlier store -> store, given by the user.

    Both descriptions must be complete, see `ApplicationInfo.completed`.
    """
    matching = _Matching(old, new, dict(decided or {}))
    matching.match_given_names()
    matching.match_equal_lineages()
    matching.match_equal_names()
    matching.match_similar()
    return StoreMatches(matching.continued, matching.unclear)


def add_replaced(
    matches: StoreMatches, old: ApplicationInfo, new: ApplicationInfo
) -> StoreMatches:
    """Return the matches in which a removed store is unclear while a store of its kind is new.

    Neither the names nor the topics of the steps prove that the rows are not needed. A store
    without a changelog of its own has no rows that could be lost.
    """
    known = {*matches.continued.values(), *(each for found in matches.unclear.values()
                                            for each in found)}
    appeared = sorted(new.stores.keys() - known - old.stores.keys(), key=_order)
    replaced = {}
    for name, before in old.stores.items():
        if name in matches.continued or name in matches.unclear or name in new.stores:
            continue
        others = tuple(
            other for other in appeared
            if _format(before) == _format(new.stores[other])
            and not has_other_role(before, new.stores[other])
        )
        if others and (before.restored_from or "").endswith(f"-{name}-changelog"):
            replaced[name] = others
    return StoreMatches(matches.continued, {**matches.unclear, **replaced})


def match_topics(old: ApplicationInfo, new: ApplicationInfo) -> dict[str, str]:
    """Return internal topic of the earlier version -> the topic that carries its records now.

    Topics are found by name, or by the steps that write them if those are unique. They must have as
    many partitions as before.
    """
    matched = {topic: topic for topic in old.through_log if topic in new.through_log}
    for topic in old.through_log:
        lineage = old.topic_lineages.get(topic)
        if topic in matched or lineage is None:
            continue
        before = [each for each, found in old.topic_lineages.items() if found == lineage]
        after = [each for each, found in new.topic_lineages.items() if found == lineage]
        if len(before) == len(after) == 1 and _readers(old, topic) == _readers(new, after[0]):
            matched[topic] = after[0]
    return matched


def _readers(info: ApplicationInfo, topic: str) -> int:
    """Return the number of tasks that read a topic: one for each partition."""
    return max((group.tasks for group in info.groups.values() if topic in group.reads), default=0)


class _Matching:
    """The state of one comparison; each step matches what the previous ones have left."""

    def __init__(
        self, old: ApplicationInfo, new: ApplicationInfo, decided: dict[str, str]
    ) -> None:
        self._old, self._new = old, new
        self.continued = decided
        self.unclear: dict[str, tuple[str, ...]] = {}

    def _left(self) -> tuple[list[str], list[str]]:
        taken = set(self.continued.values())
        return (
            sorted((name for name in self._old.stores
                    if name not in self.continued and name not in self.unclear), key=_order),
            sorted((name for name in self._new.stores if name not in taken), key=_order),
        )

    def match_given_names(self) -> None:
        """A name of the user, or one that the user keeps, is the same store."""
        for name in self._left()[0]:
            other = self._new.stores.get(name)
            if other is not None and not other.generated and name not in self.continued.values():
                self.continued[name] = name

    def match_equal_lineages(self) -> None:
        """Match generated names in the order of their numbers if the steps are equal."""
        before, after = (
            _group(names, info) for names, info in zip(
                self._left(), (self._old, self._new), strict=True
            )
        )
        for identity, names in before.items():
            others = after.get(identity, [])
            if len(names) == len(others):
                self.continued |= zip(names, others, strict=True)
            elif others and not set(names).isdisjoint(others):
                # A step among equal ones is new or removed. Numbers do not tell which one.
                self.unclear |= dict.fromkeys(names, tuple(others))

    def match_equal_names(self) -> None:
        """A generated name is the same store unless its step reads other topics."""
        unmatched = set(self._left()[1])
        for name in self._left()[0]:
            if name in unmatched and self._may_be_same_step(name, name):
                self.continued[name] = name

    def match_similar(self) -> None:
        """Match the stores of which there is only one that may be the same; others are unclear."""
        names, others = self._left()
        candidates = {
            name: [
                other for other in others
                if _format(self._old.stores[name]) == _format(self._new.stores[other])
                and self._may_be_same_step(name, other)
            ]
            for name in names
        }
        for name, possible in candidates.items():
            rivals = [each for each, found in candidates.items() if set(found) & set(possible)]
            if not possible:
                continue
            if self._can_pair(rivals, possible) and all(
                candidates[rival] == possible for rival in rivals
            ):
                self.continued[name] = possible[rivals.index(name)]
            else:
                self.unclear[name] = tuple(possible)

    def _can_pair(self, names: Collection[str], others: Collection[str]) -> bool:
        """Whether two lists can be matched one by one.

        Numbers have an order, names have none. A name that the user has replaced by another one
        may mean another store.
        """
        numbered = all(self._old.stores[name].generated for name in names)
        return numbered and len(names) == len(others) and (
            len(names) == 1 or all(self._new.stores[other].generated for other in others)
        )

    def _may_be_same_step(self, name: str, other: str) -> bool:
        """Whether nothing proves that two stores belong to different steps."""
        before, after = self._old.stores[name], self._new.stores[other]
        if has_other_role(before, after):
            return False
        if before.step_kind and after.step_kind:
            if before.step_kind != after.step_kind:
                return False
        elif before.role == "rows" and _is_other_kind(before.step, after.step):
            return False
        origins = self._old.origins(name), self._new.origins(other)
        return not all(origins) or not origins[0].isdisjoint(origins[1])


def _format(store: StoreInfo) -> Hashable:
    """Return what must be equal so that one store can read the rows of the other."""
    return store.family, store.window_size_ms, store.retain_duplicates


def has_other_role(before: StoreInfo, after: StoreInfo) -> bool:
    """Whether two stores serve different purposes. A processor may use the rows of a table."""
    roles = {before.role, after.role}
    return "" not in roles and len(roles) > 1 and roles != {"rows", "processor"}


def _is_other_kind(step: str, other: str) -> bool:
    """Whether the generated names of two steps have different prefixes."""
    return (
        bool(NUMBER.search(step)) and bool(NUMBER.search(other))
        and NUMBER.sub("#", step) != NUMBER.sub("#", other)
    )


def _order(name: str) -> tuple[str, str]:
    number = NUMBER.search(name)
    return (number[0] if number else "", name)


def _group(names: Collection[str], info: ApplicationInfo) -> dict[Hashable, list[str]]:
    """Group stores with generated names by their identities."""
    groups: dict[Hashable, list[str]] = {}
    for name in names:
        store = info.stores[name]
        if store.generated and store.lineage:
            identity = _format(store), store.role, store.step_kind, store.lineage
            groups.setdefault(identity, []).append(name)
    return groups
