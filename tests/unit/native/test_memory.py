"""Native code leaks no memory."""

from __future__ import annotations

import gc
import logging
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import native
from penstock.record import NO_HEADERS, Change, CurrentRecord
from penstock.windows import Window, Windowed

if native.core is None:
    pytest.skip(f"penstock runs {native.in_use()}", allow_module_level=True)

core = native.core
SCENARIOS = runpy.run_path(str(Path(__file__).with_name("scenarios.py")))
#: Objects that native code uses frequently. Wrong reference counts would show here.
SHARED = (
    core.PENDING, core.UNKNOWN, NO_HEADERS, True, False, Change, CurrentRecord, Window, Windowed
)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def held() -> tuple[int, list[int]]:
    """The number of allocated blocks, and the reference counts of the shared objects."""
    for _ in range(3):
        gc.collect()
    return sys.getallocatedblocks(), [sys.getrefcount(each) for each in SHARED]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS["SCENARIOS"])
def test_closed_task_frees_its_memory(name: str) -> None:
    play: Callable[[str, int, int], list[str]] = SCENARIOS["play"]
    play(name, 2_000, 3)
    play(name, 10_000_000, 1)
    blocks, references = held()
    for _ in range(2):
        play(name, 2_000, 3)
        play(name, 10_000_000, 1)
    blocks_after, references_after = held()
    # A leak of one object for each record would be thousands; a few hundred are normal.
    assert blocks_after - blocks < 1_000
    assert [after - before for after, before in zip(references_after, references, strict=True)
            if abs(after - before) > 50] == []
