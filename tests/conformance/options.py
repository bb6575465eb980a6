"""Reads the options of steps (windows, stores, suppression, timestamp extractors) and the
configuration of a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.cases import Case, InvalidCase
from conformance.combiners import own_timestamp
from conformance.functions import name_of
from conformance.wire import serde
from penstock import (
    BufferConfig,
    FailOnInvalidTimestamp,
    JoinWindows,
    LogAndSkipOnInvalidTimestamp,
    Materialized,
    SessionWindows,
    SlidingWindows,
    Stores,
    StoreType,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    UsePartitionTimeOnInvalidTimestamp,
)
from penstock.handlers import Response

Spec = dict[str, Any]

_DAY_MS = 24 * 60 * 60 * 1000

_KAFKAS_EXTRACTORS: dict[str, Callable[[], Any]] = {
    "fail_on_invalid": FailOnInvalidTimestamp,
    "log_and_skip": LogAndSkipOnInvalidTimestamp,
    "use_partition_time": UsePartitionTimeOnInvalidTimestamp,
}


def timestamp_extractor(spec: Any) -> Callable[[Any, int], int]:
    """An extractor: a function of (record, partition time)."""
    own = own_timestamp(spec)
    if own is None:
        kafkas: Callable[[Any, int], int] = _KAFKAS_EXTRACTORS[name_of(spec)]()
        return kafkas
    return lambda record, partition_time: own(record.value, partition_time)


# ---- windows ----


def windows(spec: Spec) -> Any:
    """The windows of an aggregation."""
    kind = spec.get("type")
    grace = {"grace": spec["grace"]} if "grace" in spec else {}
    if kind == "time":
        made = TimeWindows.of(spec["size"], **grace)
        return made.advance_by(spec["advance"]) if "advance" in spec else made
    if kind == "sliding":
        return SlidingWindows.of(spec["diff"], **grace)
    if kind == "session":
        return SessionWindows.of(spec["gap"], **grace)
    if kind == "unlimited":
        unlimited = UnlimitedWindows.of()
        return unlimited.start_on(spec["start"]) if "start" in spec else unlimited
    raise InvalidCase(f"Unknown window {spec!r}.")


def join_windows(spec: Spec) -> JoinWindows:
    """The windows of a join. The bound that is not negative is set first."""
    diff = spec.get("diff", 0)
    if spec.get("legacy"):
        grace = spec.get("grace", max(_DAY_MS - 2 * diff, 0))
        made = JoinWindows(diff, diff, grace, eager=True)
    else:
        made = JoinWindows.of(diff, grace=spec.get("grace", 0))
    after_first = spec.get("before", 0) < 0
    if "after" in spec and after_first:
        made = made.after(spec["after"])
    if "before" in spec:
        made = made.before(spec["before"])
    if "after" in spec and not after_first:
        made = made.after(spec["after"])
    return made


# ---- stores ----


def store_supplier(spec: Spec) -> Any:
    """The supplier of a bytes store."""
    name = spec.get("name", "")
    retention, size = spec.get("retention_ms", 0), spec.get("size_ms", 0)
    duplicates = bool(spec.get("retain_duplicates"))
    match spec.get("supplier"):
        case "persistent_kv":
            return Stores.persistent_key_value_store(name)
        case "persistent_timestamped_kv":
            return Stores.persistent_timestamped_key_value_store(name)
        case "in_memory_kv":
            return Stores.in_memory_key_value_store(name)
        case "lru_kv":
            return Stores.lru_map(name, spec.get("max_entries", 0))
        case "versioned":
            segment = {"segment_interval": spec["segment_ms"]} if "segment_ms" in spec else {}
            return Stores.persistent_versioned_key_value_store(
                name, spec.get("history_ms", 0), **segment
            )
        case "persistent_window":
            return Stores.persistent_window_store(name, retention, size, duplicates)
        case "persistent_timestamped_window":
            return Stores.persistent_timestamped_window_store(name, retention, size, duplicates)
        case "in_memory_window":
            return Stores.in_memory_window_store(name, retention, size, duplicates)
        case "persistent_session":
            return Stores.persistent_session_store(name, retention)
        case "in_memory_session":
            return Stores.in_memory_session_store(name, retention)
    raise InvalidCase(f"Unknown store supplier {spec!r}.")


def store_type(kind: str) -> StoreType:
    """The built-in store suppliers with a name."""
    return StoreType.IN_MEMORY if kind == "in_memory" else StoreType.ROCKS_DB


def materialized(spec: Spec) -> Materialized[Any, Any]:
    """The `Materialized` of a step."""
    options: dict[str, Any] = {what: serde(spec[what]) for what in ("key", "value") if what in spec}
    if "supplier" in spec:
        options["supplier"] = store_supplier(spec)
    elif "name" in spec:
        options["name"] = spec["name"]
    if "caching" in spec:
        options["caching"] = bool(spec["caching"])
    if spec.get("logging") is False:
        options["logging"] = False
    if "retention" in spec:
        options["retention"] = spec["retention"]
    if "type" in spec:
        options["store_type"] = store_type(spec["type"])
    return Materialized(**options)


def store_builder(spec: Spec) -> Any:
    """The builder of a store that is added explicitly."""
    builders: dict[Any, Any] = {
        "kv": Stores.key_value_store_builder,
        "timestamped_kv": Stores.timestamped_key_value_store_builder,
        "versioned": Stores.versioned_key_value_store_builder,
        "window": Stores.window_store_builder,
        "timestamped_window": Stores.timestamped_window_store_builder,
        "session": Stores.session_store_builder,
    }
    kind = spec.get("builder")
    if kind not in builders:
        raise InvalidCase(f"Unknown store builder {spec!r}.")
    key, value = (serde(spec[what]) if what in spec else None for what in ("key", "value"))
    made: Any = builders[kind](store_supplier(spec), key, value)
    if "caching" in spec:
        made = made.with_caching_enabled() if spec["caching"] else made.with_caching_disabled()
    if spec.get("logging") is False:
        made = made.with_logging_disabled()
    return made


# ---- suppress ----


def suppressed(step: Spec) -> Suppressed:
    """The `Suppressed` of a step."""
    if "max_records" in step:
        buffer = BufferConfig.max_records(step["max_records"])
        if "max_bytes" in step:
            buffer = buffer.with_max_bytes(step["max_bytes"])
    elif "max_bytes" in step:
        buffer = BufferConfig.max_bytes(step["max_bytes"])
    else:
        buffer = BufferConfig.unbounded()
    if step.get("when_full") == "shut_down":
        buffer = buffer.shut_down_when_full()
    elif step.get("when_full") == "emit_early":
        buffer = buffer.emit_early_when_full()
    if step.get("logging") is False:
        buffer = buffer.with_logging_disabled()
    name = {"name": step["name"]} if "name" in step else {}
    if step.get("until") == "window_closes":
        return Suppressed.until_window_closes(buffer, **name)
    return Suppressed.until_time_limit(step.get("ms", 0), buffer, **name)


# ---- configuration ----


class ContinueProduction:
    """A production exception handler that skips records that cannot be written."""

    def handle_error(self, context: Any, record: Any, exception: Exception) -> Response:
        return Response.resume()

    def handle_serialization_error(
        self, context: Any, record: Any, exception: Exception, origin: Any
    ) -> Response:
        return Response.resume()


def configuration(case: Case) -> StreamsConfig:
    """The configuration of a case on top of the base configuration."""
    properties: dict[str, Any] = {
        "application.id": "oracle",
        "statestore.cache.max.bytes": "0",
        "processing.guarantee": "at_least_once",
    }
    for key, value in case.get("config", {}).items():
        if key in ("default.key.serde", "default.value.serde"):
            properties[key] = serde(value)
        elif key == "default.timestamp.extractor":
            properties[key] = timestamp_extractor(value)
        elif key == "production.exception.handler" and value == "continue":
            properties[key] = ContinueProduction()
        else:
            properties[key] = value
    return StreamsConfig.from_properties(properties)
