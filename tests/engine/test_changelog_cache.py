"""With a remote log, a replica reads the changes of the committed run from this host."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.harness import Application, config_of, topology_of
from penstock.engine.inline import InlineCompute
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.planner import RECOMMIT_INTERVAL_MS
from penstock.engine.worker import changelogs
from penstock.engine.worker.outcome import Preparation, decode_outcomes
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.kafka.scheme import KAFKA
from penstock.log.types import LogBatch, TopicPartition

CHANGELOG = "app-counts-changelog"


@pytest.fixture(autouse=True)
def remote_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the embedded log pass for a remote one."""
    monkeypatch.setattr(EmbeddedLog, "capabilities", KAFKA.capabilities)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were read."""
    topics: list[str] = []
    original = EmbeddedLog.read

    def record(log: Any, topic: str, *where: Any, **limits: Any) -> Any:
        topics.append(topic)
        return original(log, topic, *where, **limits)

    monkeypatch.setattr(EmbeddedLog, "read", record)
    return topics


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Application]:
    def build(builder: Any) -> None:
        counts = builder.stream("in").group_by_key().count(store="counts")
        counts.to_stream().map_values(str).to("out")

    with Application(topology_of(build), tmp_path, {"in": 1, "out": 1}) as app:
        yield app


def cached_files(app: Application) -> list[Path]:
    return sorted((app.bundle.directory / "0_0").glob("changes-*"))


def outputs(app: Application) -> list[tuple[str, str]]:
    return [(key, value) for key, value, _ in app.texts("out")]


def test_changes_of_this_host_are_not_read_from_the_log(app: Application, read: list[str]) -> None:
    app.run()
    for n in range(4):
        app.send("in", ("a", "x", n), ("b", "x", n))
        app.run()
        # Only the file of the last run exists.
        assert len(cached_files(app)) == 1
    assert outputs(app) == [(key, str(n)) for n in range(1, 5) for key in "ab"]
    assert read == ["in"] * 4 + ["out"]
    # A host without files reads the changelog.
    app.crash()
    (app.bundle.directory / "0_0").rename(app.bundle.directory / "moved")
    app.send("in", ("a", "x", 9))
    app.run()
    assert outputs(app)[-1] == ("a", "5")
    assert CHANGELOG in read


def test_files_of_an_earlier_incarnation_are_deleted(app: Application) -> None:
    """After a reset, batch numbers start at one again."""
    app.send("in", ("a", "x", 1))
    app.run()
    (path,) = cached_files(app)
    path.rename(path.with_name("changes-99-1"))
    app.send("in", ("a", "x", 2))
    app.run()
    assert [path.name for path in cached_files(app)] != ["changes-99-1"]
    assert len(cached_files(app)) == 1


def test_changes_of_an_uncommitted_run_are_ignored(app: Application) -> None:
    app.send("in", ("a", "x", 1))
    plan = app.plan()
    assert plan is not None
    # This run is not committed. `run` computes the batch again.
    assert decode_outcomes(app.compute.compute(plan))
    app.run()
    app.send("in", ("a", "x", 2), ("b", "x", 2))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2"), ("b", "1")]


@pytest.mark.parametrize("damage", [b"", b"\0" * 500, None])
def test_damaged_file_is_ignored(
    app: Application, read: list[str], damage: bytes | None
) -> None:
    app.send("in", ("a", "x", 1))
    app.run()
    (path,) = cached_files(app)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    app.send("in", ("a", "x", 2))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2")]
    assert CHANGELOG in read


def test_full_disk_is_tolerated(
    app: Application, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    for n in range(3):
        app.send("in", ("a", "x", n))
        app.run()
    assert outputs(app) == [("a", "1"), ("a", "2"), ("a", "3")]
    assert CHANGELOG in read


def test_file_from_before_a_reboot_is_ignored(
    app: Application, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app.send("in", ("a", "x", 1))
    app.run()
    monkeypatch.setattr("penstock.engine.worker.changelog_cache.boot_id", lambda: "another")
    app.send("in", ("a", "x", 2))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2")]
    assert CHANGELOG in read


def test_run_without_changes_leaves_no_file(app: Application) -> None:
    app.send("in", ("a", "x", 1))
    app.run()
    app.send("in", (None, "x", 2))
    app.run()
    assert cached_files(app) == []
    app.send("in", ("a", "x", 3))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2")]


def test_late_worker_of_another_driver_does_not_overwrite_state(tmp_path: Path) -> None:
    """With at-least-once its outputs appear twice, but the counts stay correct."""

    def build(builder: Any) -> None:
        counts = builder.stream("in").group_by_key().count(store="counts")
        counts.to_stream().map_values(str).to("out")

    config = config_of(processing_guarantee="at_least_once")
    with Application(topology_of(build), tmp_path, {"in": 1, "out": 1}, config=config) as app:
        app.send("in", ("a", "x", 1))
        plan = app.plan()
        assert plan is not None
        for n in range(2, 6):
            app.run()
            app.send("in", ("a", "x", n))
        other = app.config.with_(state_dir=str(tmp_path / "other"))
        bundle = Bundle(app.topology, other, app.graph, app.log.address, parallelism=1)
        late = InlineCompute(bundle.dump())
        late.compute(plan)
        late.close()
        app.run()
        assert [value for _, value in outputs(app)] == ["1", "2", "3", "4", "1", "5"]


def test_idle_application_commits_its_offsets_once_an_hour(app: Application) -> None:
    """A broker deletes offsets that were not committed for a week."""
    app.send("in", ("a", "x", 1))
    app.now = 1_000
    app.run()
    app.now += RECOMMIT_INTERVAL_MS - 1
    assert app.run() == 0
    app.now += 1
    done = app.run_batch()
    assert done is not None
    assert done.offsets == {("in", 0): 1}
    assert app.run() == 0
    assert outputs(app) == [("a", "1")]


# ---- other hosts -------------------------------------------------------------------------------


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, tuple[int, int]]]:
    """The ranges of each call of `prefetch`, which the embedded log does not implement."""
    calls: list[dict[TopicPartition, tuple[int, int]]] = []

    def prefetch(log: Any, ranges: Any, *, timeout_s: float = 0.0) -> dict[Any, LogBatch]:
        calls.append(dict(ranges))
        found = {}
        for where, (start, end) in ranges.items():
            batches = list(log.read(*where, start, end))
            records = pa.concat_batches([batch.records for batch in batches])
            found[where] = LogBatch(*where, records, end, 0)
        return found

    monkeypatch.setattr(EmbeddedLog, "prefetch", prefetch)
    return calls


@pytest.fixture
def many_stores(tmp_path: Path) -> Iterator[Application]:
    """Two tasks with two stores each, in one lane."""
    def build(builder: Any) -> None:
        words = builder.stream("in")
        for name in ("first", "second"):
            words.group_by_key().count(store=name).to_stream().map_values(str).to("out")

    topics = {"in": 2, "out": 2}
    with Application(topology_of(build), tmp_path, topics, parallelism=1) as app:
        yield app


def move_to_another_host(app: Application) -> None:
    app.crash()
    app.bundle.directory.rename(app.bundle.directory.with_name(uuid.uuid4().hex))


def changelog_ranges(
    fetched: list[dict[TopicPartition, tuple[int, int]]]
) -> list[dict[TopicPartition, tuple[int, int]]]:
    return [call for call in fetched if any("changelog" in at.topic for at in call)]


def test_stores_of_a_lane_are_fetched_together(
    many_stores: Application, fetched: list[dict[TopicPartition, tuple[int, int]]],
    read: list[str],
) -> None:
    app = many_stores
    rows = [(key, "x", 1) for key in "abcdef"]
    app.send("in", *rows)
    app.run()
    app.send("in", *rows)
    app.run()
    assert changelog_ranges(fetched) == []
    move_to_another_host(app)
    app.send("in", *rows)
    read.clear()
    app.run()
    [ranges] = changelog_ranges(fetched)
    assert sorted(ranges) == [
        TopicPartition(f"app-{store}-changelog", partition)
        for store in ("first", "second") for partition in range(2)
    ]
    assert [topic for topic in read if "changelog" in topic] == [at.topic for at in ranges]
    assert sorted(outputs(app)) == sorted(
        (key, str(count)) for key in "abcdef" for count in (1, 2, 3) for _ in range(2)
    )


def test_preparation_counts_only_what_a_usual_batch_does_not_need(
    many_stores: Application, fetched: list[dict[TopicPartition, tuple[int, int]]]
) -> None:
    app = many_stores
    rows = [(key, "x", 1) for key in "abcdef"]

    def preparations() -> list[Preparation]:
        app.send("in", *rows)
        app.run_batch()
        return [outcome.preparation for outcome in app.outcomes]

    assert all(each.is_cold and each.seconds > 0 for each in preparations())
    assert preparations() == [Preparation(0.0, False, 0, 2)] * 2
    move_to_another_host(app)
    assert all(each.from_log == 2 and each.seconds > 0 for each in preparations())
    assert preparations() == [Preparation(0.0, False, 0, 2)] * 2


def test_large_changelogs_are_read_one_by_one(
    many_stores: Application, fetched: list[dict[TopicPartition, tuple[int, int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = many_stores
    app.send("in", *((key, "x", 1) for key in "abcdef"))
    app.run()
    monkeypatch.setattr(changelogs, "_MAX_FETCHED_OFFSETS", 5)
    move_to_another_host(app)
    app.send("in", *((key, "x", 1) for key in "abcdef"))
    app.run()
    [ranges] = changelog_ranges(fetched)
    assert 0 < len(ranges) < 4
    assert ("a", "2") in outputs(app)
