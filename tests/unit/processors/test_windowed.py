from __future__ import annotations

from typing import Any

import pytest
from tests.unit.processors.fakes import FakeNode, FakeSessionStore, FakeWindowStore, Sent

from penstock import Serdes, StreamsBuilder, StreamsConfig
from penstock.errors import StreamsException
from penstock.processors.aggregates import (
    add_counts,
    aggregator_of_reducer,
    count_up,
    no_initial_value,
    zero,
)
from penstock.processors.session_aggregates import SessionAggregate
from penstock.processors.table_store import SessionGetter, WindowGetter
from penstock.processors.window_aggregates import WindowAggregate, windows_by_time
from penstock.record import Change, Headers
from penstock.testing import TopologyTestDriver
from penstock.windows import (
    MAX_TIME_MS,
    SessionWindow,
    SessionWindows,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
)

HEADERS = Headers([("h", b"1")])


def windowed(start: int, end: int, key: str = "k") -> Windowed[str]:
    return Windowed(key, Window(start, end))


def session(start: int, end: int, key: str = "k") -> Windowed[str]:
    return Windowed(key, SessionWindow(start, end))


def count(windows: Any, **options: Any) -> WindowAggregate:
    return WindowAggregate("s", windows, zero, count_up, **options)


def attach(operator: WindowAggregate, caches: bool = False) -> tuple[FakeNode, Any]:
    node = FakeNode(s=FakeWindowStore(operator.windows.size, caches))
    return node, node.attach(operator)


# time windows


@pytest.mark.parametrize(("size", "advance"), [(10, 10), (10, 5), (10, 3), (7, 2), (5, 1)])
def test_windows_by_time_are_those_of_the_definition(size: int, advance: int) -> None:
    windows = TimeWindows(size, advance)
    windows_of = windows_by_time(windows)
    for timestamp in [*range(40), 3, 100, 99]:
        assert list(windows_of(timestamp)) == list(windows.windows_for(timestamp).values())


@pytest.mark.parametrize("advance", [10, 5])
@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
def test_window_that_ends_after_the_largest_timestamp_is_refused(
    advance: int, cache_bytes: int
) -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=Serdes.string(), value=Serdes.string()).group_by_key()
        .windowed_by(TimeWindows(10, advance)).count(store="counts")
    )
    config = StreamsConfig(application_id="far", statestore_cache_max_bytes=cache_bytes)
    driver = TopologyTestDriver(builder.build(), config)
    with driver, pytest.raises(StreamsException, match="ends after the largest timestamp"):
        driver.pipe("in", b"k", b"v", MAX_TIME_MS)


def test_tumbling_count_is_per_window_with_the_largest_timestamp() -> None:
    _, run = attach(count(TimeWindows(10, 10)))
    assert run("k", "v", 5, HEADERS) == [Sent(windowed(0, 10), Change(1, None), 5, HEADERS)]
    assert run("k", "v", 3) == [Sent(windowed(0, 10), Change(2, None), 5)]
    assert run("k", "v", 10) == [Sent(windowed(10, 20), Change(1, None), 10)]


def test_hopping_windows_are_sent_by_start() -> None:
    _, run = attach(count(TimeWindows(10, 5)))
    assert [sent.key for sent in run("k", "v", 7)] == [windowed(0, 10), windowed(5, 15)]


def test_late_records_are_dropped_once_for_each_closed_window() -> None:
    node, run = attach(count(TimeWindows(10, 5, grace_ms=5)))
    run("k", "v", 20)
    assert run("k", "v", 7) == []
    assert node.dropped == ["expired window"] * 2
    assert [sent.key for sent in run("k", "v", 12)] == [windowed(10, 20)]
    assert len(node.dropped) == 3


def test_null_values_count_and_null_keys_do_not_move_time() -> None:
    node, run = attach(count(TimeWindows(10, 10)))
    assert run(None, "v", 100) == []
    assert node.dropped == ["null key"]
    assert run("k", None, 5) == [Sent(windowed(0, 10), Change(1, None), 5)]


def test_old_value_of_a_new_window_is_the_initial_value() -> None:
    _, run = attach(count(TimeWindows(10, 10), send_old=True))
    assert run("k", "v", 5)[0].value == Change(1, 0)
    assert run("k", "v", 5)[0].value == Change(2, 1)


def test_windowed_reduce_has_no_initial_value() -> None:
    reduce = aggregator_of_reducer(lambda a, b: a + b)
    operator = WindowAggregate("s", TimeWindows(10, 10), no_initial_value, reduce, send_old=True)
    _, run = attach(operator)
    assert run("k", "a", 5)[0].value == Change("a", None)
    assert run("k", "b", 6)[0].value == Change("ab", "a")


def test_unlimited_window_skips_earlier_records_without_counting() -> None:
    node, run = attach(count(UnlimitedWindows(10)))
    assert run("k", "v", 9) == []
    assert node.dropped == []
    assert run("k", "v", 50)[0].key == windowed(10, 2**63 - 1)


def test_cached_windows_are_sent_by_the_cache() -> None:
    node, run = attach(count(TimeWindows(10, 10)), caches=True)
    assert run("k", "v", 5) == []
    node.stores["s"].listener(windowed(0, 10), 1, None, 5, HEADERS)
    assert node.sent == [Sent(windowed(0, 10), Change(1, None), 5, HEADERS)]


def test_window_time_is_kept_between_batches() -> None:
    operator = count(TimeWindows(10, 10))
    node, run = attach(operator)
    run("k", "v", 50)
    assert node.attach(operator)("k", "v", 5) == []
    assert node.dropped == ["expired window"]


