"""`LagMetrics`: how many records of the source partitions are not processed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from penstock.engine.observe.sample_windows import SampleWindow
from penstock.metrics import MetricName

if TYPE_CHECKING:
    from penstock.engine.continuous.messages import PartitionLag
    from penstock.log.types import TopicPartition

#: The group of Kafka's consumer.
CONSUMER = "consumer-fetch-manager-metrics"

_Partition: TypeAlias = tuple[str, int]


class LagMetrics:
    """The last known lag of each partition, and its maxima. The caller holds a lock."""

    def __init__(self, seconds: float, now: float) -> None:
        self._lag: dict[_Partition, int] = {}
        #: Partition -> the task of a lane that reads it.
        self._tasks: dict[_Partition, str] = {}
        self._maxima = SampleWindow(seconds, now)

    def replace(self, lag: Mapping[TopicPartition, int], now: float) -> None:
        """Set the lag of all partitions, as of the last plan of a batch."""
        self._lag = {(topic, partition): each for (topic, partition), each in lag.items()}
        self._tasks.clear()
        self._add_sample(now)

    def update(self, lag: Sequence[PartitionLag], now: float) -> None:
        """Set the lag of the partitions of a lane."""
        for task_id, topic, partition, records in lag:
            self._lag[topic, partition] = records
            self._tasks[topic, partition] = str(task_id)
        self._add_sample(now)

    def remove(self, task: str) -> None:
        """No lane reads the partitions of a task."""
        for at in [at for at, reader in self._tasks.items() if reader == task]:
            del self._tasks[at], self._lag[at]

    def clear(self) -> None:
        """This instance reads no partition."""
        self._lag.clear()
        self._tasks.clear()

    def _add_sample(self, now: float) -> None:
        if self._lag:
            self._maxima.add(max(self._lag.values()), now)

    def values(self, client_id: str, now: float) -> Iterator[tuple[MetricName, float]]:
        """Yield the metrics."""
        tags = (("client-id", client_id),)
        for (topic, partition), records in self._lag.items():
            of_partition = (*tags, ("topic", topic), ("partition", str(partition)))
            yield MetricName(CONSUMER, "records-lag", of_partition), records
        yield MetricName(CONSUMER, "records-lag-max", tags), self._maxima.maximum(now)
