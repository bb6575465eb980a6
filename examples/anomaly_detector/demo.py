"""Runs the anomaly detector example: checks a day of readings, and draws it.

    python examples/anomaly_detector/demo.py [--plot FILE] [--log ...] [--master ...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import Input, Showcase, Types, argument_parser, records, start

from anomaly_detector.generate import MINUTE_MS, SENSORS, generated_readings
from anomaly_detector.plot import draw
from anomaly_detector.topology import (
    ANOMALIES,
    BASELINES,
    CHECKED,
    Baseline,
    CheckedReading,
    build,
)
from penstock import ReadOnlyKeyValueStore, Streams
from penstock.log import open_log

SEED = 7
TYPES = Types(str, CheckedReading)


def inputs() -> Iterator[Input]:
    """A day of readings."""
    return generated_readings(SEED)


def show(streams: Streams, folder: Path, *, plot: Path) -> None:
    """Print the anomalies and the baselines, and draw all sensors."""
    with open_log(streams.config.log) as log:
        anomalies, readings = (records(log, topic, TYPES) for topic in (ANOMALIES, CHECKED))
    print(f"\n== topic {ANOMALIES}: {len(anomalies)} records")
    for line in summary(anomalies):
        print(f"  {line}")
    print(f"\n== store {BASELINES}")
    baselines = streams.store(BASELINES, ReadOnlyKeyValueStore[str, Baseline])
    for sensor in SENSORS:
        baseline = baselines[sensor.name]
        print(f"  {sensor.name:10} {baseline.mean:6.2f} °C  deviation {baseline.deviation:.2f}")
    draw([sensor.name for sensor in SENSORS], readings, plot)
    print(f"\nPlot of all sensors: {plot}")


def summary(anomalies: Sequence[Input]) -> list[str]:
    """One line for the anomalies of a sensor that follow each other, by time."""
    groups: list[list[Input]] = []
    for record in anomalies:
        last = next((group for group in reversed(groups) if group[0].key == record.key), None)
        if last is None or record.timestamp - last[-1].timestamp > 10 * MINUTE_MS:
            groups.append([record])
        else:
            last.append(record)
    return [_line(group) for group in groups]


def _line(group: Sequence[Input]) -> str:
    sensor, reading = group[0].key, group[0].value
    first, last = (
        datetime.fromtimestamp(record.timestamp / 1000, UTC) for record in (group[0], group[-1])
    )
    return (
        f"{first:%H:%M} to {last:%H:%M}  {sensor:10}{reading.celsius:6.2f} °C  "
        f"expected {reading.low:.2f} to {reading.high:.2f}  readings: {len(group)}"
    )


ANOMALY_DETECTOR_DEMO = Showcase(
    "anomaly-detector", "anomaly detector: readings of sensors and their expected bands", build,
    inputs, other_topics=(CHECKED, ANOMALIES), packages=("matplotlib",),
)


def main() -> int:
    """Run the example from the command line."""
    parser = argument_parser(ANOMALY_DETECTOR_DEMO)
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, default=Path("anomaly-detector.png"),
        help="the picture to write (default: %(default)s)",
    )
    chosen = parser.parse_args()
    return start(replace(ANOMALY_DETECTOR_DEMO, show=partial(show, plot=chosen.plot)), chosen)


if __name__ == "__main__":
    sys.exit(main())
