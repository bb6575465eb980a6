"""`StartOffsets`: where reading of the source partitions starts.

That is the committed offset, or the reset policy of the source if no offset was ever committed. A
committed offset that is lost is an error, never a silent reset.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import timedelta

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.plan.task_records import BatchRecord
from penstock.errors import ConfigException, StreamsException
from penstock.log.base import Log
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.topology.nodes import SourceNode
from penstock.topology.offset_reset import AutoOffsetReset
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: The settings of the default policy. The first one that is set wins.
_RESET_SETTINGS = (
    "main.consumer.auto.offset.reset", "consumer.auto.offset.reset", "auto.offset.reset",
)
_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


class StartOffsets:
    """Applies the reset policy of each source topic (`AutoOffsetReset`)."""

    def __init__(
        self, source_log: Log, topology: Topology, config: StreamsConfig, graph: ExecutionGraph
    ) -> None:
        self._log = source_log
        self._application_id = config.application_id
        self._graph = graph
        default = default_policy(config)
        sources = {node.name: node for node in topology.nodes if isinstance(node, SourceNode)}
        self._policies: dict[str, AutoOffsetReset] = {
            topic: sources[source].offset_reset or default
            for each in graph.subtopologies.values() for source, topic in each.reads
        }
        # Records that the application sends to itself must not be skipped.
        for topic in graph.repartition_topics:
            self._policies[topic] = AutoOffsetReset.earliest()

    def resolve(self, batch: BatchRecord | None, now: int) -> dict[TopicPartition, int]:
        """Return the start offset of every source partition. `batch`: the last batch."""
        partitions = [
            TopicPartition(topic, number)
            for topic, count in self._graph.source_topics.items() for number in range(count)
        ]
        committed = self._log.committed(self._application_id, partitions)
        known: Mapping[str, int] = {} if batch is None else batch.sources
        missing = [at for at in partitions if at not in committed]
        lost = [at for at in missing if at.partition < known.get(at.topic, 0)]
        if lost and batch is not None:
            raise self._lost_offsets(lost, batch)
        bounds = self._log.offsets(missing)
        found = {}
        for at in partitions:
            if at in committed:
                found[at] = committed[at].offset
            elif at.topic in known:
                # The partition was added after the first batch, so all of its records are new.
                found[at] = bounds[at].start
            else:
                found[at] = self._by_policy(at, bounds[at], now, "has no committed offset")
        return found

    def reset(
        self, at: TopicPartition, offset: int, bounds: PartitionOffsets, now: int
    ) -> int:
        """Return the new offset of a partition that does not contain `offset` any more."""
        if offset > bounds.end:
            raise StreamsException(
                f"The committed offset {offset} of '{at.topic}' [{at.partition}] is beyond the "
                f"end of the partition, {bounds.end}. Records that were read are no longer in "
                "the log: the topic was recreated, or the log was restored from a backup. Reset "
                f"the application with 'penstock reset {self._application_id}', or set the offset "
                f"with 'penstock groups reset-offsets {self._application_id} --topic "
                f"{at.topic}:{at.partition} --to-offset N --execute'."
            )
        chosen = self._by_policy(
            at, bounds, now, f"starts at {bounds.start}, after the committed offset {offset}"
        )
        log.warning(
            "'%s' [%d] starts at %d, after the committed offset %d: retention has removed "
            "records before they were read. Reading continues at %d (%s).",
            at.topic, at.partition, bounds.start, offset, chosen,
            self._policies[at.topic].strategy,
        )
        return chosen

    def _by_policy(
        self, at: TopicPartition, bounds: PartitionOffsets, now: int, problem: str
    ) -> int:
        policy = self._policies[at.topic]
        if policy.strategy == "earliest":
            return bounds.start
        if policy.strategy == "latest":
            return bounds.end
        if policy.strategy == "by_duration":
            assert policy.duration_ms is not None
            found = self._log.offset_for_time(*at, max(0, now - policy.duration_ms))
            return bounds.end if found is None else found.offset
        raise StreamsException(
            f"'{at.topic}' [{at.partition}] {problem}, and its offset reset is 'none'. Set the "
            f"offset with 'penstock groups reset-offsets {self._application_id} --topic "
            f"{at.topic}:{at.partition} --to-beginning --execute', or choose another "
            "offset_reset= for the source."
        )

    def _lost_offsets(self, lost: list[TopicPartition], batch: BatchRecord) -> StreamsException:
        listed = ", ".join(f"'{at.topic}' [{at.partition}]" for at in lost[:5])
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        return StreamsException(
            f"The committed offset of {listed}{more} is missing. Batch {batch.number} of "
            f"'{self._application_id}' has committed it. Since then the topic was recreated, or "
            "the offset was deleted or has expired. Set it with 'penstock groups reset-offsets "
            f"{self._application_id} --topic {lost[0].topic}:{lost[0].partition} --to-offset N "
            f"--execute', or reset the application with 'penstock reset {self._application_id}'."
        )


def default_policy(config: StreamsConfig) -> AutoOffsetReset:
    """Return the policy of `auto.offset.reset`. The default is earliest, as in Kafka Streams."""
    for name in _RESET_SETTINGS:
        if name in config.extra:
            return _parse_policy(name, str(config.extra[name]).strip())
    return AutoOffsetReset.earliest()


def _parse_policy(name: str, text: str) -> AutoOffsetReset:
    if text in {"earliest", "latest", "none"}:
        return AutoOffsetReset(text)  # type: ignore[arg-type]
    kind, _, duration = text.partition(":")
    milliseconds = iso_duration_ms(duration)
    if kind != "by_duration" or milliseconds is None:
        raise ConfigException(
            f"{name} must be earliest, latest, none, or by_duration: with an ISO 8601 duration "
            f"(by_duration:PT1H), not '{text}'."
        )
    return AutoOffsetReset.by_duration(milliseconds)


def iso_duration_ms(text: str) -> int | None:
    """Parse an ISO 8601 duration of days and less, such as PT1H30M. None if it is invalid."""
    found = _ISO_DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return duration // timedelta(milliseconds=1)
