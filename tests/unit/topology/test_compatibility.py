"""Which changes of a topology keep the state of its application, and which are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.errors import TopologyException
from penstock.topology.compatibility import (
    ApplicationInfo,
    CompatibilityReport,
    GroupInfo,
    StoreInfo,
    compare,
    decode_application,
    encode_application,
)

COUNTS = StoreInfo("timestamped_key_value", 3, "app-counts-changelog")


def application(**changes: Any) -> ApplicationInfo:
    """Orders are repartitioned and counted."""
    before = ApplicationInfo(
        {
            0: GroupInfo(3, ("orders",), ("app-r-repartition",)),
            1: GroupInfo(3, ("app-r-repartition",), ("out",), ("counts",)),
        },
        {"counts": COUNTS},
    )
    return dataclasses.replace(before, **changes)


def store(name: str = "counts", **changes: Any) -> ApplicationInfo:
    facts = dataclasses.replace(COUNTS, **changes)
    groups = dict(application().groups)
    groups[1] = dataclasses.replace(groups[1], stores=(name,))
    return application(groups=groups, stores={name: facts})


def changes(old: ApplicationInfo, new: ApplicationInfo) -> CompatibilityReport:
    return compare(old, new, lambda name: f"app-{name}-changelog")


def refusal(old: ApplicationInfo, new: ApplicationInfo) -> str:
    (one,) = changes(old, new).refused
    return one


def test_a_description_comes_back_as_it_was() -> None:
    described = application(through_log=("app-x-repartition",))
    assert decode_application(encode_application(described)) == described


def test_a_description_of_a_newer_penstock_is_refused() -> None:
    newer = encode_application(application(format_version=2))
    with pytest.raises(TopologyException, match="last run by a newer penstock"):
        decode_application(newer)


@pytest.mark.parametrize("data", [b"?", b"[]", b'{"format_version":1,"groups":3}'])
def test_a_description_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(TopologyException, match="cannot be read"):
        decode_application(data)


def test_nothing_is_said_about_an_application_that_is_the_same() -> None:
    assert changes(application(), application()) == CompatibilityReport((), (), {0: (0,), 1: (1,)})


def test_new_sub_topologies_and_stores_are_taken() -> None:
    groups = {
        0: GroupInfo(5, ("more",), (), ("others",)),
        1: GroupInfo(3, ("orders",), ("app-r-repartition",)),
        2: GroupInfo(3, ("app-r-repartition",), ("out",), ("counts", "sums")),
    }
    others = StoreInfo("window", 5, "app-others-changelog", 60_000)
    sums = dataclasses.replace(COUNTS, restored_from="app-sums-changelog")
    new = application(groups=groups, stores={"counts": COUNTS, "others": others, "sums": sums})
    # They have other numbers now, and are known by their stores and topics.
    assert changes(application(), new) == CompatibilityReport((), (), {0: (), 1: (0,), 2: (1,)})


def test_a_store_that_is_removed_is_warned_of() -> None:
    found = changes(application(), application(stores={}))
    assert found.refused == ()
    assert found.warnings == (
        "Store 'counts' is not used any more. Its rows are left in 'app-counts-changelog'; "
        "'penstock topics delete app-counts-changelog' removes them.",
    )


@pytest.mark.parametrize("kind", ["key_value", "timestamped_key_value_with_headers"])
def test_a_store_may_keep_more_or_less_beside_its_values(kind: str) -> None:
    assert changes(store(), store(kind=kind)).refused == ()


@pytest.mark.parametrize("kind", ["versioned_key_value", "timestamped_window", "session", "custom"])
def test_a_store_of_another_kind_is_refused(kind: str) -> None:
    assert refusal(store(), store(kind=kind)).startswith(
        "Store 'counts' was a timestamped key value store and is a "
    )


def test_windows_of_another_size_are_refused() -> None:
    old, new = (store(kind="window", window_size_ms=size) for size in (60_000, 90_000))
    assert refusal(old, new).startswith(
        "The windows of store 'counts' had 60000 ms and have 90000 ms."
    )


def test_duplicates_may_not_come_or_go() -> None:
    old, new = (store(kind="window", retain_duplicates=each) for each in (False, True))
    assert "keeps duplicates, and did not before" in refusal(old, new)
    assert "kept duplicates, and does not any more" in refusal(new, old)


def test_another_number_of_partitions_is_refused() -> None:
    groups = {
        number: dataclasses.replace(group, tasks=4)
        for number, group in application().groups.items()
    }
    new = application(groups=groups, stores={"counts": dataclasses.replace(COUNTS, partitions=4)})
    told = refusal(application(), new)
    assert told.startswith("Store 'counts' had 3 partitions and would have 4: keys would be")
    assert "The partitions of 'app-r-repartition' have changed." in told


def test_a_sub_topology_without_logged_stores_may_have_more_tasks() -> None:
    groups = dict(application().groups)
    groups[0] = dataclasses.replace(groups[0], tasks=9)
    assert changes(application(), application(groups=groups)).refused == ()
    old, new = store(restored_from=None), store(restored_from=None, partitions=9)
    assert changes(old, new).refused == ()


def test_a_store_that_is_restored_from_elsewhere_is_refused() -> None:
    assert "from nothing: its rows are not there" in refusal(store(), store(restored_from=None))
    assert "from 'orders': its rows are not there" in refusal(
        store(), store(restored_from="orders")
    )


def test_a_store_that_is_logged_from_now_on_is_warned_of() -> None:
    found = changes(store(restored_from=None), store())
    assert found.refused == ()
    assert found.warnings == (
        "Store 'counts' is logged from now on. What it held before is not in its changelog.",
    )


def test_a_store_whose_number_has_moved_is_refused() -> None:
    old, new = (
        store(f"KSTREAM-AGGREGATE-STATE-STORE-000000000{n}",
              restored_from=f"app-KSTREAM-AGGREGATE-STATE-STORE-000000000{n}-changelog")
        for n in (3, 5)
    )
    found = changes(old, new)
    assert found.warnings == ()
    assert found.refused[0].startswith(
        "Store 'KSTREAM-AGGREGATE-STATE-STORE-0000000003' is gone, and there is a new one, "
        "'KSTREAM-AGGREGATE-STATE-STORE-0000000005': names with numbers move"
    )
    assert "store='KSTREAM-AGGREGATE-STATE-STORE-0000000003'" in found.refused[0]


def test_a_numbered_store_that_is_only_removed_is_no_reason_to_refuse() -> None:
    old = store("KSTREAM-JOINTHIS-0000000004-store", restored_from=None)
    assert changes(old, application()).refused == ()


NUMBERED = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"


def numbered(**changes: Any) -> ApplicationInfo:
    return store(
        NUMBERED, restored_from=f"app-{NUMBERED}-changelog", step="KSTREAM-AGGREGATE-0000000004",
        **changes,
    )


@pytest.mark.parametrize("step", ["KSTREAM-AGGREGATE-0000000003", "count-orders"])
def test_a_numbered_store_that_gets_a_name_is_refused(step: str) -> None:
    found = changes(numbered(), store("counts", step=step))
    assert found.warnings == ()
    assert found.refused == (
        f"Store '{NUMBERED}' is gone, and there is a new one like it, 'counts': rows do not go "
        "along to another name, so they would be lost. Leave the store without a name, or say the "
        f"one that it has: store='{NUMBERED}'. If 'counts' belongs to another step, start once "
        "without it.",
    )


def test_a_numbered_store_that_gives_way_to_that_of_another_step_is_only_warned_of() -> None:
    step = "KSTREAM-AGGREGATE-0000000003"
    elsewhere = dict(application().groups)
    elsewhere[0] = dataclasses.replace(elsewhere[0], reads=("payments",))
    others = [
        store("sums", step="KSTREAM-REDUCE-0000000003"), store("sums", step=step, kind="session"),
        store("sums", step=step, window_size_ms=5),
        application(groups=elsewhere, stores={"counts": dataclasses.replace(COUNTS, step=step)}),
    ]
    for other in others:
        found = changes(numbered(), other)
        assert found.refused == ()
        assert len(found.warnings) == 1


def test_a_number_that_stands_for_another_step_is_refused() -> None:
    name = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    old = store(name)
    groups = dict(old.groups)
    groups[0] = dataclasses.replace(groups[0], reads=("payments",))
    new = dataclasses.replace(old, groups=groups)
    assert refusal(old, new).startswith(
        f"Store '{name}' was made from 'orders' and is made from 'payments'."
    )
    # One that has a name may be fed from wherever its owner likes.
    groups[1] = dataclasses.replace(groups[1], stores=("counts",))
    assert changes(application(), application(groups=groups)).refused == ()


def test_a_sub_topology_goes_on_from_all_that_had_its_stores() -> None:
    other = dataclasses.replace(COUNTS, restored_from="app-other-changelog")
    stores = {"counts": COUNTS, "other": other}
    apart = ApplicationInfo(
        {0: GroupInfo(3, ("a",), (), ("counts",)), 1: GroupInfo(3, ("b",), (), ("other",))},
        stores,
    )
    together = ApplicationInfo({0: GroupInfo(3, ("a", "b"), (), ("counts", "other"))}, stores)
    assert changes(apart, together).continues == {0: (0, 1)}
    assert changes(together, apart).continues == {0: (0,), 1: (0,)}


def test_origins_are_found_through_repartitions_and_circles() -> None:
    described = ApplicationInfo({
        0: GroupInfo(1, ("a", "app-back-repartition"), ("app-r-repartition",)),
        1: GroupInfo(1, ("app-r-repartition", "b"), ("app-back-repartition",)),
    })
    assert described.origins(1) == {"a", "b"}
