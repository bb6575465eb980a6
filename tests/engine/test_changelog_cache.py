"""With a remote log, a replica reads the changes of the committed run from this host."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.harness import Application, config_of, topology_of
from penstock.engine.inline import InlineCompute
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.planner import RECOMMIT_INTERVAL_MS
from penstock.engine.worker.outcome import decode_outcomes
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.kafka.scheme import KAFKA

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
