"""Generates a day of readings of sensors, with faults at known times."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

from showcase import Input

from anomaly_detector.topology import READINGS, Reading

MINUTE_MS = 60_000
#: 2026-01-05T00:00:00Z
MIDNIGHT_MS = 1_767_571_200_000


class Sensor(NamedTuple):
    """A sensor: its temperature at night, its rise by day, and its noise."""

    name: str
    night_celsius: float
    rise_celsius: float
    noise_celsius: float


class Fault(NamedTuple):
    """A change of the readings of a sensor, from a minute of the day on."""

    sensor: str
    minute: int
    minutes: int
    celsius: float


SENSORS = (
    Sensor("boiler", 68.0, 6.0, 0.40),
    Sensor("cold-room", 3.5, 1.0, 0.15),
    Sensor("pump", 41.0, 9.0, 0.60),
)
FAULTS = (
    # A spike, a door that stays open, a pump that runs hot for two hours.
    Fault("boiler", 400, 1, 9.0),
    Fault("cold-room", 700, 12, 4.0),
    Fault("boiler", 1000, 2, -7.5),
    Fault("pump", 1100, 120, 12.0),
)


def generated_readings(seed: int, *, minutes: int = 24 * 60) -> Iterator[Input]:
    """Generate a reading of each sensor for each minute; the same readings for the same seed."""
    chance = random.Random(seed)
    for minute in range(minutes):
        # Warmest at 15 h.
        daytime = (1 - math.cos(math.tau * (minute / 1440 - 0.125))) / 2
        for sensor in SENSORS:
            celsius = sensor.night_celsius + sensor.rise_celsius * daytime
            celsius += chance.gauss(0, sensor.noise_celsius) + _fault_of(sensor, minute)
            yield Input(
                READINGS, sensor.name, Reading(round(celsius, 2)), MIDNIGHT_MS + minute * MINUTE_MS
            )


def _fault_of(sensor: Sensor, minute: int) -> float:
    return sum(
        fault.celsius for fault in FAULTS
        if fault.sensor == sensor.name and 0 <= minute - fault.minute < fault.minutes
    )
