"""The state directory and the native core on the hosts of a cluster."""

from __future__ import annotations

import stat
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from zipimport import zipimporter

import pytest

import penstock
from penstock import StreamsBuilder, StreamsConfig, native
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.packaging import state_directory
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.state_directory import resolve_on_host
from penstock.engine.worker.notices import native_notices
from penstock.errors import ProcessorStateException
from penstock.log import open_log

CreateBundle = Callable[[str], Bundle]


@pytest.fixture
def create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CreateBundle:
    """Creates bundles. The driver runs in `driver`."""
    (tmp_path / "driver").mkdir()
    monkeypatch.chdir(tmp_path / "driver")

    def create(state_dir: str) -> Bundle:
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        topology = builder.build()
        config = StreamsConfig(application_id="app", log=tmp_path / "log.db", state_dir=state_dir)
        with open_log(tmp_path / "log.db") as log:
            if not log.topics():
                log.create_topic("in")
            graph = build_graph_for_log(log, topology, config)
            return Bundle(topology, config, graph, log.address, 1)

    return create


def on_host(bundle: Bundle, host: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a bundle on another host with its own temporary directory."""
    host.mkdir()
    packed = bundle.dump()
    monkeypatch.chdir(host)
    monkeypatch.setattr(tempfile, "tempdir", str(host))
    return Bundle.load(packed).directory


def test_relative_state_directory_is_that_of_the_driver_on_its_own_host(
    create: CreateBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = create("state")
    assert bundle.directory == tmp_path / "driver" / "state" / "app"
    assert on_host(bundle, tmp_path / "worker", monkeypatch) == bundle.directory


def test_relative_state_directory_is_a_temporary_one_on_other_hosts(
    create: CreateBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = replace(create("state"), is_local=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # The driver's own directory must not travel with the bundle.
    assert bundle.directory.is_relative_to(tmp_path)
    found = on_host(bundle, tmp_path / "worker", monkeypatch)
    assert found.parts[-2:] == ("state", "app")
    assert found.is_relative_to(tmp_path / "worker")
    assert stat.S_IMODE(found.parents[1].stat().st_mode) == 0o700


def test_absolute_state_directory_is_the_same_on_all_hosts(
    create: CreateBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = replace(create(str(tmp_path / "disk")), is_local=False)
    assert on_host(bundle, tmp_path / "worker", monkeypatch) == tmp_path / "disk" / "app"


def test_state_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    owner = resolve_on_host("state").parent.stat().st_uid
    monkeypatch.setattr(state_directory.os, "getuid", lambda: owner + 1)
    (tmp_path / f"penstock-{owner + 1}").mkdir()
    with pytest.raises(ProcessorStateException, match="belongs to another user"):
        resolve_on_host("state")


def test_worker_without_the_native_core_of_the_driver_says_so(
    create: CreateBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "core", None)
    bundle = create("state")
    assert native_notices(replace(bundle, is_native=False)) == ()
    [notice] = native_notices(replace(bundle, is_native=True))
    assert "runs without its native core on host" in notice
    monkeypatch.setattr(native, "core", SimpleNamespace())
    assert native_notices(replace(bundle, is_native=True)) == ()


def test_archive_is_named_as_the_reason_even_if_the_driver_uses_it_too(
    create: CreateBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = replace(create("state"), is_native=False)
    with zipfile.ZipFile(tmp_path / "deps.zip", "w") as archive:
        archive.writestr("penstock/__init__.py", "")
    # Spark adds the path of the archive as a relative one.
    monkeypatch.chdir(tmp_path)
    loader = zipimporter("./deps.zip")
    monkeypatch.chdir("/")
    monkeypatch.setattr(penstock, "__spec__", ModuleSpec("penstock", loader))
    monkeypatch.setattr(native, "core", None)
    [notice] = native_notices(bundle)
    assert "imported from the archive deps.zip (--py-files)" in notice
