"""Errors that end a command with a message."""

from __future__ import annotations

from penstock.errors import StreamsException


class CommandError(StreamsException):
    """The command failed (exit code 1). The message is all that users see."""


class UsageError(StreamsException):
    """An argument is missing, or arguments contradict each other (exit code 2)."""
