"""Where to start reading a topic without a committed offset (O14)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from penstock.windows import to_ms


@dataclass(frozen=True)
class AutoOffsetReset:
    """Where to start reading a topic if the application has no committed offset for it.

    Example:
        >>> from datetime import timedelta
        >>> from penstock import StreamsBuilder
        >>> last_day = AutoOffsetReset.by_duration(timedelta(days=1))
        >>> orders = StreamsBuilder().stream("orders", offset_reset=last_day)
    """

    strategy: Literal["earliest", "latest", "none", "by_duration"]
    duration_ms: int | None = None

    @classmethod
    def earliest(cls) -> AutoOffsetReset:
        """Start at the beginning of the topic.

        Returns:
            The policy, for `offset_reset=`.

        Kafka: AutoOffsetReset#earliest
        """
        return cls("earliest")

    @classmethod
    def latest(cls) -> AutoOffsetReset:
        """Start at the end of the topic.

        Returns:
            The policy, for `offset_reset=`.

        Kafka: AutoOffsetReset#latest
        """
        return cls("latest")

    @classmethod
    def none(cls) -> AutoOffsetReset:
        """Raise an error.

        Returns:
            The policy, for `offset_reset=`.

        Kafka: AutoOffsetReset#none
        """
        return cls("none")

    @classmethod
    def by_duration(cls, duration: timedelta | int) -> AutoOffsetReset:
        """Start with the records of this last period of time.

        Args:
            duration: How long ago the first record may be.

        Returns:
            The policy, for `offset_reset=`.

        Kafka: AutoOffsetReset#byDuration
        """
        milliseconds = to_ms(duration)
        if milliseconds < 0:
            raise ValueError(f"The duration of an offset reset must not be negative: {duration}.")
        return cls("by_duration", milliseconds)
