"""What a command raises to end with a message: failure (1), or wrong usage (2)."""

from __future__ import annotations

from penstock.errors import StreamsException


class CommandFailed(StreamsException):
    """The command could not do what it was told; its message is all that people see."""


class UsageError(StreamsException):
    """The arguments do not fit together, or one is missing."""
