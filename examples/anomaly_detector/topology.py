"""Compares the readings of sensors with the band that is expected of each sensor.

    readings ── check (store baselines) ─┬──────────────────── checked-readings
                                         └─ outside its band ── anomalies

A baseline is an exponentially weighted mean and deviation. It follows slow changes, such as the
temperature over a day, and needs one small row for each sensor, however long the sensor runs.
"""

from __future__ import annotations

import math

import msgspec

from penstock import (
    FixedKeyProcessor,
    FixedKeyRecord,
    KeyValueStore,
    ProcessorContext,
    Stores,
    StreamsBuilder,
    Topology,
)

READINGS, CHECKED, ANOMALIES = "readings", "checked-readings", "anomalies"
BASELINES = "baselines"

#: A baseline forgets within this time: a reading this old has 37 % of its first weight.
MEMORY_MS = 30 * 60_000
#: The half width of the band, in deviations.
WIDTH = 4.0
#: The first readings of a sensor only build its baseline.
WARM_UP = 20


class Reading(msgspec.Struct, frozen=True):
    """A measured value. The key of its record is the sensor."""

    celsius: float


class Baseline(msgspec.Struct, frozen=True):
    """The expected mean and variance of a sensor: a row of the store."""

    mean: float
    variance: float
    count: int
    #: Of the latest reading.
    timestamp: int

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)


class CheckedReading(msgspec.Struct, frozen=True):
    """A reading and its band, which the readings before it have made."""

    celsius: float
    low: float
    high: float
    is_anomaly: bool


def checked(reading: Reading, baseline: Baseline | None) -> CheckedReading:
    """Compare a reading with the baseline of its sensor."""
    if baseline is None:
        return CheckedReading(reading.celsius, reading.celsius, reading.celsius, False)
    half = WIDTH * baseline.deviation
    low, high = baseline.mean - half, baseline.mean + half
    is_outside = not low <= reading.celsius <= high
    return CheckedReading(
        reading.celsius, round(low, 3), round(high, 3), is_outside and baseline.count >= WARM_UP
    )


def baseline_after(baseline: Baseline | None, reading: CheckedReading, timestamp: int) -> Baseline:
    """The baseline with one more reading."""
    if baseline is None:
        return Baseline(reading.celsius, 0.0, 1, timestamp)
    elapsed_ms = timestamp - baseline.timestamp
    if elapsed_ms <= 0:
        # A late reading is checked, but changes nothing.
        return baseline
    celsius = reading.celsius
    if reading.is_anomaly:
        # The limit of the band instead of the anomaly: a single one hardly moves the baseline, but
        # after a lasting change the band widens, and follows.
        celsius = min(max(celsius, reading.low), reading.high)
    # Sensors may report irregularly: the weight depends on the time since the last reading. The
    # first readings have the weights of a plain mean.
    weight = max(-math.expm1(-elapsed_ms / MEMORY_MS), 1 / (baseline.count + 1))
    delta = celsius - baseline.mean
    return Baseline(
        baseline.mean + weight * delta,
        (1 - weight) * (baseline.variance + weight * delta * delta),
        baseline.count + 1, timestamp,
    )


class CheckReadings(FixedKeyProcessor[str, Reading, CheckedReading]):
    """Checks each reading, and updates the baseline of its sensor."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._baselines = context.get_state_store(BASELINES, KeyValueStore[str, Baseline])

    def process(self, record: FixedKeyRecord[str, Reading]) -> None:
        baseline = self._baselines.get(record.key)
        reading = checked(record.value, baseline)
        self._baselines.put(record.key, baseline_after(baseline, reading, record.timestamp))
        self.context.forward(record.with_value(reading))


def build() -> Topology:
    """The application."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_store_builder(
            Stores.persistent_key_value_store(BASELINES), str, Baseline
        )
    )
    readings = builder.stream(READINGS, key=str, value=Reading)
    compared = readings.process_values(CheckReadings, BASELINES, name="check")
    compared.to(CHECKED, key=str, value=CheckedReading)
    compared.filter(lambda reading: reading.is_anomaly).to(
        ANOMALIES, key=str, value=CheckedReading
    )
    return builder.build()
