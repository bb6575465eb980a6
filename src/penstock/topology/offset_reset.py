"""Where to start reading a topic for which the application has no committed offset (O14)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from penstock.windows import to_ms


@dataclass(frozen=True)
class AutoOffsetReset:
    """`earliest()`, `latest()`, `none()` (an error), or `by_duration(d)`: d before now."""

    strategy: Literal["earliest", "latest", "none", "by_duration"]
    duration_ms: int | None = None

    @classmethod
    def earliest(cls) -> AutoOffsetReset:
        """Start at the beginning of the topic."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> AutoOffsetReset:
        """Start at its end."""
        return cls("latest")

    @classmethod
    def none(cls) -> AutoOffsetReset:
        """Fail."""
        return cls("none")

    @classmethod
    def by_duration(cls, duration: timedelta | int) -> AutoOffsetReset:
        """Start this long before now."""
        milliseconds = to_ms(duration)
        if milliseconds < 0:
            raise ValueError(f"The duration of an offset reset must not be negative: {duration}.")
        return cls("by_duration", milliseconds)
