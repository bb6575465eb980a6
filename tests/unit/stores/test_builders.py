"""`Stores`, builders, and the default stores of the DSL."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from penstock.serdes.builtin import Serdes
from penstock.stores import (
    BuiltInDslStoreSuppliers,
    DslKeyValueParams,
    DslSessionParams,
    DslStoreFormat,
    DslWindowParams,
    StoreBuilder,
    Stores,
    VersionedKeyValueStore,
)

S = Serdes.string()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Stores.lru_map("s", -1), "negative"),
    (lambda: Stores.persistent_window_store("s", -1, 0), "retentionPeriod cannot be negative"),
    (lambda: Stores.persistent_window_store("s", 1, -1), "windowSize cannot be negative"),
    (lambda: Stores.persistent_window_store("s", 1, 2), "no smaller than its window size"),
    (lambda: Stores.in_memory_window_store("s", 1, 2), "no smaller than its window size"),
    (lambda: Stores.persistent_session_store("s", -1), "negative"),
    (lambda: Stores.in_memory_session_store("s", -1), "negative"),
    (lambda: Stores.persistent_versioned_key_value_store("s", -1), "negative"),
    (lambda: Stores.persistent_versioned_key_value_store("s", 1, 0), "zero or negative"),
])
def test_invalid_durations_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("call", [
    lambda: Stores.persistent_key_value_store(None),
    lambda: Stores.in_memory_session_store(None, 1),
    lambda: Stores.key_value_store_builder(None),
    lambda: Stores.window_store_builder(Stores.in_memory_key_value_store("s")),
])
def test_missing_or_wrong_arguments_raise_type_errors(call: Any) -> None:
    with pytest.raises(TypeError):
        call()


def test_durations_are_timedelta_or_milliseconds() -> None:
    hour = timedelta(hours=1)
    one = Stores.persistent_window_store("s", hour, hour)
    assert one == Stores.persistent_window_store("s", 3_600_000, 3_600_000)
    assert one.segment_interval_ms == 1_800_000
    assert Stores.persistent_session_store("s", 10).segment_interval_ms == 60_000
    for history, interval in ((3_000, 2_000), (60_000, 20_000), (300_000, 60_000),
                              (3_600_000, 300_000), (86_400_000, 3_600_000)):
        supplier = Stores.persistent_versioned_key_value_store("s", history)
        assert supplier.segment_interval_ms == interval


def test_builders_are_immutable_and_compared_by_value(context: Any) -> None:
    builder = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), S, S)
    assert builder == Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), S, S)
    changed = builder.with_caching_enabled().with_logging_enabled({"retention.ms": "1"})
    assert (changed.caching_enabled, changed.logging_enabled) == (True, True)
    assert changed.log_config == {"retention.ms": "1"}
    assert not builder.caching_enabled
    assert not changed.with_logging_disabled().logging_enabled
    assert not changed.with_caching_disabled().caching_enabled
    assert pickle.loads(pickle.dumps(changed)) == changed
    hash(changed)


def test_builder_returns_its_retention() -> None:
    builder = Stores.window_store_builder(Stores.in_memory_window_store("s", 10, 5), S, S)
    assert builder.is_windowed
    assert builder.retention_ms == 10
    with pytest.raises(ValueError, match="'s'"):
        _ = builder.history_retention_ms


def test_custom_stores_are_created_by_a_factory() -> None:
    made = object()
    builder = StoreBuilder.custom("mine", lambda: made)  # type: ignore[arg-type, return-value]
    assert builder.build() is made
    assert builder.logging_enabled


def test_dsl_uses_persistent_or_in_memory_stores() -> None:
    disk, memory = BuiltInDslStoreSuppliers.ROCKS_DB, BuiltInDslStoreSuppliers.IN_MEMORY
    assert disk.key_value_store(
        DslKeyValueParams("s")
    ) == Stores.persistent_timestamped_key_value_store("s")
    assert disk.key_value_store(DslKeyValueParams("s", DslStoreFormat.HEADERS)).with_headers
    assert disk.window_store(
        DslWindowParams("s", 10, 5, retain_duplicates=True, format=DslStoreFormat.PLAIN)
    ) == Stores.persistent_window_store("s", 10, 5, True)
    assert disk.session_store(
        DslSessionParams("s", 10)
    ) == Stores.persistent_session_store("s", 10)
    on_close = disk.window_store(DslWindowParams("s", 10, 5, emit_on_close=True))
    assert (on_close.time_ordered, on_close.indexed, on_close.timestamped) == (True, False, True)
    assert memory.window_store(
        DslWindowParams("s", 10, 5, emit_on_close=True)
    ) == Stores.in_memory_window_store("s", 10, 5)
    assert not memory.session_store(DslSessionParams("s", 10)).persistent
    assert not memory.key_value_store(DslKeyValueParams("s")).persistent


def test_only_versioned_stores_are_versioned() -> None:
    assert VersionedKeyValueStore.is_versioned
    builder = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), S, S)
    assert not builder.build().is_versioned
