"""Draws the readings of a sensor, their band, and the anomalies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from showcase import Input

from penstock.extras import explain_missing_extra


def draw(sensors: Sequence[str], records: Sequence[Input], path: Path) -> None:
    """Draw one chart for each sensor. The ending of the file decides its format.

    Args:
        sensors: The sensors to draw.
        records: Records of the topic `checked-readings`, by time.
        path: The file, which is overwritten.
    """
    # It reports that it builds its font cache, which takes seconds at the first start.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with explain_missing_extra("examples"):
        # Without pyplot: it would look for a screen, and keep every figure.
        from matplotlib.dates import DateFormatter
        from matplotlib.figure import Figure
    figure = Figure(figsize=(9, 2.4 * len(sensors)), layout="constrained")
    charts = figure.subplots(len(sensors), sharex=True, squeeze=False)[:, 0]
    for chart, sensor in zip(charts, sensors, strict=True):
        _draw_sensor(chart, sensor, [record for record in records if record.key == sensor])
    charts[0].legend(loc="upper left", ncols=3, columnspacing=3, frameon=False, fontsize="small")
    charts[-1].xaxis.set_major_formatter(DateFormatter("%H:%M"))
    figure.savefig(path, dpi=100)


def _draw_sensor(chart: Any, sensor: str, records: Sequence[Input]) -> None:
    times = [datetime.fromtimestamp(record.timestamp / 1000, UTC) for record in records]
    readings = [record.value for record in records]
    chart.fill_between(
        times, [each.low for each in readings], [each.high for each in readings],
        color="tab:blue", alpha=0.25, linewidth=0, label="expected",
    )
    chart.plot(times, [each.celsius for each in readings], color="0.25", linewidth=0.6,
               label="readings")
    outside = [
        (time, each.celsius) for time, each in zip(times, readings, strict=True) if each.is_anomaly
    ]
    chart.plot(
        [time for time, _ in outside], [celsius for _, celsius in outside], linestyle="none",
        marker="o", markersize=4, color="tab:red", label="anomalies",
    )
    chart.set_title(sensor, loc="left", fontsize="medium")
    chart.set_ylabel("°C")
    chart.margins(x=0.01)
