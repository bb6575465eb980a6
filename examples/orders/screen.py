"""Shows the tables of the demo: redrawn in place on a terminal, otherwise printed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TextIO

from orders.follow import Tables
from orders.generate import STORES as ALL_STORES
from orders.topology import COUNT_WINDOWS, REVENUE_WINDOWS


class Screen:
    """A place for one picture after the other."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self.is_terminal = out.isatty()

    def show(self, lines: Iterable[str]) -> None:
        """Show one frame: in place of the last one on a terminal, otherwise below it."""
        lines = list(lines)
        if self.is_terminal:
            # Lines that do not fit would scroll the terminal.
            size = shutil.get_terminal_size()
            lines = [line[: size.columns + line.count("\x1b") * 4] for line in lines]
            lines = lines[: size.lines - 1]
            self._out.write("\x1b[H\x1b[2J")
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()

    def title(self, text: str) -> str:
        """A line above a table."""
        return f"\x1b[1m{text}\x1b[0m" if self.is_terminal else f"== {text}"


def picture(screen: Screen, head: str, tables: Mapping[str, Tables]) -> list[str]:
    """The lines of one frame."""
    return [
        screen.title(head), "",
        screen.title("running totals, revenue joined with the store's address"),
        *_totals(tables), "",
        screen.title(f"general orders in windows of {_seconds(REVENUE_WINDOWS)}, the newest three"),
        *_revenue_windows(tables["general"]), "",
        screen.title(f"general orders in windows of {_seconds(COUNT_WINDOWS)}, the newest four"),
        *_count_windows(tables["general"]),
    ]


def _seconds(windows: Any) -> str:
    return f"{windows.size_ms // 1000} s (grace {windows.grace_ms // 1000} s)"


def _totals(tables: Mapping[str, Tables]) -> list[str]:
    rows = []
    for store in ALL_STORES:
        row: list[Any] = [store.location_id]
        for each in tables.values():
            total = each.revenue.rows.get(store.location_id)
            row += [
                each.counts.rows.get(store.location_id, 0),
                total.running_revenue if total else Decimal("0.00"),
            ]
        joined = tables["general"].joined.rows.get(store.location_id)
        address = joined.store.address if joined else None
        row.append(f"{address.address_line1}, {address.city} {address.zip}" if address else "")
        rows.append(row)
    return table(("store", "general", "revenue", "restaurant", "revenue", "address"), rows)


def _revenue_windows(tables: Tables) -> list[str]:
    windows = tables.revenue_windows.rows
    newest = sorted({window.start for window in windows})[-3:]
    return table(("window", "store", "orders", "revenue"), [
        (
            span(window.start, REVENUE_WINDOWS), window.location_id,
            total.running_order_count, total.running_revenue,
        )
        for window, total in sorted(windows.items()) if window.start in newest
    ])


def _count_windows(tables: Tables) -> list[str]:
    """The stores side by side."""
    counts: dict[int, dict[str, int]] = {}
    for window, count in tables.count_windows.rows.items():
        counts.setdefault(window.start, {})[window.location_id] = count
    names = [store.location_id for store in ALL_STORES]
    return table(("window", *names), [
        (span(start, COUNT_WINDOWS), *(counts[start].get(name, 0) for name in names))
        for start in sorted(counts)[-4:]
    ])


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Rows in columns; numbers stand right."""
    rows = [list(row) for row in rows]
    texts = [list(head), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in texts) for at in range(len(head))]
    right = [bool(rows) and isinstance(rows[0][at], int | Decimal) for at in range(len(head))]
    return [
        "  " + "   ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in (texts[0], ["-" * width for width in widths], *texts[1:])
    ]


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | Decimal) else str(value)


def span(start: int, windows: Any) -> str:
    """A window as times of the day."""
    begin = datetime.fromtimestamp(start / 1000, UTC)
    end = begin + timedelta(milliseconds=windows.size_ms)
    return f"{begin:%H:%M:%S} - {end:%H:%M:%S}"
