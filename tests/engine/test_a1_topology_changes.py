"""A start that is refused tells how to keep the rows. These tests follow the advice literally."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.changed_topologies import CHANGES, NAMED, TOPICS, Change, Names, Row, extra_branch
from penstock import StreamsBuilder, StreamsConfig, Topology
from penstock.engine.inline import start_inline
from penstock.engine.loop import Engine
from penstock.engine.plan.task_records import APPLICATION_KEY, read_task_records
from penstock.engine.upgrade import apply_upgrade, plan_upgrade
from penstock.errors import TopologyException
from penstock.log import Log, RecordColumns, open_log
from penstock.partitioning import partition_of

_ADVICE = re.compile(
    r"Give the (?P<kind>[a-z -]+) '(?P<step>[^']+)' its old store name: (?P<code>[^;]*?'[^']+'\)?)"
)
_ARGUMENT = re.compile(r"(\w+)='([^']+)'")


class Site:
    """A log on which the versions of an application run one after the other."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.log: Log = open_log(folder / "log.db")
        self.config = StreamsConfig(
            application_id="app", state_dir=str(folder / "state"), statestore_cache_max_bytes=0,
            default_key_serde=None, execution="batch",
        )
        for topic in TOPICS:
            self.log.create_topic(topic, 2, {"retention.ms": -1})

    def send(self, rows: tuple[Row, ...]) -> None:
        for topic, key, value, time in rows:
            self.log.append(topic, partition_of(key.encode(), 2), RecordColumns(
                [key.encode()], [None if value is None else value.encode()], [time]
            ))

    def run(self, topology: Topology, batches: int = 100) -> None:
        lease = self.log.take_lease("app")
        try:
            engine = Engine(topology, self.config, self.log, lease, start_inline)
            while batches and engine.run_batch() is not None:
                batches -= 1
            engine.close()
        finally:
            lease.release()

    def forget_identities(self) -> None:
        """Write the description as earlier versions of penstock did."""
        application = read_task_records(self.log, "app").application
        assert application is not None
        described = json.loads(application)
        del described["topic_lineages"]
        for store in described["stores"].values():
            store["step"] = store["steps"][0]
            for name in ("role", "step_kind", "lineage", "steps", "generated"):
                del store[name]
        value = json.dumps(described).encode()
        self.log.append("app-tasks", 0, RecordColumns([APPLICATION_KEY], [value]))

    def results(self) -> list[list[Any]]:
        """Return the results of each partition."""
        return [
            [
                row for batch in self.log.read("out", number, 0) for rows in [batch.columns()]
                for row in zip(rows.keys, rows.values, rows.timestamps, strict=True)
            ]
            for number in range(2)
        ]


@pytest.fixture
def site(tmp_path: Path) -> Callable[[str], Site]:
    return lambda name: Site(tmp_path / name)


def old_version(change: Change) -> Topology:
    builder = StreamsBuilder()
    change.define(builder, {})
    return builder.build()


def new_version(change: Change, advised: Names | None = None) -> Topology:
    """The same steps after another branch, with later options and with those of the advice."""
    builder = StreamsBuilder()
    extra_branch(builder)
    steps = {*change.later, *(advised or {})}
    change.define(builder, {
        step: {**change.later.get(step, {}), **(advised or {}).get(step, {})} for step in steps
    })
    return builder.build()


def control(site: Site, change: Change) -> list[Any]:
    """Run the old version for all records. Those of the second part give results."""
    found: list[Any] = []
    for rows in (change.first, change.second):
        before = found
        site.send(rows)
        site.run(old_version(change))
        found = site.results()
    assert found != before
    return found


def read_advice(error: TopologyException, change: Change) -> dict[str, dict[str, str]]:
    """Return the options that the message asks for, by the step that it names."""
    advised: dict[str, dict[str, str]] = {}
    for found in _ADVICE.finditer(str(error)):
        step = found["kind"]
        if step == "step":
            # A step is shown by its name; one with a name of the user is found by this name.
            step = next(
                (each for each, options in change.later.items()
                 if options.get("name") == found["step"]),
                re.sub(r"-\d{10}$", "", found["step"]),
            )
        argument = _ARGUMENT.search(found["code"])
        assert argument is not None
        advised.setdefault(step, {})[argument[1]] = argument[2]
    return advised


@pytest.mark.parametrize("name", CHANGES)
def test_following_the_advice_of_a_refused_start_keeps_all_rows(
    name: str, site: Callable[[str], Site]
) -> None:
    change = CHANGES[name]
    expected = control(site("control"), change)
    changed = site("changed")
    changed.send(change.first)
    changed.run(old_version(change))
    with pytest.raises(TopologyException, match="does not fit the existing state") as refused:
        changed.run(new_version(change))
    advised = read_advice(refused.value, change)
    assert advised
    changed.send(change.second)
    changed.run(new_version(change, advised))
    assert changed.results() == expected


