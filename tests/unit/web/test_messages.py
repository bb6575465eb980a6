"""The last warnings and errors, for the page."""

from __future__ import annotations

import logging

import pytest

from penstock.web.messages import RecentMessages


def warning(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("penstock", logging.WARNING, "", 0, text, arguments, None)


def test_mistake_in_a_log_call_does_not_reach_its_caller(
    capsys: pytest.CaptureFixture[str]
) -> None:
    recent = RecentMessages()
    recent.handle(warning("%d records", "many"))
    recent.handle(warning("%d records", 3))
    assert [message["text"] for message in recent.newest_first()] == ["3 records"]
    assert recent.count == 1
    assert "Logging error" in capsys.readouterr().err
