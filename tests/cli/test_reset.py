"""`penstock reset`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedWriter, BytesIO, RawIOBase, StringIO
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder, StreamsConfig
from penstock.cli.errors import CommandError
from penstock.cli.main import build_parser
from penstock.cli.terminal import Terminal
from penstock.engine import reset
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.layout.upgrade_check import migrate_task_records
from penstock.engine.plan.task_records import BATCH_KEY, BatchRecord, encode_batch
from penstock.engine.reset import (
    ResetTarget,
    apply_reset,
    find_internal_topics,
    plan_reset,
    stopped_application,
)
from penstock.errors import StreamsException
from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import Fenced

TEXT = Serdes.string()
Penstock = Callable[..., Any]
INTERNAL = ["app-counts-changelog", "app-tasks"]


def start(log: Log) -> None:
    """Do what an application does when it starts."""
    builder = StreamsBuilder()
    builder.stream("orders", key=TEXT, value=TEXT).group_by_key().count(store="counts")
    config = StreamsConfig(application_id="app")
    topology = builder.build()
    shape = build_graph_for_log(log, topology, config)
    migrate_task_records(log, None, topology, config, shape)
    ensure_internal_topics(log, shape)


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    """A log with the state of an application that has counted orders."""
    with open_log(path) as opened:
        opened.create_topic("orders", 2, {"retention.ms": -1})
        for partition, times in enumerate(([1_000, 2_000, 3_000], [5_000])):
            count = len(times)
            opened.append("orders", partition, RecordColumns([b"k"] * count, [b"v"] * count, times))
        start(opened)
        batch = encode_batch(BatchRecord(1, 1, {}, {"orders": 2}))
        opened.append("app-tasks", 0, RecordColumns([BATCH_KEY], [batch]))
        opened.append("app-counts-changelog", 0, RecordColumns([b"k"], [b"\0" * 8]))
        opened.commit_offsets(
            "app", {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 1}
        )
        yield opened


def apply(log: Log) -> None:
    plan = plan_reset(log, "app", ResetTarget())
    with stopped_application(log, "app") as lease:
        apply_reset(log, plan, lease)


def topics(log: Log) -> list[str]:
    return [topic.name for topic in log.topics()]


def committed(log: Log) -> dict[int, int]:
    return {at.partition: each.offset for at, each in log.committed("app").items()}


@contextmanager
def running(log: Log) -> Iterator[None]:
    """Hold the lease and renew it."""
    lease = log.take_lease("app", holder="another instance")
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(0.02):
            lease.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_dry_run_shows_all_changes_and_applies_none(
    penstock: Penstock, log: Log, tmp_path: Path
) -> None:
    (tmp_path / "state" / "app").mkdir(parents=True)
    ran = penstock("reset", "app", "--dry-run", "--state-dir", tmp_path / "state")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "TOPIC   PARTITION  BEFORE  AFTER",
        "orders          0       2      0",
        "orders          1       1      0",
        "delete topic 'app-counts-changelog'",
        "delete topic 'app-tasks'",
        f"delete directory '{tmp_path / 'state' / 'app'}'",
    ]
    assert ran.err == "Dry run: nothing was changed.\n"
    assert committed(log) == {0: 2, 1: 1}
    assert topics(log) == [*INTERNAL, "orders"]


def test_confirmation_is_asked_after_the_changes_are_shown(log: Log, path: Path) -> None:
    shown = BytesIO()
    asked: list[str] = []

    class Tty(BytesIO):
        def isatty(self) -> bool:
            return True

        def readline(self, size: int | None = -1, /) -> bytes:
            asked.append(shown.getvalue().decode())
            return b"n\n"

    class Screen(StringIO):
        def isatty(self) -> bool:
            return True

    class Sink(RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            return shown.write(data)

    terminal = Terminal(BufferedWriter(Sink()), Screen(), Tty())
    args = build_parser().parse_args(["reset", "app", "--log", str(path)])
    with pytest.raises(CommandError, match="Nothing was changed"):
        args.run(args, terminal)
    assert "delete topic 'app-counts-changelog'" in asked[0]
    assert topics(log) == [*INTERNAL, "orders"]


def test_reset_deletes_state_and_sets_offsets(penstock: Penstock, log: Log, tmp_path: Path) -> None:
    state = tmp_path / "state" / "app" / "0_0"
    state.mkdir(parents=True)
    (state / "data.mdb").write_bytes(b"rows")
    ran = penstock("reset", "app", "--yes", "--state-dir", tmp_path / "state")
    assert (ran.code, ran.err) == (0, "Done.\n")
    assert topics(log) == ["orders"]
    assert committed(log) == {0: 0, 1: 0}
    assert not (tmp_path / "state" / "app").exists()
    start(log)


def test_second_reset_only_sets_offsets(penstock: Penstock, log: Log) -> None:
    penstock("reset", "app", "--yes")
    ran = penstock("reset", "app", "--yes", "--to-latest", "--json")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"kind": "offset", "topic": "orders", "partition": 0, "before": 0, "after": 3,
         "executed": True},
        {"kind": "offset", "topic": "orders", "partition": 1, "before": 0, "after": 1,
         "executed": True},
    ]


@pytest.mark.parametrize(("options", "offsets"), [
    (("--to-earliest",), {0: 0, 1: 0}),
    (("--to-latest",), {0: 3, 1: 1}),
    (("--to-offset", "2"), {0: 2, 1: 1}),
    (("--shift-by", "-1"), {0: 1, 1: 0}),
    (("--shift-by", "-9"), {0: 0, 1: 0}),
    (("--to-datetime", "2500"), {0: 2, 1: 0}),
    (("--to-datetime", "1970-01-01T00:00:04Z"), {0: 3, 1: 0}),
    (("--by-duration", "PT1H"), {0: 3, 1: 1}),
    (("--by-duration", "999999d"), {0: 0, 1: 0}),
])
def test_reset_target(
    penstock: Penstock, log: Log, options: tuple[str, ...], offsets: dict[int, int]
) -> None:
    assert penstock("reset", "app", "--yes", *options).code == 0
    assert committed(log) == offsets


def test_offsets_from_a_file(penstock: Penstock, log: Log, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,1\n\n orders , 1 , 9\n")
    assert penstock("reset", "app", "--yes", "--from-file", plan).code == 0
    assert committed(log) == {0: 1, 1: 1}
    plan.write_text("orders;0;1\n")
    ran = penstock("reset", "app", "--yes", "--from-file", plan)
    assert ran.code == 1
    assert "Line 1 of" in ran.err


def test_input_topics_limits_the_offsets(penstock: Penstock, log: Log) -> None:
    log.create_topic("more", 1)
    log.commit_offsets("app", {TopicPartition("more", 0): 0})
    ran = penstock("reset", "app", "--input-topics", "more", "--dry-run", "--json")
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [(each["topic"], each["after"]) for each in found if each["kind"] == "offset"] == [
        ("more", 0)
    ]
    assert [each["deleted"] for each in found if each["kind"] == "topic"] == INTERNAL
    ran = penstock("reset", "app", "--yes", "--input-topics", "nothing")
    assert (ran.code, ran.err.startswith("penstock: error: Topic 'nothing' does")) == (1, True)


def test_unknown_application_fails_and_lists_the_applications(penstock: Penstock, log: Log) -> None:
    ran = penstock("reset", "ap")
    assert ran.code == 1
    assert "Application 'ap' does not exist" in ran.err
    assert "Applications: 'app'." in ran.err


def test_internal_topics_of_an_application_with_a_longer_name_are_kept() -> None:
    names = [
        "app-tasks", "app-counts-changelog", "app-two-tasks", "app-two-counts-changelog",
        "app-two-x-repartition", "orders",
    ]
    assert find_internal_topics(names, "app") == ["app-counts-changelog", "app-tasks"]
    assert find_internal_topics(names, "app-two") == [
        "app-two-counts-changelog", "app-two-x-repartition", "app-two-tasks",
    ]


def test_running_application_cannot_be_reset(
    penstock: Penstock, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A renewal shows that the holder is alive; the timeout of the lease need not pass.
    monkeypatch.setattr(reset, "DEFAULT_TIMEOUT_MS", 60_000)
    monkeypatch.setattr(reset, "ACQUIRE_TIMEOUT_MS", 60_000)
    with running(log):
        ran = penstock("reset", "app", "--yes")
    assert ran.code == 1
    assert "Application 'app' is running: another instance holds its lease." in ran.err
    # The plan is not printed.
    assert ran.out == ""
    assert topics(log) == [*INTERNAL, "orders"]


def test_force_fences_a_running_application(penstock: Penstock, log: Log) -> None:
    lease = log.take_lease("app", holder="another instance")
    assert penstock("reset", "app", "--yes", "--force").code == 0
    with pytest.raises(Fenced):
        lease.renew()
    assert topics(log) == ["orders"]
    # The lease was released.
    assert log.candidate("app").try_acquire() is not None


def test_group_with_members_cannot_be_reset(penstock: Penstock, log: Log) -> None:
    member = log.join_group("app", ["orders"])
    ran = penstock("reset", "app", "--yes")
    assert ran.code == 1
    assert ran.out == ""
    assert "Group 'app' has members" in ran.err
    member.leave()
    assert penstock("reset", "app", "--yes").code == 0


class _Killed(Exception):
    """Simulates the death of the process."""


@pytest.mark.parametrize("steps", range(5))
def test_interrupted_reset_is_completed_by_the_next_one(
    log: Log, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    done = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            if done == steps:
                raise _Killed
            done += 1
            return call(*arguments, **options)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(log, "transaction", counted(log.transaction))
        patched.setattr(log, "delete_topic", counted(log.delete_topic))
        try:
            apply(log)
            was_killed = False
        except _Killed:
            was_killed = True
    assert was_killed == (steps < 4)
    if 0 < steps < 4:
        with pytest.raises(StreamsException, match="was interrupted"):
            start(log)
    apply(log)
    assert topics(log) == ["orders"]
    assert committed(log) == {0: 0, 1: 0}
    start(log)


def test_unreadable_task_records_do_not_prevent_a_reset(penstock: Penstock, log: Log) -> None:
    log.append("app-tasks", 0, RecordColumns([BATCH_KEY, b"application"], [b"?", b"?"]))
    assert penstock("reset", "app", "--yes").code == 0
    assert topics(log) == ["orders"]


@pytest.mark.parametrize("arguments", [
    ("--to-earliest", "--to-latest"), ("--by-duration", "soon"), ("--to-offset", "-1"),
])
def test_invalid_options_are_wrong_usage(
    penstock: Penstock, log: Log, arguments: tuple[str, ...]
) -> None:
    assert penstock("reset", "app", *arguments).code == 2
    assert topics(log) == [*INTERNAL, "orders"]