@pytest.mark.full
@pytest.mark.parametrize("name", CHANGES)
def test_state_of_an_earlier_version_is_kept(name: str, site: Callable[[str], Site]) -> None:
    change = CHANGES[name]
    expected = control(site("control"), change)
    for kind in ("advised", "moved"):
        changed = site(kind)
        changed.send(change.first)
        changed.run(old_version(change))
        changed.forget_identities()
        with pytest.raises(TopologyException) as refused:
            changed.run(new_version(change))
        new = new_version(change, read_advice(refused.value, change))
        if kind == "moved":
            new = new_version(change)
            plan = plan_upgrade(changed.log, new, changed.config)
            apply_upgrade(changed.log, new, changed.config, plan)
        changed.send(change.second)
        changed.run(new)
        assert changed.results() == expected


@pytest.mark.parametrize("name", CHANGES)
def test_upgrade_moves_the_rows_without_a_change_of_code(
    name: str, site: Callable[[str], Site]
) -> None:
    change = CHANGES[name]
    expected = control(site("control"), change)
    changed = site("changed")
    changed.send(change.first)
    changed.run(old_version(change))
    plan = plan_upgrade(changed.log, new_version(change), changed.config)
    assert plan.refused == ()
    assert not plan.is_compatible
    assert {each.outcome for each in plan.stores} <= {"kept", "moved"}
    apply_upgrade(changed.log, new_version(change), changed.config, plan)
    changed.send(change.second)
    changed.run(new_version(change))
    assert changed.results() == expected
    # The next start finds no change.
    assert plan_upgrade(changed.log, new_version(change), changed.config).is_compatible


@pytest.mark.parametrize("name", NAMED)
def test_named_steps_keep_their_rows_without_advice(
    name: str, site: Callable[[str], Site]
) -> None:
    change = NAMED[name]
    expected = control(site("control"), change)
    changed = site("changed")
    changed.send(change.first)
    changed.run(old_version(change))
    assert plan_upgrade(changed.log, new_version(change), changed.config).is_compatible
    changed.send(change.second)
    changed.run(new_version(change))
    assert changed.results() == expected


def test_upgrade_moves_unread_records_of_internal_topics(site: Callable[[str], Site]) -> None:
    change = CHANGES["foreign-key join"]
    expected = control(site("control"), change)
    changed = site("changed")
    changed.send(change.first)
    # The second batch would read the responses of the right side.
    changed.run(old_version(change), batches=1)
    pinned = {"foreign-key join": {
        "subscription_store": "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000008"
    }}
    with pytest.raises(TopologyException, match="holds 2 unread records"):
        changed.run(new_version(change, pinned))
    plan = plan_upgrade(changed.log, new_version(change), changed.config)
    assert [(each.unread, each.becomes) for each in plan.topics] == [
        (2, "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000015-topic")
    ]
    apply_upgrade(changed.log, new_version(change), changed.config, plan)
    changed.send(change.second)
    changed.run(new_version(change))
    assert changed.results() == expected


@pytest.mark.parametrize("name", ["foreign-key join", "suppress", "outer join"])
def test_application_can_start_without_rows_that_the_user_drops(
    name: str, site: Callable[[str], Site]
) -> None:
    change = CHANGES[name]
    changed = site("changed")
    changed.send(change.first)
    changed.run(old_version(change))
    stores = [
        each.store for each in plan_upgrade(changed.log, new_version(change), changed.config).stores
        if each.outcome == "moved" and each.store is not None
    ]
    plan = plan_upgrade(changed.log, new_version(change), changed.config, drop=stores)
    assert plan.refused == ()
    apply_upgrade(changed.log, new_version(change), changed.config, plan)
    topics = {topic.name for topic in changed.log.topics()}
    assert topics.isdisjoint(f"app-{store}-changelog" for store in stores)
    changed.run(new_version(change))


WRONG = {
    # `store=` of a foreign-key join names its result, `name=` its steps.
    "store of the result": ("foreign-key join", {"store": "{}"}),
    "name of the join": ("foreign-key join", {"name": "{}"}),
    "name of the suppress step": ("suppress updates", {"name": "{}"}),
    "prefix of the join's stores": ("outer join", {"store_name": "{}"}),
    "other side of the join": ("inner join", {"this_store": "{}"}),
}


@pytest.mark.parametrize("case", WRONG)
def test_old_name_in_the_wrong_argument_is_refused(
    case: str, site: Callable[[str], Site]
) -> None:
    name, options = WRONG[case]
    change = CHANGES[name]
    changed = site("changed")
    changed.send(change.first)
    changed.run(old_version(change))
    with pytest.raises(TopologyException) as refused:
        changed.run(new_version(change))
    ((step, advised),) = read_advice(refused.value, change).items()
    old_name = next(iter(advised.values()))
    wrong = {option: value.format(old_name) for option, value in options.items()}
    with pytest.raises(TopologyException, match=f"Store '{old_name}'"):
        changed.run(new_version(change, {step: wrong}))
