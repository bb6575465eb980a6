"""Compatible and incompatible changes of a topology with existing state."""

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
    """An application that repartitions and counts orders."""
    original = ApplicationInfo(
        {
            0: GroupInfo(3, ("orders",), ("app-r-repartition",)),
            1: GroupInfo(3, ("app-r-repartition",), ("out",), ("counts",)),
        },
        {"counts": COUNTS},
    )
    return dataclasses.replace(original, **changes)


def application_with_store(name: str = "counts", **changes: Any) -> ApplicationInfo:
    info = dataclasses.replace(COUNTS, **changes)
    groups = dict(application().groups)
    groups[1] = dataclasses.replace(groups[1], stores=(name,))
    return application(groups=groups, stores={name: info})


def report(old: ApplicationInfo, new: ApplicationInfo) -> CompatibilityReport:
    return compare(old, new, lambda name: f"app-{name}-changelog")


def only_error(old: ApplicationInfo, new: ApplicationInfo) -> str:
    (error,) = report(old, new).errors
    return error


def test_decoding_returns_the_encoded_application() -> None:
    original = application(through_log=("app-x-repartition",))
    assert decode_application(encode_application(original)) == original


def test_newer_format_raises() -> None:
    newer = encode_application(application(format_version=2))
    with pytest.raises(TopologyException, match="last run by a newer version of penstock"):
        decode_application(newer)


@pytest.mark.parametrize("data", [b"?", b"[]", b'{"format_version":1,"groups":3}'])
def test_malformed_data_raises(data: bytes) -> None:
    with pytest.raises(TopologyException, match="cannot be read"):
        decode_application(data)


def test_unchanged_application_is_compatible() -> None:
    assert report(application(), application()) == CompatibilityReport((), (), {0: (0,), 1: (1,)})


def test_new_subtopologies_and_stores_are_compatible() -> None:
    groups = {
        0: GroupInfo(5, ("more",), (), ("others",)),
        1: GroupInfo(3, ("orders",), ("app-r-repartition",)),
        2: GroupInfo(3, ("app-r-repartition",), ("out",), ("counts", "sums")),
    }
    others = StoreInfo("window", 5, "app-others-changelog", 60_000)
    sums = dataclasses.replace(COUNTS, restored_from="app-sums-changelog")
    new = application(groups=groups, stores={"counts": COUNTS, "others": others, "sums": sums})
    # The numbers of sub-topologies have changed; stores and topics identify them.
    assert report(application(), new) == CompatibilityReport((), (), {0: (), 1: (0,), 2: (1,)})


def test_removed_store_gives_a_warning() -> None:
    result = report(application(), application(stores={}))
    assert result.errors == ()
    assert result.warnings == (
        "Store 'counts' is no longer used. Its rows remain in 'app-counts-changelog'. Remove them "
        "with 'penstock topics delete app-counts-changelog'.",
    )


@pytest.mark.parametrize("kind", ["key_value", "timestamped_key_value_with_headers"])
def test_value_format_may_change_within_a_family(kind: str) -> None:
    assert report(application_with_store(), application_with_store(kind=kind)).errors == ()


@pytest.mark.parametrize("kind", ["versioned_key_value", "timestamped_window", "session", "custom"])
def test_change_of_the_store_family_is_an_error(kind: str) -> None:
    assert only_error(application_with_store(), application_with_store(kind=kind)).startswith(
        "Store 'counts' was a timestamped key value store and is now a "
    )


def test_change_of_the_window_size_is_an_error() -> None:
    old, new = (
        application_with_store(kind="window", window_size_ms=size) for size in (60_000, 90_000)
    )
    assert only_error(old, new).startswith(
        "The window size of store 'counts' was 60000 ms and is now 90000 ms."
    )


def test_change_of_retain_duplicates_is_an_error() -> None:
    old, new = (
        application_with_store(kind="window", retain_duplicates=each) for each in (False, True)
    )
    assert "now retains duplicates" in only_error(old, new)
    assert "no longer retains duplicates" in only_error(new, old)


def test_change_of_the_partition_count_is_an_error() -> None:
    groups = {
        number: dataclasses.replace(group, tasks=4)
        for number, group in application().groups.items()
    }
    new = application(groups=groups, stores={"counts": dataclasses.replace(COUNTS, partitions=4)})
    error = only_error(application(), new)
    assert error.startswith("Store 'counts' had 3 partitions and would now have 4. Keys would map")
    assert "The partition count of 'app-r-repartition' has changed." in error


def test_subtopology_without_logged_stores_may_have_more_tasks() -> None:
    groups = dict(application().groups)
    groups[0] = dataclasses.replace(groups[0], tasks=9)
    assert report(application(), application(groups=groups)).errors == ()
    old, new = (
        application_with_store(restored_from=None, partitions=count) for count in (3, 9)
    )
    assert report(old, new).errors == ()


