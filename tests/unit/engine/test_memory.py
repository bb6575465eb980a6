"""What a process has mapped is seen, and counts no more once it is closed."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from penstock.engine.worker.memory import ResidentMemory


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_pages_of_a_file_count_from_the_first_look_at_them_until_it_is_closed(
    tmp_path: Path,
) -> None:
    size = 8 << 20
    (tmp_path / "file").write_bytes(bytes(size))
    pages = ResidentMemory(most_bytes=size // 2)
    with (tmp_path / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        assert not pages.are_many()
        assert sum(mapped[at] for at in range(0, size, mmap.PAGESIZE)) == 0
        assert pages.are_many()
        mapped.close()
    assert not pages.are_many()
