"""Compatible and incompatible changes of a topology with existing state."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.errors import TopologyException
from penstock.topology.application_info import (
    ApplicationInfo,
    GroupInfo,
    StoreInfo,
    decode_application,
    encode_application,
)
from penstock.topology.compatibility import CompatibilityReport, StoreDecisions, compare
from penstock.topology.store_matching import StoreMatches

SAME = StoreMatches({"counts": "counts"})
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
    names = StoreInfo("timestamped_key_value", 2, "names", role="rows", serdes=("string", "long"))
    original = application(through_log=("app-x-repartition",), global_stores={"names": names})
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
    assert report(application(), application()) == CompatibilityReport(
        (), (), {0: (0,), 1: (1,)}, SAME
    )


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
    assert report(application(), new) == CompatibilityReport(
        (), (), {0: (), 1: (0,), 2: (1,)}, SAME
    )


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


NUMBERED = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
RENUMBERED = "KSTREAM-AGGREGATE-STATE-STORE-0000000005"


def numbered(name: str = NUMBERED, **changes: Any) -> ApplicationInfo:
    """An application as an earlier version of penstock describes it: without identities."""
    changes = {"step": "KSTREAM-AGGREGATE-0000000004", **changes}
    return application_with_store(name, restored_from=f"app-{name}-changelog", **changes)


def identified(name: str = NUMBERED, **changes: Any) -> ApplicationInfo:
    """An application with identities."""
    return numbered(name, **{
        "role": "rows", "step_kind": "AggregateNode.StreamAggregate", "lineage": "l",
        "steps": ("KSTREAM-AGGREGATE-0000000004",), "generated": True, **changes,
    })


@pytest.mark.parametrize("describe", [numbered, identified])
def test_changed_number_in_a_generated_store_name_is_an_error(describe: Any) -> None:
    result = report(describe(), describe(RENUMBERED))
    assert result.warnings == ()
    assert result.errors == (
        f"Store '{NUMBERED}' is now named '{RENUMBERED}', so its rows would be lost. Generated "
        "numbers change when steps are added or removed. Give the step "
        f"'KSTREAM-AGGREGATE-0000000004' its old store name: store='{NUMBERED}'. If "
        f"'{RENUMBERED}' is another store, drop the rows: --drop {NUMBERED}.",
    )


def test_renumbered_store_of_a_source_topic_is_compatible() -> None:
    old, new = (
        application_with_store(f"orders-STATE-STORE-000000000{number}", restored_from="orders")
        for number in (1, 2)
    )
    result = report(old, new)
    assert (result.errors, result.warnings) == ((), ())


def test_removed_store_with_a_generated_name_is_compatible() -> None:
    old = application_with_store("KSTREAM-JOINTHIS-0000000004-store", retain_duplicates=True)
    assert report(old, application()).errors == ()


@pytest.mark.parametrize("step", ["KSTREAM-AGGREGATE-0000000003", "count-orders"])
def test_new_name_for_a_store_with_a_generated_name_is_an_error(step: str) -> None:
    result = report(numbered(), application_with_store("counts", step=step))
    assert result.warnings == ()
    assert result.errors == (
        f"Store '{NUMBERED}' is now named 'counts', so its rows would be lost. Rows stay with the "
        f"old name. Give the step '{step}' its old store name: store='{NUMBERED}'. If 'counts' is "
        f"another store, drop the rows: --drop {NUMBERED}.",
    )


def test_other_name_for_a_store_of_the_user_is_an_error() -> None:
    new = application_with_store("sums", step="count")
    (error,) = report(application_with_store(step="count"), new).errors
    assert error == (
        "Store 'counts' was removed, and 'sums' may continue it. Rows stay with the old name, so "
        "they would be lost. Give the step that continues the store ('count') its old store name: "
        "store='counts'; or move the rows: --keep counts=sums. If none does, drop the rows: "
        "--drop counts."
    )
    kept = StoreDecisions({"counts": "sums"}, move=True)
    assert compare(
        application_with_store(step="count"), application_with_store("sums", step="count",
        restored_from="app-sums-changelog"), lambda name: f"app-{name}-changelog", kept,
    ).errors == ()
    dropped = StoreDecisions(drop=frozenset({"counts"}))
    assert compare(
        application_with_store(step="count"), new, lambda name: f"app-{name}-changelog", dropped
    ).errors == ()


def test_store_of_another_kind_in_place_of_a_generated_one_gives_a_warning() -> None:
    step = "KSTREAM-AGGREGATE-0000000003"
    others = [
        application_with_store("sums", step=step, kind="session"),
        application_with_store("sums", step=step, window_size_ms=5),
    ]
    for other in others:
        result = report(numbered(), other)
        assert result.errors == ()
        assert "is no longer used" in result.warnings[0]


def test_store_of_the_same_kind_in_place_of_a_removed_one_is_refused() -> None:
    step = "KSTREAM-AGGREGATE-0000000003"
    elsewhere = dict(application().groups)
    elsewhere[0] = dataclasses.replace(elsewhere[0], reads=("payments",))
    others = [
        application_with_store("sums", step="KSTREAM-REDUCE-0000000003"),
        application(groups=elsewhere, stores={"counts": dataclasses.replace(COUNTS, step=step)}),
    ]
    for other in others:
        (error,) = report(numbered(), other).errors
        assert "was removed, and '" in error
        assert "--drop KSTREAM-AGGREGATE-STATE-STORE-0000000003" in error
    reduced = identified(RENUMBERED, step_kind="AggregateNode.StreamReduce", lineage="m")
    assert len(report(identified(), reduced).errors) == 1


def test_generated_name_that_now_belongs_to_another_step_is_an_error() -> None:
    old = numbered()
    groups = dict(old.groups)
    groups[0] = dataclasses.replace(groups[0], reads=("payments",))
    new = dataclasses.replace(old, groups=groups)
    assert only_error(old, new) == (
        f"Store '{NUMBERED}' now belongs to another step: it was computed from 'orders', and now "
        "it is from 'payments'. Generated numbers change when steps are added or removed. Name the "
        "store of the step 'KSTREAM-AGGREGATE-0000000004': store='another-name'. If the earlier "
        f"rows are not needed, drop them: --drop {NUMBERED}."
    )
    # A store that the user named may read other topics.
    groups[1] = dataclasses.replace(groups[1], stores=("counts",))
    assert report(application(), application(groups=groups)).errors == ()


def test_generated_name_with_another_purpose_is_an_error() -> None:
    old = identified(role="subscriptions", step_kind="ForeignKeyJoinNode.Deferred")
    new = identified(generated=False)
    assert only_error(old, new) == (
        f"Store '{NUMBERED}' belonged to a foreign-key join, as subscription_store='{NUMBERED}', "
        "and is now another store of the step 'KSTREAM-AGGREGATE-0000000004'. It cannot use the "
        "existing rows. Give the name with the first argument, or rename the store and drop the "
        f"rows: --drop {NUMBERED}."
    )


def several(*names: str, **lineages: str) -> ApplicationInfo:
    """An application with several equal steps; `lineages` of those that differ, by last digit."""
    info = identified().stores[NUMBERED]
    stores = {
        name: dataclasses.replace(
            info, lineage=lineages.get(f"n{name[-1]}", "l"), step=f"step-{name[-1]}",
            restored_from=f"app-{name}-changelog",
        )
        for name in (f"KSTREAM-AGGREGATE-STATE-STORE-000000000{number}" for number in names)
    }
    return application(
        groups={0: GroupInfo(3, ("orders",), (), tuple(stores))}, stores=stores
    )


def renamed(old: ApplicationInfo, new: ApplicationInfo) -> dict[str, str]:
    """Earlier store -> new store, by their last digits."""
    matches = report(old, new).matches
    assert matches.unclear == {}
    return {name[-1]: other[-1] for name, other in matches.continued.items()}


def test_equal_steps_are_matched_in_their_order() -> None:
    assert renamed(several("3", "5"), several("4", "6")) == {"3": "4", "5": "6"}
    assert renamed(several("3", "5"), several("5", "7")) == {"3": "5", "5": "7"}
    assert renamed(several("3", "5"), several("3", "7")) == {"3": "3", "5": "7"}


def test_steps_are_matched_by_their_lineage_before_their_names() -> None:
    old, new = several("3", "5", n5="m"), several("3", "5", n3="m", n5="l")
    assert renamed(old, new) == {"3": "5", "5": "3"}


def test_step_with_another_step_upstream_keeps_its_name() -> None:
    assert renamed(several("3", n3="l"), several("3", n3="m")) == {"3": "3"}
    assert renamed(several("3", "5", n5="m"), several("4", "6", n4="x", n6="y")) == {
        "3": "4", "5": "6"
    }


def test_advice_frees_an_old_name_that_a_new_step_has_taken() -> None:
    (error,) = report(several("3"), several("3", "5", n3="m")).errors
    assert (
        f"Give the step 'step-5' its old store name: store='{NUMBERED}'. The step 'step-3' has "
        "that name now; give its store another one: store='another-name'."
    ) in error
    # A step that gets its own old name back frees the name that it has now.
    assert not any(
        "another-name" in error for error in report(several("3", "5"), several("5", "7")).errors
    )


def test_dropped_store_does_not_make_equal_steps_unclear() -> None:
    def matches(old: ApplicationInfo, new: ApplicationInfo, *drop: str) -> dict[str, str]:
        dropped = StoreDecisions(drop=frozenset(
            f"KSTREAM-AGGREGATE-STATE-STORE-000000000{number}" for number in drop
        ), move=True)
        found = compare(old, new, lambda name: f"app-{name}-changelog", dropped)
        assert found.errors == ()
        return {name[-1]: other[-1] for name, other in found.matches.continued.items()}

    assert matches(several("3", "5"), several("3", "5"), "3") == {"5": "5"}
    # The user says which one of the equal steps is removed.
    assert matches(several("3", "5", "7"), several("3", "5"), "5") == {"3": "3", "7": "5"}


@pytest.mark.parametrize(
    ("before", "after"), [(("3", "5"), ("3", "5", "7")), (("3", "5", "7"), ("3", "5"))]
)
def test_another_number_of_equal_steps_is_an_error(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    # The new or removed step need not be the last one: rows would belong to other steps.
    result = report(several(*before), several(*after))
    assert len(result.errors) == len(before)
    assert "Numbers do not tell which step is new." in result.errors[0]
    assert f"store='{NUMBERED}', and give the stores of new steps other names" in result.errors[0]


def test_description_of_an_earlier_version_is_completed() -> None:
    names = {
        "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000008": "subscriptions",
        "pairs-subscription-store": "subscriptions",
        "KSTREAM-OUTERSHARED-0000000004-store": "shared", "x-left-shared-join-store": "shared",
        NUMBERED: "rows",
    }
    windows = {
        "KSTREAM-JOINTHIS-0000000004-store": "this", "KSTREAM-OUTEROTHER-0000000005-store": "other",
        "x-this-join-store": "this", "x-outer-other-join-store": "other", "mine": "",
    }
    for name, role in names.items():
        assert StoreInfo("key_value", 1).completed(name).role == role
    for name, role in windows.items():
        assert StoreInfo("window", 1, retain_duplicates=True).completed(name).role == role
    assert StoreInfo("suppress_buffer", 1).completed("x").role == "suppress"
    assert StoreInfo("join_buffer", 1, step="s").completed("x").role == "grace"
    assert StoreInfo("join_buffer", 1, step="s").completed("x").steps == ("s",)
    assert [StoreInfo("key_value", 1).completed(name).generated for name in ("x", NUMBERED)] == [
        False, True
    ]


def test_description_without_identities_can_be_decoded() -> None:
    data = (
        b'{"format_version":1,"groups":{},"stores":{"counts":{"kind":"timestamped_key_value",'
        b'"partitions":3,"restored_from":"app-counts-changelog","window_size_ms":null,'
        b'"retain_duplicates":false,"step":"count"}},"through_log":[]}'
    )
    assert decode_application(data).stores == {"counts": dataclasses.replace(COUNTS, step="count")}
    assert decode_application(data).global_stores == {}


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
    cyclic = dataclasses.replace(
        cyclic, groups={**cyclic.groups, 1: dataclasses.replace(cyclic.groups[1], stores=("s",))}
    )
    assert cyclic.origins("s") == {"a", "b"}
