"""The records that a task has consumed and produced, measured for its metrics."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.metric_catalogue import Reading
from penstock.task.collector import Collector
from penstock.task.meters import measure_outputs, measure_rows
from penstock.task.queue import RecordQueue
from penstock.task.runtime import Runtime
from penstock.task.store_meters import cached_bytes


class Measurements:
    """Measures the records of a task, a chunk at a time: while they are in the processor's cache.

    Invariant: `_measured` outputs of the collector are measured.
    """

    def __init__(
        self, runtime: Runtime, collector: Collector,
        queues: Mapping[tuple[str, int], RecordQueue],
    ) -> None:
        self._runtime = runtime
        self._collector = collector
        self._queues = queues
        self._measured = 0

    def add(self) -> None:
        """Measure the records since the last call."""
        meters, now = self._runtime.meters, self._runtime.now()
        for (topic, _), queue in self._queues.items():
            consumed = [(topic, each) for each in queue.take_measured()]
            # In the test driver, a queue may have the records of several topics.
            consumed += [
                (rows.topic or topic, measure_rows(rows, first, last, now))
                for rows, first, last in queue.take_consumed()
            ]
            for read, each in consumed:
                meters.consumed(queue.name, read, each, has_ages=queue.keeps_timestamps)
            meters.extracted(queue.name, queue.take_extracted(), now)
            processed = sum(each.records for _, each in consumed) - queue.take_rejected()
            meters.processed({queue.name: processed})
        outputs = self._collector.outputs
        if len(outputs) > self._measured:
            for topic, measured in measure_outputs(outputs, self._measured, now).items():
                node = self._collector.sink_of(topic)
                if node is not None:
                    meters.produced(node, topic, measured)
            self._measured = len(outputs)

    def take(self) -> tuple[Reading, ...]:
        """Return the measurements since the last commit. The outputs are removed afterwards."""
        self.add()
        self._measured = 0
        meters = self._runtime.meters
        meters.processed(self._runtime.node_calls.take())
        if meters.records("buffered"):
            meters.meter("buffered").record(sum(queue.size for queue in self._queues.values()))
            meters.meter("cache-size").record(cached_bytes(self._runtime.stores.values()))
        for observe in meters.at_commit:
            observe()
        return meters.take_readings()