def test_closed_windows_are_emitted_once_with_the_headers_of_the_record() -> None:
    node, run = attach(count(TimeWindows(10, 10), emit_final=True))
    assert run("a", "v", 5) == []
    assert run("b", "v", 9) == []
    assert run("a", "v", 10, HEADERS) == [
        Sent(windowed(0, 10, "a"), Change(1, None), 5, HEADERS),
        Sent(windowed(0, 10, "b"), Change(1, None), 9, HEADERS),
    ]
    assert run("a", "v", 19) == []
    assert run("a", "v", 25) == [Sent(windowed(10, 20, "a"), Change(2, None), 19)]
    assert node.counts["emitted-records"] == 3
    assert node.stores["s"].listener is None


def test_grace_delays_the_emission_and_late_records_still_count() -> None:
    _, run = attach(count(TimeWindows(10, 10, grace_ms=5), emit_final=True))
    run("k", "v", 5)
    assert run("k", "v", 14) == []
    assert run("k", "v", 6) == []
    assert run("k", "v", 15) == [Sent(windowed(0, 10), Change(2, None), 6)]


def test_emission_continues_in_the_next_batch() -> None:
    operator = count(TimeWindows(10, 10), emit_final=True)
    node, run = attach(operator)
    run("k", "v", 5)
    assert len(run("k", "v", 10)) == 1
    assert [sent.key for sent in node.attach(operator)("k", "v", 20)] == [windowed(10, 20)]


def test_emit_on_close_needs_time_windows() -> None:
    with pytest.raises(ValueError, match="ON_WINDOW_CLOSE"):
        count(UnlimitedWindows(), emit_final=True)


def test_window_getter_looks_up_the_start() -> None:
    operator = count(TimeWindows(10, 10))
    node, run = attach(operator)
    run("k", "v", 5)
    assert operator.getter_supplier() == WindowGetter("s")
    getter = operator.getter_supplier().attach_getter(node)
    assert (getter.get(windowed(0, 10)), getter.get(windowed(10, 20))) == ((1, 5), None)
    assert not getter.is_versioned


# sessions


def sessions(
    gap: int = 5, grace: int = 0, caches: bool = False, **options: Any
) -> tuple[FakeNode, Any]:
    node = FakeNode(s=FakeSessionStore(caches))
    windows = SessionWindows(gap, grace)
    run = node.attach(SessionAggregate("s", windows, zero, count_up, add_counts, **options))
    return node, run


def test_sessions_grow_and_send_the_old_one_as_a_deletion_without_headers() -> None:
    _, run = sessions(send_old=True)
    assert run("k", "v", 10, HEADERS) == [Sent(session(10, 10), Change(1, None), 10)]
    assert run("k", "v", 15) == [
        Sent(session(10, 10), Change(None, 1), 10),
        Sent(session(10, 15), Change(2, None), 15),
    ]


def test_record_that_bridges_two_sessions_merges_both() -> None:
    _, run = sessions(grace=100)
    run("k", "v", 10)
    run("k", "v", 20)
    assert run("k", "v", 15) == [
        Sent(session(10, 10), Change(None, None), 10),
        Sent(session(20, 20), Change(None, None), 20),
        Sent(session(10, 20), Change(3, None), 20),
    ]


def test_record_inside_a_session_replaces_the_same_window() -> None:
    _, run = sessions(grace=100)
    run("k", "v", 10)
    run("k", "v", 14)
    assert [sent.value.new for sent in run("k", "v", 12)] == [None, 3]


def test_session_of_one_point_in_time_sends_no_tombstone() -> None:
    _, run = sessions()
    run("k", "v", 10)
    assert run("k", "v", 10) == [Sent(session(10, 10), Change(2, None), 10)]


def test_late_session_is_dropped_unless_it_merges_into_an_open_one() -> None:
    node, run = sessions(gap=5)
    run("k", "v", 20)
    assert run("k", "v", 14) == []
    assert node.dropped == ["expired window"]
    assert run("k", "v", 15)[-1] == Sent(session(15, 20), Change(2, None), 20)


def test_sessions_drop_null_keys_but_not_null_values() -> None:
    node, run = sessions()
    assert run(None, "v", 100) == []
    assert node.dropped == ["null key"]
    assert run("k", None, 5) == [Sent(session(5, 5), Change(1, None), 5)]


def test_cached_sessions_are_sent_by_the_cache_at_their_end() -> None:
    node, run = sessions(caches=True)
    assert run("k", "v", 10) == []
    node.stores["s"].listener(session(8, 12), 1, 0, 10, HEADERS)
    assert node.sent == [Sent(session(8, 12), Change(1, 0), 12, HEADERS)]


def test_closed_sessions_are_emitted_once_with_headers() -> None:
    node, run = sessions(gap=5, grace=2, emit_final=True)
    run("k", "v", 10)
    assert run("k", "v", 17) == []
    assert run("k", "v", 18, HEADERS) == [Sent(session(10, 10), Change(1, None), 10, HEADERS)]
    assert run("k", "v", 19) == []
    assert run("k", "v", 50) == [Sent(session(17, 19), Change(3, None), 19)]
    assert node.counts["emitted-records"] == 2


def test_session_getter_returns_the_end_as_timestamp() -> None:
    node, run = sessions()
    run("k", "v", 10)
    getter = SessionGetter("s").attach_getter(node)
    assert (getter.get(session(10, 10)), getter.get(session(1, 2))) == ((1, 10), None)