@pytest.mark.parametrize(("topic", "shown"), [(None, "nothing"), ("orders", "'orders'")])
def test_change_of_the_changelog_is_an_error(topic: str | None, shown: str) -> None:
    error = only_error(application_with_store(), application_with_store(restored_from=topic))
    assert f"from {shown}, which does not contain its rows" in error


def test_new_changelog_of_a_store_gives_a_warning() -> None:
    result = report(application_with_store(restored_from=None), application_with_store())
    assert result.errors == ()
    assert result.warnings == (
        "Store 'counts' now has a changelog. Rows written before are not in it.",
    )


def test_changed_number_in_a_generated_store_name_is_an_error() -> None:
    old, new = (
        application_with_store(f"KSTREAM-AGGREGATE-STATE-STORE-000000000{n}",
              restored_from=f"app-KSTREAM-AGGREGATE-STATE-STORE-000000000{n}-changelog")
        for n in (3, 5)
    )
    result = report(old, new)
    assert result.warnings == ()
    assert result.errors[0].startswith(
        "Store 'KSTREAM-AGGREGATE-STATE-STORE-0000000003' was removed, and "
        "'KSTREAM-AGGREGATE-STATE-STORE-0000000005' was added. Generated numbers change"
    )
    assert "store='KSTREAM-AGGREGATE-STATE-STORE-0000000003'" in result.errors[0]


def test_removed_store_with_a_generated_name_is_compatible() -> None:
    old = application_with_store("KSTREAM-JOINTHIS-0000000004-store", restored_from=None)
    assert report(old, application()).errors == ()


NUMBERED = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"


def numbered(**changes: Any) -> ApplicationInfo:
    return application_with_store(
        NUMBERED, restored_from=f"app-{NUMBERED}-changelog", step="KSTREAM-AGGREGATE-0000000004",
        **changes,
    )


@pytest.mark.parametrize("step", ["KSTREAM-AGGREGATE-0000000003", "count-orders"])
def test_new_name_for_a_store_with_a_generated_name_is_an_error(step: str) -> None:
    result = report(numbered(), application_with_store("counts", step=step))
    assert result.warnings == ()
    assert result.errors == (
        f"Store '{NUMBERED}' was removed, and a similar store 'counts' was added. Rows do not move "
        "to a store with another name; they would be lost. Leave the store without a name, or give "
        f"its old one: store='{NUMBERED}'. If 'counts' belongs to another step, start the "
        "application once without it.",
    )


def test_store_of_another_step_in_place_of_a_generated_one_gives_a_warning() -> None:
    step = "KSTREAM-AGGREGATE-0000000003"
    elsewhere = dict(application().groups)
    elsewhere[0] = dataclasses.replace(elsewhere[0], reads=("payments",))
    others = [
        application_with_store("sums", step="KSTREAM-REDUCE-0000000003"),
        application_with_store("sums", step=step, kind="session"),
        application_with_store("sums", step=step, window_size_ms=5),
        application(groups=elsewhere, stores={"counts": dataclasses.replace(COUNTS, step=step)}),
    ]
    for other in others:
        result = report(numbered(), other)
        assert result.errors == ()
        assert len(result.warnings) == 1


def test_generated_name_that_now_belongs_to_another_step_is_an_error() -> None:
    name = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    old = application_with_store(name)
    groups = dict(old.groups)
    groups[0] = dataclasses.replace(groups[0], reads=("payments",))
    new = dataclasses.replace(old, groups=groups)
    assert only_error(old, new).startswith(
        f"Store '{name}' was computed from 'orders' and is now computed from 'payments'."
    )
    # A store that the user named may read other topics.
    groups[1] = dataclasses.replace(groups[1], stores=("counts",))
    assert report(application(), application(groups=groups)).errors == ()


def test_predecessors_are_all_subtopologies_that_had_the_stores() -> None:
    other = dataclasses.replace(COUNTS, restored_from="app-other-changelog")
    stores = {"counts": COUNTS, "other": other}
    apart = ApplicationInfo(
        {0: GroupInfo(3, ("a",), (), ("counts",)), 1: GroupInfo(3, ("b",), (), ("other",))},
        stores,
    )
    together = ApplicationInfo({0: GroupInfo(3, ("a", "b"), (), ("counts", "other"))}, stores)
    assert report(apart, together).predecessors == {0: (0, 1)}
    assert report(together, apart).predecessors == {0: (0,), 1: (0,)}


def test_origins_are_found_across_repartitions_and_cycles() -> None:
    cyclic = ApplicationInfo({
        0: GroupInfo(1, ("a", "app-back-repartition"), ("app-r-repartition",)),
        1: GroupInfo(1, ("app-r-repartition", "b"), ("app-back-repartition",)),
    })
    assert cyclic.origins(1) == {"a", "b"}
