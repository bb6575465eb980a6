"""The pause of the garbage collector costs nothing for each frozen object."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.task import gc_pause
from penstock.task.gc_pause import freeze_heap, gc_paused


@pytest.fixture(autouse=True)
def fresh_heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc_pause, "_HEAP", gc_pause._Heap())
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_frozen_objects_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: calls.append(1) or 0)
    for _ in range(5):
        with gc_paused():
            assert not gc.isenabled()
        assert gc.isenabled()
    assert len(calls) == 1


def test_frozen_heap_stays_frozen() -> None:
    with gc_paused():
        pass
    assert gc.get_freeze_count() == 0
    freeze_heap()
    before = gc.get_freeze_count()
    with gc_paused():
        pass
    assert gc.get_freeze_count() >= before > 0


def test_heap_that_was_frozen_before_the_first_pause_stays_frozen() -> None:
    gc.freeze()
    with gc_paused():
        pass
    assert gc.get_freeze_count() > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_counts_again() -> None:
    code = (
        "import gc, os\n"
        "from penstock.task.gc_pause import gc_paused\n"
        "with gc_paused(): pass\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    gc.freeze()\n"
        "    with gc_paused(): pass\n"
        "    os._exit(0 if gc.get_freeze_count() else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
