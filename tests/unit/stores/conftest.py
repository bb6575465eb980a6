from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.stores.changelogs import MemoryChangelogs, ReplicaDirectory
from unit.stores.fakes import FakeContext


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def cached() -> FakeContext:
    return FakeContext(max_bytes=1_000_000)


@pytest.fixture
def changelogs() -> MemoryChangelogs:
    return MemoryChangelogs()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ReplicaDirectory]:
    directory = ReplicaDirectory(tmp_path / "app" / "0_1")
    yield directory
    directory.close()
