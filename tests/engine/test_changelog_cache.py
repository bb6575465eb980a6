"""On a remote log the changes of the last run come from this host, if it was the one committed."""

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
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is taken for one at the other end of a network."""
    monkeypatch.setattr(EmbeddedLog, "capabilities", KAFKA.capabilities)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were read."""
    topics: list[str] = []
    really = EmbeddedLog.read

    def noted(log: Any, topic: str, *where: Any, **limits: Any) -> Any:
        topics.append(topic)
        return really(log, topic, *where, **limits)

    monkeypatch.setattr(EmbeddedLog, "read", noted)
    return topics


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Application]:
    def say(builder: Any) -> None:
        counts = builder.stream("in").group_by_key().count(store="counts")
        counts.to_stream().map_values(str).to("out")

    with Application(topology_of(say), tmp_path, {"in": 1, "out": 1}) as app:
        yield app


def kept(app: Application) -> list[Path]:
    return sorted((app.bundle.directory / "0_0").glob("changes-*"))


def outputs(app: Application) -> list[tuple[str, str]]:
    return [(key, value) for key, value, _ in app.texts("out")]


def test_what_was_changed_here_is_not_read_back(app: Application, read: list[str]) -> None:
    app.run()
    for n in range(4):
        app.send("in", ("a", "x", n), ("b", "x", n))
        app.run()
        # One file at a time: that of the last run.
        assert len(kept(app)) == 1
    assert outputs(app) == [(key, str(n)) for n in range(1, 5) for key in "ab"]
    assert read == ["in"] * 4 + ["out"]
    # A host that has nothing reads the changelog, and finds the same.
    app.crash()
    (app.bundle.directory / "0_0").rename(app.bundle.directory / "elsewhere")
    app.send("in", ("a", "x", 9))
    app.run()
    assert outputs(app)[-1] == ("a", "5")
    assert CHANGELOG in read


def test_what_an_earlier_life_has_left_is_removed(app: Application) -> None:
    """After a reset batches are counted from one again."""
    app.send("in", ("a", "x", 1))
    app.run()
    (path,) = kept(app)
    path.rename(path.with_name("changes-99-1"))
    app.send("in", ("a", "x", 2))
    app.run()
    assert [path.name for path in kept(app)] != ["changes-99-1"]
    assert len(kept(app)) == 1


def test_what_was_changed_in_vain_is_not_taken(app: Application) -> None:
    app.send("in", ("a", "x", 1))
    plan = app.plan()
    assert plan is not None
    # It is never committed; then the batch is run again, and others.
    assert decode_outcomes(app.compute.compute(plan))
    app.run()
    app.send("in", ("a", "x", 2), ("b", "x", 2))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2"), ("b", "1")]


@pytest.mark.parametrize("damage", [b"", b"\0" * 500, None])
def test_a_file_that_cannot_be_used_is_no_harm(
    app: Application, read: list[str], damage: bytes | None
) -> None:
    app.send("in", ("a", "x", 1))
    app.run()
    (path,) = kept(app)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    app.send("in", ("a", "x", 2))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2")]
    assert CHANGELOG in read


def test_a_folder_without_room_is_no_harm(
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


def test_a_file_from_before_the_host_was_started_anew_is_not_taken(
    app: Application, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app.send("in", ("a", "x", 1))
    app.run()
    monkeypatch.setattr("penstock.engine.worker.changelog_cache.boot_id", lambda: "another")
    app.send("in", ("a", "x", 2))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2")]
    assert CHANGELOG in read


def test_a_run_without_changes_leaves_nothing(app: Application) -> None:
    app.send("in", ("a", "x", 1))
    app.run()
    app.send("in", (None, "x", 2))
    app.run()
    assert kept(app) == []
    app.send("in", ("a", "x", 3))
    app.run()
    assert outputs(app) == [("a", "1"), ("a", "2")]


def test_a_late_worker_of_another_driver_takes_nothing_back(tmp_path: Path) -> None:
    """At least once: what it publishes comes twice, but what others have counted stays counted."""

    def say(builder: Any) -> None:
        counts = builder.stream("in").group_by_key().count(store="counts")
        counts.to_stream().map_values(str).to("out")

    config = config_of(processing_guarantee="at_least_once")
    with Application(topology_of(say), tmp_path, {"in": 1, "out": 1}, config=config) as app:
        app.send("in", ("a", "x", 1))
        plan = app.plan()
        assert plan is not None
        for n in range(2, 6):
            app.run()
            app.send("in", ("a", "x", n))
        elsewhere = app.config.with_(state_dir=str(tmp_path / "elsewhere"))
        bundle = Bundle(app.topology, elsewhere, app.graph, app.log.address, parallelism=1)
        late = InlineCompute(bundle.dump())
        late.compute(plan)
        late.close()
        app.run()
        assert [value for _, value in outputs(app)] == ["1", "2", "3", "4", "1", "5"]


def test_an_idle_application_commits_its_offsets_once_an_hour(app: Application) -> None:
    """A broker forgets the offsets of an application that commits nothing for a week."""
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
