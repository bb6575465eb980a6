"""`duration`: a time span as text, in the largest unit that fits."""

from __future__ import annotations

_UNITS = (
    (86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"), (0.001, "µs"),
)


def duration(milliseconds: float) -> str:
    """Return a text such as `7 µs`, `12 ms`, `3.4 s`, `5 min` or `1,444 days`."""
    if not milliseconds:
        return "0 ms"
    size, unit = next((each for each in _UNITS if milliseconds >= each[0]), _UNITS[-1])
    value = milliseconds / size
    shown = f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
    return f"{shown} {unit.removesuffix('s') if shown == '1' and unit == 'days' else unit}"
