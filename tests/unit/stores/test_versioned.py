"""The versioned key-value store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.serdes.builtin import Serdes
from penstock.stores import Stores, VersionedRecord
from penstock.stores.bytes.versioned_segment import SegmentValue
from unit.stores.fakes import FakeContext

S = Serdes.string()
REFUSED = -(2**63)


def opened(context: Any, history: int = 1000, interval: int | None = None) -> Any:
    supplier = Stores.persistent_versioned_key_value_store("v", history, interval)
    store = Stores.versioned_key_value_store_builder(supplier, S, S).build()
    store.init(context)
    return store


def test_versions_can_be_put_in_any_order(context: Any) -> None:
    store = opened(context)
    assert store.put("a", "5", 5) == -1
    assert store.put("a", "9", 9) == -1
    assert store.put("a", "7", 7) == 9
    assert store.put("a", None, 8) == 9
    assert store.get("a") == VersionedRecord("9", 9)
    assert store.get("a", 7) == VersionedRecord("7", 7)
    assert store.get("a", 8) is None
    assert store.get("a", 4) is None
    assert store.get_version("a", 6) == VersionedRecord("5", 5, 7)
    assert list(store.versions("a")) == [
        VersionedRecord("5", 5, 7), VersionedRecord("7", 7, 8), VersionedRecord("9", 9),
    ]
    assert list(store.versions("a", 7, 8, reverse=True)) == [VersionedRecord("7", 7, 8)]
    assert store.delete("a", 10) == VersionedRecord("9", 9)
    assert store.get("a") is None
    assert [entry[1:4] for entry in context.logged][-1] == (b"a", None, 10)


def test_expired_version_is_refused_counted_and_logged(context: Any) -> None:
    store = opened(context, 100)
    store.put("a", "1", 1000)
    assert store.put("b", "2", 899) == REFUSED
    assert len(context.dropped) == 1
    assert store.put("b", "2", 900) == -1
    assert store.delete("b", 10) is None
    assert len(context.dropped) == 2
    assert len(context.logged) == 4


def test_latest_version_never_expires(context: Any) -> None:
    store = opened(context, 100)
    store.put("a", "1", 1)
    store.put("b", "2", 10_000)
    assert store.get("a", 5) == VersionedRecord("1", 1)
    assert store.get("a", 0) is None


def test_versioned_store_refuses_caching() -> None:
    supplier = Stores.persistent_versioned_key_value_store("v", 1000)
    builder = Stores.versioned_key_value_store_builder(supplier, S, S)
    with pytest.raises(ValueError, match="caching"):
        builder.with_caching_enabled()
    assert builder.is_versioned
    assert builder.history_retention_ms == 1000


def test_segment_value_has_the_bytes_of_kafka_streams() -> None:
    segment = SegmentValue.of(b"x", 3, 9)
    segment.add_latest(9, 12, None)
    segment.add_latest(12, 20, b"yz")
    data = segment.encode()
    assert data[:16] == (20).to_bytes(8, "big") + (3).to_bytes(8, "big")
    assert data.endswith(b"xyz")
    assert SegmentValue.decode(data).versions == [(12, b"yz"), (9, None), (3, b"x")]


puts = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.none() | st.sampled_from("xyz"), st.integers(0, 60)),
    max_size=30,
)


@given(puts=puts, interval=st.sampled_from([1, 7, 20, 100]), advancing=st.booleans())
def test_versioned_store_behaves_like_a_dictionary_without_expiry(
    puts: list[tuple[str, str | None, int]], interval: int, advancing: bool
) -> None:
    context = FakeContext()
    store = opened(context, 10_000, interval)
    model: dict[str, dict[int, str | None]] = {"a": {}, "b": {}}
    for key, value, time in puts:
        if value is None and time in model[key]:
            # Kafka Streams may lose a deletion that replaces a version.
            continue
        later = [t for t in model[key] if t > time]
        model[key][time] = value
        assert store.put(key, value, time) == (min(later) if later else -1)
        if advancing:
            store.advance()
    again = opened(FakeContext(), 10_000, interval)
    for _, raw_key, raw, timestamp, headers in context.logged:
        again.restore(raw_key, raw, timestamp, headers)
    for which in (store, again):
        for key, versions in model.items():
            for time in range(62):
                known = [t for t in versions if t <= time]
                value = versions[max(known)] if known else None
                expected = None if value is None else VersionedRecord(value, max(known))
                assert which.get(key, time) == expected
            found = list(which.versions(key))
            assert [(record.timestamp, record.value) for record in found] == [
                (time, versions[time]) for time in sorted(versions) if versions[time] is not None
            ]
            assert list(which.versions(key, reverse=True)) == found[::-1]
    assert again.clocks() == store.clocks()
    assert context.dropped == []
