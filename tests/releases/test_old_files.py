"""The current version continues from the log and the state of earlier versions.

`files/0.1.0.dev1.tar.xz` was written before the embedded log had checksums (format 1), and
`files/0.1.0.dev2.tar.xz` with format 2. Each release adds a file.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import pytest

from penstock.log import open_log
from penstock.log.embedded.schema import FORMAT_VERSION
from releases import application

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = sorted(application.FILES.glob("*.tar.xz"))
LOG_FORMATS = {"0.1.0.dev1": 1, "0.1.0.dev2": 2}


def version(archive: Path) -> str:
    return archive.name.removesuffix(".tar.xz")


@pytest.fixture(params=ARCHIVES, ids=version)
def archive(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def old(archive: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    # As after a shutdown of the host: otherwise state is not used after a restart of the host.
    for marker in folder.glob("state/kept/*/*/unsynced"):
        marker.unlink()
    return folder


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> application.Results:
    """The results of the current version alone."""
    folder = tmp_path_factory.mktemp("new")
    application.process_first(folder)
    first = application.results(folder)
    application.process_second(folder)
    results = application.results(folder)
    # Every topic gets results of both inputs, so that each store matters.
    for topic in application.OUTPUTS:
        partitions = range(application.PARTITIONS)
        assert sum(len(first[topic, n]) for n in partitions) > 0
        assert sum(len(first[topic, n]) for n in partitions) < sum(
            len(results[topic, n]) for n in partitions
        )
    return results


def generations(folder: Path) -> dict[str, str]:
    """The name of the current replica of each task. A replica that is rebuilt gets a new one."""
    return {
        path.parent.name: path.read_text() for path in folder.glob("state/kept/*/current")
    }


def test_application_continues_with_old_log_and_old_state(
    old: Path, uninterrupted: application.Results
) -> None:
    before = generations(old)
    assert len(before) == 4
    application.process_second(old)
    assert application.results(old) == uninterrupted
    assert generations(old) == before


def test_application_restores_its_state_from_an_old_log(
    old: Path, uninterrupted: application.Results
) -> None:
    shutil.rmtree(old / "state")
    application.process_second(old)
    assert application.results(old) == uninterrupted


def test_old_log_is_complete_before_and_after_it_is_converted(old: Path, archive: Path) -> None:
    header = (old / "log.db").read_bytes()[60:64]
    assert int.from_bytes(header, "big") == LOG_FORMATS[version(archive)]
    with open_log(old / "log.db") as log:
        topics = {topic.name: topic.partitions for topic in log.topics()}
        assert {"kept-tasks", "kept-counts-changelog", *application.OUTPUTS} <= topics.keys()
        assert log.verify_metadata() == []
        for topic, partitions in topics.items():
            for partition in range(partitions):
                assert log.verify(topic, partition).damaged == []
    assert int.from_bytes((old / "log.db").read_bytes()[60:64], "big") == FORMAT_VERSION


def test_files_of_all_log_formats_are_kept() -> None:
    kept = {LOG_FORMATS[version(archive)] for archive in ARCHIVES}
    assert kept == set(range(1, FORMAT_VERSION + 1))
    for archive in ARCHIVES:
        assert archive.stat().st_size < 100_000


def test_every_release_has_its_files() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    assert "## [Unreleased]" in changelog
    assert set(released) <= set(map(version, ARCHIVES))
