"""A streaming query between two topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from engine.spark.source_data import KEEP, append, read_topic
from penstock.log import Log


class Stream:
    """A stream from the topic `in` to the topic `out`."""

    def __init__(self, spark: SparkSession, log: Log, directory: Path) -> None:
        self._spark = spark
        self._log = log
        self.checkpoint = directory / "checkpoint"
        log.create_topic("in", 2, KEEP)
        log.create_topic("out", 2, KEEP)

    def send(self, *values: str) -> None:
        for number, value in enumerate(values):
            append(self._log, "in", number % 2, (value, value))

    def run(self, **options: Any) -> Any:
        """Process what is in the log."""
        query = (
            self._spark.readStream.format("penstock")
            .options(log=self._log.address, topic="in", startingOffsets="earliest", **options)
            .load().select("key", "value")
            .writeStream.format("penstock").options(log=self._log.address, topic="out")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True).start()
        )
        query.awaitTermination()
        return query

    def written(self) -> list[str]:
        return sorted(value.decode() for _, value in read_topic(self._log, "out"))
