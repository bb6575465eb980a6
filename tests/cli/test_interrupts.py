"""Ctrl-C during an append: the records that were appended are counted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli.interrupts import interrupt_deferred
from penstock.log.embedded.log import EmbeddedLog


def interrupt(times: int, steps: list[str]) -> None:
    """Interrupt this process so many times within a block."""
    with interrupt_deferred():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        steps.append("end of the block")
    steps.append("after the block")


@pytest.mark.parametrize(("times", "steps"), [(1, ["end of the block"]), (2, [])])
def test_interrupt_takes_effect_at_the_end_of_the_block_and_a_second_one_at_once(
    times: int, steps: list[str]
) -> None:
    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupt(times, seen)
    assert seen == steps
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_records_of_an_interrupted_append_are_reported(
    penstock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    append_many = EmbeddedLog.append_many

    def append_and_interrupt(log: EmbeddedLog, *arguments: Any, **options: Any) -> Any:
        result = append_many(log, *arguments, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(EmbeddedLog, "append_many", append_and_interrupt)
    result = penstock("produce", "one", "--create", stdin=b"first\nsecond\n")
    assert result.code == 130
    assert "Appended 2 records to 'one'." in result.err
