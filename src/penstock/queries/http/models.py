"""The documents of the interface, for its OpenAPI description. Responses are written directly."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

Time = Annotated[
    str | None, Field(description="ISO 8601, UTC", examples=["2026-01-31T12:00:00.000Z"])
]
TimeMs = Annotated[int, Field(description="epoch milliseconds")]
Json = Annotated[Any, Field(description="JSON; bytes are {\"base64\": \"...\"}")]
Next = Annotated[str | None, Field(description="the cursor of the next page; null on the last")]


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Health(BaseModel):
    """Whether the process works."""

    status: Literal["UP", "DOWN"]
    state: str


class Readiness(BaseModel):
    """Whether all stores are restored, so that they can be queried."""

    ready: bool
    state: str
    detail: str


class TopologyDocument(BaseModel):
    """The topology, as `penstock describe --json` prints it."""

    subtopologies: list[dict[str, Any]]
    global_stores: list[dict[str, Any]]


class StoreDocument(BaseModel):
    """A store."""

    name: str
    kind: Literal["key-value", "window", "session", "versioned"]
    key_type: str
    value_type: str
    is_global: bool
    partitions: list[int]
    approximate_entries: int | None


class StoreList(BaseModel):
    """All stores."""

    stores: list[StoreDocument]


class Entry(BaseModel):
    """A key and its value. Stores without timestamps have none."""

    key: Json
    value: Json
    timestamp: Time = None
    timestamp_ms: TimeMs | None = None


class EntryPage(BaseModel):
    """A page of entries."""

    entries: list[Entry]
    next: Next = None


class LookupRequest(BaseModel):
    """Keys, in the form in which responses show them."""

    keys: list[Json] = Field(examples=[["store_1234"]])


class LookupEntry(BaseModel):
    """A key of a lookup. `found` is false if the store does not have it."""

    key: Json
    found: bool
    value: Json = None


class LookupResult(BaseModel):
    """The entries of the keys, in the order of the request."""

    entries: list[LookupEntry]


class WindowDocument(BaseModel):
    """The bounds of a window."""

    start: Time
    start_ms: TimeMs
    end: Time
    end_ms: TimeMs


class WindowEntry(BaseModel):
    """The value of a key in a window."""

    key: Json
    window: WindowDocument
    value: Json


class WindowPage(BaseModel):
    """A page of windows or sessions."""

    entries: list[WindowEntry]
    next: Next = None


class Version(BaseModel):
    """A version of a value. `valid_to` is null for the latest."""

    value: Json
    valid_from: Time
    valid_from_ms: TimeMs
    valid_to: Time = None
    valid_to_ms: TimeMs | None = None


class VersionPage(BaseModel):
    """The versions of a key."""

    key: Json
    versions: list[Version]
    next: Next = None


class PartitionPosition(BaseModel):
    """The position of a store in one partition of its changelog."""

    partition: int
    position: int
    end: int
    lag: int


class StorePositions(BaseModel):
    """The positions of a store."""

    store: str
    partitions: list[PartitionPosition]


class PositionList(BaseModel):
    """The positions of all stores."""

    stores: list[StorePositions]


class InstanceDocument(BaseModel):
    """An instance of the application. The active one runs the tasks."""

    name: str
    role: Literal["active", "standby"]
    host: str
    port: int
    stores: list[str]
    topic_partitions: list[str]
    standby_stores: list[str]
    standby_topic_partitions: list[str]


class InstanceList(BaseModel):
    """All instances that are known."""

    instances: list[InstanceDocument]


class HostDocument(BaseModel):
    """An address. Empty if the instance has no `application.server`."""

    host: str
    port: int


class LocationDocument(BaseModel):
    """The instance that runs the task of a key. Every instance serves every key.

    `active` is null if no address of it is known, and `detail` says why.
    """

    key: Json
    partition: int
    active: HostDocument | None
    standbys: list[HostDocument]
    detail: str | None = None
