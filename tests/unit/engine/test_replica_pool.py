"""The memory limit of mapped replicas."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from penstock.engine.worker.replica_pool import MappedMemory


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system has no /proc")
def test_pages_of_a_mapped_file_count_from_first_use_until_it_is_closed(tmp_path: Path) -> None:
    size = 8 << 20
    (tmp_path / "file").write_bytes(bytes(size))
    memory = MappedMemory(max_bytes=size // 2)
    with (tmp_path / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        assert not memory.exceeds_limit()
        assert sum(mapped[at] for at in range(0, size, mmap.PAGESIZE)) == 0
        assert memory.exceeds_limit()
        mapped.close()
    assert not memory.exceeds_limit()
