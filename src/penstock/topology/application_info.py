"""The description of an application: the parts of it that its state in the log depends on.

Every start stores it beside the task records, and the next start compares, see `compatibility`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from penstock.errors import TopologyException

#: Version of the encoding; increases when the meaning of a field changes.
FORMAT_VERSION = 1
#: The number in a generated name.
NUMBER = re.compile(r"\d{10}")
#: Kinds of stores with the same changelog format.
_FAMILIES = ("versioned_key_value", "key_value", "window", "session")
#: The roles of stores in descriptions that do not contain them, by a part of the name.
_ROLE_IN_NAME = (
    ("KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-", "subscriptions"),
    ("-subscription-store", "subscriptions"),
    ("KSTREAM-OUTERSHARED-", "shared"), ("-shared-join-store", "shared"),
)


@dataclass(frozen=True)
class StoreInfo:
    """The properties of a store that its changelog depends on, and its identity.

    The identity does not depend on the numbers in generated names.
    """

    kind: str
    #: The number of tasks that hold a part of it.
    partitions: int
    #: The topic it is restored from; None if its rows are lost with the host.
    restored_from: str | None = None
    #: Of a window store; its rows contain only the start of a window.
    window_size_ms: int | None = None
    #: Of a window store; its keys then contain a sequence number.
    retain_duplicates: bool = False
    #: The step that it belongs to.
    step: str = ""
    #: Its purpose in the step, see `StoreRole`; empty if unknown. Older descriptions lack this and
    #: what follows.
    role: str = ""
    #: The kind of the step, see `ProcessorNode.kind`.
    step_kind: str = ""
    #: The fingerprint of the step, see `step_lineages`.
    lineage: str = ""
    #: All steps that use it, in the order of the topology.
    steps: tuple[str, ...] = ()
    #: Whether its name contains a generated number.
    generated: bool | None = None
    #: The names of the serdes of keys and values; empty if unknown.
    serdes: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Stores of the same family can be restored from each other's changelogs."""
        return next((name for name in _FAMILIES if name in self.kind), self.kind)

    def completed(self, name: str) -> StoreInfo:
        """Return the description with the fields that follow from the name, if they are missing."""
        if self.generated is not None:
            return self
        return replace(
            self, role=_role_by_name(name, self), steps=(self.step,) if self.step else (),
            generated=NUMBER.search(name) is not None,
        )


def _role_by_name(name: str, store: StoreInfo) -> str:
    if store.kind in {"suppress_buffer", "join_buffer"}:
        return "suppress" if store.kind == "suppress_buffer" else "grace"
    if store.retain_duplicates:
        # A supplier of the user may have any name.
        side = re.search(r"-(JOINTHIS|OUTERTHIS|this)-|-(JOINOTHER|OUTEROTHER|other)-", name)
        return "" if side is None else "this" if side[1] else "other"
    return next((role for part, role in _ROLE_IN_NAME if part in name), "rows")


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
    #: Such a topic -> the fingerprint of the steps that write it. Older descriptions lack this.
    topic_lineages: Mapping[str, str] = field(default_factory=dict)
    #: The global stores; their state is not compared. Older descriptions lack this.
    global_stores: Mapping[str, StoreInfo] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def completed(self) -> ApplicationInfo:
        """Return the description with all fields, also if an older version has written it."""
        stores = {name: info.completed(name) for name, info in self.stores.items()}
        return replace(self, stores=stores)

    @property
    def all_stores(self) -> dict[str, StoreInfo]:
        """The stores of tasks and the global stores."""
        return {**self.stores, **self.global_stores}

    def group_of(self, store: str) -> int | None:
        """Return the number of the sub-topology that uses a store."""
        return next((n for n, group in self.groups.items() if store in group.stores), None)

    def origins(self, store: str) -> frozenset[str]:
        """Return the external topics upstream of a store's sub-topology, across repartitions."""
        group = self.group_of(store)
        topics: set[str] = set()
        visited: set[int] = set()
        pending = [] if group is None else [group]
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

    def rename_store(self, name: str, other: str, restored_from: str | None) -> ApplicationInfo:
        """Return the description with another name and restore topic for one store."""
        stores = {
            other if each == name else each: info for each, info in self.stores.items()
        }
        stores[other] = replace(stores[other], restored_from=restored_from)
        return self._with_stores(stores, {name: other})

    def without_stores(self, names: Iterable[str]) -> ApplicationInfo:
        """Return the description without some stores."""
        removed = set(names)
        return self._with_stores(
            {name: info for name, info in self.stores.items() if name not in removed}, {}
        )

    def _with_stores(
        self, stores: Mapping[str, StoreInfo], renamed: Mapping[str, str]
    ) -> ApplicationInfo:
        groups = {}
        for number, group in self.groups.items():
            kept = (renamed.get(name, name) for name in group.stores)
            groups[number] = replace(
                group, stores=tuple(sorted(name for name in kept if name in stores))
            )
        return replace(self, groups=groups, stores=stores)


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
